<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\Ask;

/**
 * One question about one key for Redis.
 *
 * @internal
 */
final readonly class Question
{
    /**
     * @param string $key the state's key
     * @param int $nowUs the process' time
     * @param string $debtId the 16 bytes of a debt's id; empty: no debt
     * @param list<int> $debts permits to charge before, of each rule
     */
    public function __construct(
        public string $key,
        public SealedRules $rules,
        public Ask $ask,
        public WhoseTime $time,
        public int $nowUs,
        public string $debtId = '',
        public array $debts = [],
    ) {
    }
}
