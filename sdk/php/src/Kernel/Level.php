<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * The primitive of `token_bucket`, `leaky_bucket` and Guava's two: what is in use drains at a steady rate.
 *
 * Its numbers are units, of which one permit weighs `perPermit`, so that nothing is rounded: `spec/failure.md`,
 * A level.
 * A state is `[used, at]`: units in use as of an instant.
 */
final class Level implements Primitive
{
    /** Units that drain each µs where the time between two permits is a double. */
    private const SMOOTH_TICKS = 1024;
    private const DEPTH_MAX = 4503599627370496;

    /**
     * @param int $tickUs length of a tick
     * @param int $perTick units that drain at each tick
     * @param int $perPermit units that a permit weighs
     * @param int $depth units of a full bucket
     * @param int $most the largest cost that passes at once
     * @param int $fresh units in use of a new key
     * @param bool $stepped whether a whole period drains at its end
     * @param int|null $free units above which a request that passes waits; null: none waits
     * @param bool $afterwards whether a request of any cost passes when no more than the depth is in use
     */
    public function __construct(
        private readonly int $tickUs,
        private readonly int $perTick,
        private readonly int $perPermit,
        private readonly int $depth,
        private readonly int $most,
        private readonly int $fresh = 0,
        private readonly bool $stepped = false,
        private readonly ?int $free = null,
        public readonly bool $afterwards = false,
    ) {
    }

    /**
     * The level of a rule's code and numbers (`spec/redis.md`, Rules).
     *
     * @param list<float> $n
     */
    public static function of(int $code, array $n): self
    {
        if ($code === 2) {
            $depth = (int) min($n[2] * $n[1], self::DEPTH_MAX);
            $most = max((int) min($n[2], self::DEPTH_MAX), 1);
            return new self(1, (int) $n[0], (int) $n[1], $depth, $most, $depth, afterwards: true);
        }
        if ($code === 3) {
            // A permit weighs what drains in the time between two, rounded up.
            $weight = max((int) min(Num::ceil($n[0] * self::SMOOTH_TICKS), self::DEPTH_MAX), 1);
            $most = max((int) min($n[2], self::DEPTH_MAX), 1);
            return new self(1, self::SMOOTH_TICKS, $weight, 0, $most, afterwards: true);
        }
        [$tick, $perTick, $perPermit, $depth, $most] = array_map(intval(...), array_slice($n, 0, 5));
        return $code === 1
            ? new self($tick, $perTick, $perPermit, $depth, $most, (int) $n[5], $n[6] === 1.0)
            : new self($tick, $perTick, $perPermit, $depth, $most, free: $n[5] === 1.0 ? (int) $n[7] : $depth);
    }

    public function limit(): int
    {
        return $this->most;
    }

    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        if ($cost > $this->most && !$this->afterwards) {
            return [null, self::NEVER];
        }
        [$used, $at] = $this->at($state, $now);
        $units = $this->units($cost);
        // Above 2^53 units the numbers would not be exact everywhere.
        $retry = $this->until($used + $units - self::UNITS_MAX, $at, $now);
        if ($this->free !== null) {
            $wait = $this->until($used - $this->free, $at, $now);
            $retry = max($retry, $this->until($used + $units - $this->depth, $at, $now));
            $retry = $maxWait === null ? $retry : max($retry, $wait - $maxWait);
        } else {
            $wait = $this->until($used - $this->depth + ($this->afterwards ? 0 : $units), $at, $now);
            $retry = max($retry, $wait - ($maxWait ?? 0));
        }
        return $retry <= 0 ? [$wait, 0] : [null, $retry];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        [$used, $at] = $this->at($state, $now);
        if ($this->tickUs !== 1 && !$this->stepped && $used < $this->perTick) {
            // The running tick will drain more than is in use: of the time that it has run for, only as much counts
            // as emptied the bucket.
            $at = max($at, $now - (int) Num::mulDiv($used, $this->tickUs, $this->perTick)[0]);
        }
        return [(int) min($used + $this->units($cost), self::UNITS_MAX), $at];
    }

    public function firstSeen(int $now): ?array
    {
        return $this->fresh === 0 || $this->afterwards ? null : [$this->fresh, $now];
    }

    public function available(?array $state, int $now): int
    {
        [$used] = $this->at($state, $now);
        if ($this->afterwards && $used <= $this->depth) {
            return self::UNITS_MAX;
        }
        return intdiv(max($this->depth - $used, 0), $this->perPermit);
    }

    public function status(?array $state, int $now): array
    {
        [$used, $at] = $this->at($state, $now);
        return [intdiv(max($this->depth - $used, 0), $this->perPermit), $this->until($used, $at, $now)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$used, $at] = $this->at($state, $now);
        $back = (int) min($this->units($cost), $used);
        return [[$used - $back, $at], Num::divCeil($back, $this->perPermit)];
    }

    public function rewind(array $state, int $now): array
    {
        return [$state[0], min($state[1], $now)];
    }

    public function used(?array $state, int $now): int
    {
        return Num::divCeil($this->at($state, $now)[0], $this->perPermit);
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [(int) min($this->units($used), self::UNITS_MAX), $now];
    }

    /** The permits that Guava's two have in use when nothing is stored and nothing is owed. */
    public function unstored(): int
    {
        return Num::divCeil($this->depth, $this->perPermit);
    }

    /** The µs until a full bucket is empty. */
    public function lengthUs(): int
    {
        return $this->until($this->depth, 0, 0);
    }

    /** Units of permits; a float above 64 bits, which is more than any level. */
    private function units(int $permits): int|float
    {
        return $permits * $this->perPermit;
    }

    /**
     * What is in use at `$now`; of a new key that is fresh. Time that went back drains nothing.
     *
     * @param array<mixed>|null $state
     * @return array{int, int}
     */
    private function at(?array $state, int $now): array
    {
        if ($state === null) {
            return [$this->fresh, $now];
        }
        [$used, $at] = $state;
        $ticks = intdiv(max($now - $at, 0), $this->tickUs);
        $drained = $ticks * $this->perTick;
        return $drained < $used ? [$used - $drained, $at + $ticks * $this->tickUs] : [0, $now];
    }

    /** The µs until so many units have drained, rounded up. */
    private function until(int|float $units, int $at, int $now): int
    {
        if ($units <= 0) {
            return 0;
        }
        $ticks = is_int($units) ? Num::divCeil($units, $this->perTick) : Num::ceil($units / $this->perTick);
        $span = $ticks * $this->tickUs - max($now - $at, 0);
        return $span < 0 ? 0 : (int) min($span, self::SPAN_MAX_US);
    }
}
