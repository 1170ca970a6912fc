<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * The record of a published policy cannot be read: it is of a later version, or it is damaged and no earlier version of
 * the policy is held.
 */
final class UnreadablePolicy extends SluicegateException
{
    /** The reason, cut at 1,024 bytes. */
    public readonly string $cause;

    public function __construct(string $policy, string $cause)
    {
        $this->cause = self::truncate($cause);
        parent::__construct('unreadable_policy', "policy: `$policy` cannot be read: $this->cause");
    }
}
