<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `token_bucket`: a burst at once, and what the rate brings. Requests may book the future.
 */
final class TokenBucket extends Bucket
{
    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        if ($cost > $this->limit) {
            return [null, self::NEVER];
        }
        [$used, $at] = $this->level($state, $now);
        $units = $cost * $this->flow->perPermit;
        $excess = $used - $this->flow->depth + $units;
        if ($excess <= 0) {
            return [0, 0];
        }
        $wait = $this->flow->timeToDrain($excess, $at, $now);
        $retry = $wait - ($maxWait ?? 0);
        $tooDeep = $this->flow->timeToDrain($used - self::UNITS_MAX + $units, $at, $now);
        $retry = max($retry, $tooDeep);
        return $retry <= 0 ? [$wait, 0] : [null, $retry];
    }
}
