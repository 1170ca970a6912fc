<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

/**
 * Settings of a program for its decisions in Redis.
 *
 * @internal
 */
final readonly class Options
{
    /**
     * @param string $app the program's app; empty: none
     * @param int|null $nodes the number of nodes that share limits without Redis; null: as servers publish it, else 1
     * @param int $maxHoldUs the longest time that a queue holds a request
     * @param int $payMax the most debts of other keys that are paid beside a decision, every 100 ms
     * @param int $accountsMax the most keys that are decided without Redis at a time
     * @param bool $hasShare whether this host can decide by a share; else `local` is decided as `deny`
     */
    public function __construct(
        public string $app,
        public ?int $nodes,
        public int $maxHoldUs,
        public int $payMax,
        public int $accountsMax,
        public bool $hasShare,
    ) {
    }
}
