<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Kernel\Ask;

/**
 * Decides what limiters are asked: in Redis, by a server, or in this process.
 */
abstract class Decider
{
    /**
     * The decision about a key.
     *
     * @param string $policy a policy, or the name of a limit
     * @param Limit|null $limit a limit that is made in code; null for a policy
     * @param string $key empty: the budget that all share
     * @throws SluicegateException if there is no decision
     */
    abstract public function decide(string $policy, ?Limit $limit, string $key, Ask $ask): Decision;

    /**
     * The attributes of a request that make the keys of a policy, null where that is not known.
     *
     * @return list<string>|null
     */
    public function keyOf(string $policy): ?array
    {
        return null;
    }

    /** Pays debts for at most `$seconds`, and frees what is held; 0: without waiting for a Redis that does not answer. */
    public function close(float $seconds): void
    {
    }
}
