<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\SluicegateException;

/**
 * Decides what limiters are asked: in Redis, by a server, or in this process.
 */
interface Decider
{
    /**
     * The decision about a key. The arguments are in their ranges.
     *
     * @param string $policy a policy, or the name of a limit
     * @param Limit|null $limit a limit that is made in code; null for a policy
     * @param string $key empty: the budget that all share
     * @param int|null $maxWaitUs of a reserve
     * @param string $id the name of a permit; empty where the verb has none
     * @throws SluicegateException if there is no decision
     */
    public function decide(
        string $policy,
        ?Limit $limit,
        Verb $verb,
        string $key,
        int $cost,
        ?int $maxWaitUs,
        string $id,
    ): Decision;

    /**
     * The attributes of a request that make the keys of a policy, null where that is not known.
     *
     * @return list<string>|null
     */
    public function keyOf(string $policy): ?array;

    /** Pays debts for at most `$seconds`, and frees what is held; 0: without waiting for a Redis that does not answer. */
    public function close(float $seconds): void;
}
