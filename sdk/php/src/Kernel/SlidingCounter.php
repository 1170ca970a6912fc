<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `sliding_counter`: the running window's count, and the part of the one before that still overlaps.
 *
 * A state is `[window, previous, current]`.
 */
final class SlidingCounter implements Algorithm
{
    /** A counter has 32 bits. */
    private const COUNTER_MAX = 4294967295;

    /**
     * What a counter weighs at most: at least the limit. After a higher limit it may have counted more than can be
     * weighed exactly.
     */
    private readonly int $weighedMax;

    /**
     * @param int $stepUs µs a step of the weight
     * @param int $steps steps of a window
     */
    public function __construct(
        private readonly int $limit,
        private readonly int $windowUs,
        private readonly int $stepUs,
        private readonly int $steps,
    ) {
        // Rules that were read may say steps that no limit and window give: none, or so many that the limit is more.
        $this->weighedMax = max(intdiv(intdiv(self::UNITS_MAX, 4), max($steps, 1)), $limit);
    }

    public function limit(): int
    {
        return $this->limit;
    }

    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        if ($cost > $this->limit) {
            return [null, self::NEVER];
        }
        [, $elapsed, $previous, $current] = $this->view($state, $now);
        if ($cost <= $this->free($elapsed, $previous, $current)) {
            return [0, 0];
        }
        $room = $this->limit - $current - $cost;
        $at = $room >= 0
            ? $this->elapsedUntil($previous, $room)
            : $this->windowUs + $this->elapsedUntil($current, $this->limit - $cost);
        return [null, max($at - $elapsed, 0)];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        [$window, , $previous, $current] = $this->view($state, $now);
        return [$window, $previous, self::counter($current + $cost)];
    }

    public function firstSeen(int $now): ?array
    {
        return null;
    }

    public function available(?array $state, int $now): int
    {
        [, $elapsed, $previous, $current] = $this->view($state, $now);
        return $this->free($elapsed, $previous, $current);
    }

    public function status(?array $state, int $now): array
    {
        [, $elapsed, $previous, $current] = $this->view($state, $now);
        $fullAfter = $current > 0 ? 2 * $this->windowUs : ($previous > 0 ? $this->windowUs : 0);
        return [$this->free($elapsed, $previous, $current), max($fullAfter - $elapsed, 0)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$window, , $previous, $current] = $this->view($state, $now);
        $fromCurrent = min($current, $cost);
        $fromPrevious = min($previous, $cost - $fromCurrent);
        return [[$window, $previous - $fromPrevious, $current - $fromCurrent], $fromCurrent + $fromPrevious];
    }

    public function rewind(array $state, int $now): array
    {
        [$window, , $previous, $current] = $this->view($state, $now);
        return $window < $state[0] ? [$window, $previous, $current] : $state;
    }

    public function used(?array $state, int $now): int
    {
        [, $elapsed, $previous, $current] = $this->view($state, $now);
        return Num::divCeil($this->estimate($elapsed, $previous, $current), $this->steps);
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [intdiv($now, $this->windowUs), 0, self::counter($used)];
    }

    /** The same window keeps both counters; another takes the estimate over. */
    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        if ($this->windowUs === $old->windowUs) {
            return $state;
        }
        return [intdiv($now, $this->windowUs), 0, self::counter($old->used($state, $now))];
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        if ($this->windowUs !== $old->windowUs) {
            return null;
        }
        $current = $scaled($state[2]);
        $previous = $scaled($state[1] + $state[2]) - $current;
        return [$state[0], self::counter($previous), self::counter($current)];
    }

    /**
     * The running window, the µs since it began, and the counts of the one before and of itself.
     *
     * @param array<mixed>|null $state
     * @return array{int, int, int, int}
     */
    private function view(?array $state, int $now): array
    {
        $elapsed = $now % $this->windowUs;
        $window = intdiv($now, $this->windowUs);
        if ($state === null) {
            return [$window, $elapsed, 0, 0];
        }
        if ($window < $state[0]) {
            // Time went back: what later windows counted belongs to the one that is running.
            $most = max($this->limit, $state[1], $state[2]);
            return [$window, $elapsed, 0, min($state[1] + $state[2], $most)];
        }
        if ($window === $state[0]) {
            return [$window, $elapsed, $state[1], $state[2]];
        }
        return [$window, $elapsed, $window === $state[0] + 1 ? $state[2] : 0, 0];
    }

    private static function counter(int $count): int
    {
        return min($count, self::COUNTER_MAX);
    }

    /** Permits in use, times the steps of a window. */
    private function estimate(int $elapsed, int $previous, int $current): int
    {
        $weight = min(Num::divCeil($this->windowUs - $elapsed, $this->stepUs), $this->steps);
        return min($previous, $this->weighedMax) * $weight + min($current, $this->weighedMax) * $this->steps;
    }

    private function free(int $elapsed, int $previous, int $current): int
    {
        $left = $this->limit * $this->steps - $this->estimate($elapsed, $previous, $current);
        return $left > 0 ? intdiv($left, $this->steps) : 0;
    }

    /** The µs after which `$previous` permits leave room for `$room`. */
    private function elapsedUntil(int $previous, int $room): int
    {
        if ($previous === 0) {
            return 0;
        }
        $weight = intdiv($room * $this->steps, min($previous, $this->weighedMax));
        return $weight < $this->steps ? $this->windowUs - $weight * $this->stepUs : 0;
    }
}
