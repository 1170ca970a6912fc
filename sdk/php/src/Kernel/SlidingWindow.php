<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `sliding_window`: a ring of counters; every counter that overlaps the window counts.
 *
 * A state is `[newest, counts]`; bucket `b` is at `b` modulo their number.
 */
final class SlidingWindow implements Algorithm
{
    private readonly int $len;

    /**
     * @param int $bucketUs length of a bucket
     * @param int $buckets buckets of a window, 1 to 1,000
     */
    public function __construct(
        private readonly int $limit,
        private readonly int $windowUs,
        private readonly int $bucketUs,
        int $buckets,
    ) {
        $this->len = $buckets + 1;
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
        $wanted = $this->used($state, $now) + $cost;
        if ($wanted <= $this->limit || $state === null) {
            return [0, 0];
        }
        $retry = 0;
        for ($bucket = $this->firstLive($state, $now); $bucket <= $state[0] && $wanted > $this->limit; $bucket++) {
            $wanted -= $state[1][$bucket % $this->len];
            $retry = $this->timeToEnd($bucket, $now);
        }
        return [null, $retry];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        [$newest, $counts] = $state ?? $this->empty($now);
        $bucket = intdiv($now, $this->bucketUs);
        $steps = min($bucket - $newest, $this->len);
        for ($pushed = 0; $pushed < $steps; $pushed++) {
            $counts[($bucket - $pushed) % $this->len] = 0;
        }
        $newest = max($newest, $bucket);
        $counts[$newest % $this->len] += $cost;
        return [$newest, $counts];
    }

    public function firstSeen(int $now): ?array
    {
        return null;
    }

    public function available(?array $state, int $now): int
    {
        return max($this->limit - $this->used($state, $now), 0);
    }

    public function status(?array $state, int $now): array
    {
        $resetAfter = 0;
        if ($state !== null) {
            $oldest = $this->oldestRemembered($state);
            for ($bucket = $state[0]; $bucket >= $oldest; $bucket--) {
                if ($state[1][$bucket % $this->len] > 0) {
                    $resetAfter = $this->timeToEnd($bucket, $now);
                    break;
                }
            }
        }
        return [$this->available($state, $now), $resetAfter];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        $left = $cost;
        $oldest = $this->firstLive($state, $now);
        for ($bucket = $state[0]; $bucket >= $oldest; $bucket--) {
            $back = min($state[1][$bucket % $this->len], $left);
            $state[1][$bucket % $this->len] -= $back;
            $left -= $back;
        }
        return [$state, $cost - $left];
    }

    public function rewind(array $state, int $now): array
    {
        $earlier = $this->empty($now);
        $bucket = $earlier[0];
        if ($bucket >= $state[0]) {
            return $state;
        }
        // The newest bucket is now; each older one is one nearer to now than it was, never nearer than 0.
        $back = $state[0] - $bucket - 1;
        for ($old = $this->oldestRemembered($state); $old <= $state[0]; $old++) {
            $moved = min(max($old - $back, 0), $bucket);
            $earlier[1][$moved % $this->len] += $state[1][$old % $this->len];
        }
        return $earlier;
    }

    public function used(?array $state, int $now): int
    {
        $sum = 0;
        if ($state !== null) {
            for ($bucket = $this->firstLive($state, $now); $bucket <= $state[0]; $bucket++) {
                $sum += $state[1][$bucket % $this->len];
            }
        }
        return $sum;
    }

    public function withUsed(int $now, int $used): ?array
    {
        $state = $this->empty($now);
        $state[1][$state[0] % $this->len] = $used;
        return $state;
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        if ($this->windowUs === $old->windowUs && $this->len === $old->len) {
            return $state;
        }
        return $this->withUsed($now, $old->used($state, $now));
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        if ($this->windowUs !== $old->windowUs || $this->len !== $old->len) {
            return null;
        }
        $counts = array_fill(0, $this->len, 0);
        [$sum, $before, $oldest] = [0, 0, $this->oldestRemembered($state)];
        for ($bucket = $state[0]; $bucket >= $oldest; $bucket--) {
            $count = $state[1][$bucket % $this->len];
            if ($count > 0) {
                $sum += $count;
                $after = $scaled($sum);
                $counts[$bucket % $this->len] = $after - $before;
                $before = $after;
            }
        }
        return [$state[0], $counts];
    }

    private function oldest(int $now): int
    {
        return intdiv(max($now + 1 - $this->windowUs, 0), $this->bucketUs);
    }

    private function timeToEnd(int $bucket, int $now): int
    {
        return max(($bucket + 1) * $this->bucketUs - $now + $this->windowUs - 1, 0);
    }

    /** @param array<mixed> $state */
    private function oldestRemembered(array $state): int
    {
        return max($state[0] + 1 - $this->len, 0);
    }

    /** @param array<mixed> $state */
    private function firstLive(array $state, int $now): int
    {
        return max($this->oldestRemembered($state), $this->oldest($now));
    }

    /** @return array{int, list<int>} */
    private function empty(int $now): array
    {
        return [intdiv($now, $this->bucketUs), array_fill(0, $this->len, 0)];
    }
}
