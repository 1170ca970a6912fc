<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The operation of a request on its budget. The value is its code in a request to the script.
 *
 * @internal
 */
enum Verb: int
{
    case Check = 1;
    case Reserve = 2;
    case AtMost = 3;
    case Peek = 4;
    case Refund = 5;
    case Reset = 6;
    case Acquire = 7;
    case Release = 8;
    case Renew = 9;
    /** An acquire that has a ticket until it passes. */
    case Wait = 14;
    /** Gives that ticket back. */
    case Leave = 15;

    /** Returns its name in messages and on wires, such as `at_most`. */
    public function text(): string
    {
        return match ($this) {
            self::AtMost => 'at_most',
            self::Wait => 'acquire with max_wait',
            default => strtolower($this->name),
        };
    }

    /** Returns whether requests with this verb have a cost. */
    public function hasCost(): bool
    {
        return !in_array($this, [self::Reset, self::Release, self::Renew], true);
    }

    /** Returns whether only the store can decide it: the usage that it changes is nowhere else. */
    public function isForStoreOnly(): bool
    {
        return match ($this) {
            self::Refund, self::Reset, self::Release, self::Renew, self::Leave => true,
            default => false,
        };
    }
}
