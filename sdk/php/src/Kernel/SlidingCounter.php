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
        return [$window, $previous, $current + $cost];
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
        return [intdiv($now, $this->windowUs), 0, min($used, $this->limit)];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        if ($this->windowUs === $old->windowUs) {
            return [$state[0], min($state[1], $this->limit), min($state[2], $this->limit)];
        }
        return [intdiv($now, $this->windowUs), 0, min($old->used($state, $now), $this->limit)];
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        if ($this->windowUs !== $old->windowUs) {
            return null;
        }
        $current = $scaled($state[2]);
        $previous = $scaled($state[1] + $state[2]) - $current;
        return [$state[0], min($previous, $this->limit), min($current, $this->limit)];
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
            return [$window, $elapsed, 0, min($state[1] + $state[2], $this->limit)];
        }
        if ($window === $state[0]) {
            return [$window, $elapsed, $state[1], $state[2]];
        }
        return [$window, $elapsed, $window === $state[0] + 1 ? $state[2] : 0, 0];
    }

    /** Permits in use, times the steps of a window. */
    private function estimate(int $elapsed, int $previous, int $current): int
    {
        $weight = min(Num::divCeil($this->windowUs - $elapsed, $this->stepUs), $this->steps);
        return $previous * $weight + $current * $this->steps;
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
        $weight = intdiv($room * $this->steps, $previous);
        return $weight < $this->steps ? $this->windowUs - $weight * $this->stepUs : 0;
    }
}
