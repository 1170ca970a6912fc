<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

/**
 * Settings of a program for its decisions in Redis.
 */
final readonly class Options
{
    /**
     * @param string $app the program's app; empty: none
     * @param int|null $nodes among how many nodes limits are shared without Redis; null: as servers say it, else 1
     * @param int $maxHoldUs how long a queue holds a request at most
     * @param int $payMax how many debts of other keys are paid beside a decision, each 100 ms
     * @param int $accountsMax keys at a time that are decided without Redis
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
