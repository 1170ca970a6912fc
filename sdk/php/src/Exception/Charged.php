<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * The effect of a request that got no decision.
 *
 * Servers report it with each of their errors; errors of earlier servers, and of balancers in their place, count as
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

    /**
     * Reads the member `charged` of a problem over HTTP.
     *
     * @internal
     */
    public static function ofProblem(mixed $member): self
    {
        return is_string($member) ? self::tryFrom($member) ?? self::Unknown : self::Unknown;
    }

    /**
     * Reads the first word of an error over RESP.
     *
     * @internal
     */
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
