<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * A policy is published that cannot be read, and no earlier version of it is held.
 */
final class UnreadablePolicy extends SluicegateException
{
    public function __construct(string $policy, string $cause)
    {
        parent::__construct('unreadable_policy', "policy: `$policy` cannot be read: $cause");
    }
}
