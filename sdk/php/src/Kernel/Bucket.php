<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * What `token_bucket` and `leaky_bucket` have in common: a level that flows out. A state is `[used, at]`.
 */
abstract class Bucket implements Algorithm
{
    /**
     * @param int $limit the largest cost that passes at once
     * @param int $initial units in use of a new key
     */
    public function __construct(
        protected readonly Flow $flow,
        protected readonly int $limit,
        protected readonly int $initial,
    ) {
    }

    public function limit(): int
    {
        return $this->limit;
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        [$used, $at] = $this->level($state, $now);
        return $this->flow->fill($used, $at, $now, $cost * $this->flow->perPermit);
    }

    public function firstSeen(int $now): ?array
    {
        return $this->initial > 0 ? [$this->initial, $now] : null;
    }

    public function available(?array $state, int $now): int
    {
        return $this->flow->left($this->level($state, $now)[0]);
    }

    public function status(?array $state, int $now): array
    {
        [$used, $at] = $this->level($state, $now);
        return [$this->flow->left($used), $this->flow->timeToDrain($used, $at, $now)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$used, $at] = $this->level($state, $now);
        $back = (int) min($cost * $this->flow->perPermit, $used);
        return [[$used - $back, $at], Num::divCeil($back, $this->flow->perPermit)];
    }

    public function rewind(array $state, int $now): array
    {
        return $state[1] > $now ? [$state[0], $now] : $state;
    }

    public function used(?array $state, int $now): int
    {
        return Num::divCeil($this->level($state, $now)[0], $this->flow->perPermit);
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [(int) min($used * $this->flow->perPermit, self::UNITS_MAX), $now];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        $flow = $old->flow;
        return $this->flow->takeOver($state[0], $state[1], $flow, $now, $this->flow->perPermit, $flow->perPermit);
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        // The same part of a full bucket, to the unit: a permit that has come back in part stays so.
        $flow = $old->flow;
        return $this->flow->takeOver($state[0], $state[1], $flow, $now, $this->flow->depth, $flow->depth);
    }

    /**
     * @param array<mixed>|null $state
     * @return array{int, int}
     */
    protected function level(?array $state, int $now): array
    {
        if ($state === null) {
            return [$this->initial, $now];
        }
        return $state[1] === $now ? $state : $this->flow->drain($state[0], $state[1], $now);
    }
}
