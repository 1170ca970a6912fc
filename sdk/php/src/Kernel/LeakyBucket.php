<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `leaky_bucket`: passes requests one after the other, at the rate; holds back those above `delay`.
 */
final class LeakyBucket extends Bucket
{
    /**
     * @param bool $delays whether requests are held back
     * @param int $threshold units above which they are
     */
    public function __construct(
        Flow $flow,
        int $limit,
        private readonly bool $delays,
        private readonly int $threshold,
    ) {
        parent::__construct($flow, $limit, 0);
    }

    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        if ($cost > $this->limit) {
            return [null, self::NEVER];
        }
        [$used, $at] = $this->level($state, $now);
        $spilled = $used - $this->flow->depth + $cost * $this->flow->perPermit;
        $retry = $this->flow->timeToDrain($spilled, $at, $now);
        $wait = $this->delays ? $this->flow->timeToDrain($used - $this->threshold, $at, $now) : 0;
        if ($maxWait !== null) {
            $retry = max($retry, $wait - $maxWait);
        }
        return $retry <= 0 ? [$wait, 0] : [null, $retry];
    }
}
