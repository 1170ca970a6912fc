<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Kernel\KernelRequest;

/**
 * A request about one key to the store.
 *
 * @internal
 */
final readonly class StoreRequest
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
        public KernelRequest $kernelRequest,
        public TimeSource $time,
        public int $nowUs,
        public string $debtId = '',
        public array $debts = [],
    ) {
    }
}
