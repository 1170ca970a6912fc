<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * Whether a request without a decision took effect nevertheless.
 *
 * A server says it of each of its errors; one of before that, and a balancer that answers in its place, count as
 * `Unknown`.
 */
enum Charged: string
{
    /** The request took no effect: you may send it again. */
    case No = 'no';
    /** The request took effect: members of an atomic batch stay charged. */
    case Yes = 'yes';
    /** The request may have taken effect: sent again, it may be charged twice. */
    case Unknown = 'unknown';

    /** The member `charged` of a problem over HTTP. */
    public static function ofProblem(mixed $member): self
    {
        return is_string($member) ? self::tryFrom($member) ?? self::Unknown : self::Unknown;
    }

    /** The first word of an error over RESP. */
    public static function ofWord(string $word): self
    {
        return match ($word) {
            'NOTCHARGED', 'NOAUTH', 'NOPERM', 'WRONGPASS' => self::No,
            'CHARGED' => self::Yes,
            // MAYBECHARGED, a word of a later server, or the ERR of an earlier one.
            default => self::Unknown,
        };
    }
}
