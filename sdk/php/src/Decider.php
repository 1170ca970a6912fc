<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\SluicegateException;
use Sluicegate\Kernel\Ask;

/**
 * Decides the requests of limiters: in Redis, by a server, or in this process.
 *
 * @internal
 */
abstract class Decider
{
    /**
     * Returns the decision about a key.
     *
     * @param string $policy a policy, or the name of a limit
     * @param Limit|null $limit a limit that is made in code; null for a policy
     * @param string $key empty: the shared budget
     * @throws SluicegateException if there is no decision
     */
    abstract public function decide(string $policy, ?Limit $limit, string $key, Ask $ask): Decision;

    /**
     * Returns the attributes of a request that form the keys of a policy; null if they are unknown.
     *
     * @return list<string>|null
     */
    public function keyOf(string $policy): ?array
    {
        return null;
    }

    /** Pays debts for at most `$seconds`; with 0, it ends at the first payment without an answer. */
    public function close(float $seconds): void
    {
    }
}
