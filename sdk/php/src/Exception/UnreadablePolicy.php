<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * A policy is published that cannot be read, and no earlier version of it is held.
 */
final class UnreadablePolicy extends SluicegateException
{
    /** Why, cut at 1,024 bytes. */
    public readonly string $cause;

    public function __construct(string $policy, string $cause)
    {
        $this->cause = Cut::text($cause);
        parent::__construct('unreadable_policy', "policy: `$policy` cannot be read: $this->cause");
    }
}
