<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

use Sluicegate\Rules\Calendar;

/**
 * The primitive of `fixed_window` and the sliding ones: ten buckets and one more.
 *
 * A permit counts until its bucket no longer overlaps the window, so that no interval of the window's length has more
 * than the limit: `spec/failure.md`, A window. A state is `[newest, counts, reported, till]`; bucket `b` is at `b`
 * modulo their number, and the permits that Redis `reported` count until `till`.
 *
 * @internal
 */
final class Window extends Primitive
{
    private const BUCKETS = 11;
    private const HOUR_US = 3_600_000_000;
    /** The longest day, week, month and year: an hour more where clocks are put back. */
    private const LONGEST_H = [25, 7 * 24 + 1, 31 * 24 + 1, 366 * 24 + 1];
    private const EPOCH = 0;
    private const FIRST = 1;
    private const CALENDAR = 2;

    /** Length of the window; of a calendar, its longest. */
    private readonly int $spanUs;
    /** A tenth of it, rounded up. */
    private readonly int $bucketUs;
    /** The kind of a fixed window, by its beginning; null: the window slides. */
    private readonly ?int $kind;

    /**
     * The window of a rule's code and numbers (`spec/redis.md`, Rules).
     *
     * @param list<float> $n
     * @param Calendar|null $calendar the calendar of windows; null also where only the hash of its zone is known
     */
    public function __construct(int $limit, int $code, array $n, private readonly ?Calendar $calendar)
    {
        parent::__construct($limit);
        $this->kind = $code === 5 ? (int) $n[1] : null;
        $this->spanUs = match ($this->kind) {
            null => (int) $n[1],
            self::CALENDAR => self::LONGEST_H[(int) $n[3]] * self::HOUR_US,
            default => (int) $n[2],
        };
        $this->bucketUs = self::divCeil($this->spanUs, self::BUCKETS - 1);
    }

    public function check(?array $state, int $now, KernelRequest $request): array
    {
        if ($request->cost > $this->limit) {
            return [null, self::NEVER];
        }
        $over = $this->used($state, $now) + $request->cost - $this->limit;
        if ($over <= 0) {
            return [0, 0];
        }
        $counted = $this->counted($state, $now);
        usort($counted, static fn (array $a, array $b): int => $a[0] <=> $b[0]);
        $end = $now;
        foreach ($counted as [$end, $count]) {
            $over -= $count;
            if ($over <= 0) {
                break;
            }
        }
        return [null, $end - $now];
    }

    public function charge(?array $state, int $now, KernelRequest $request): array
    {
        [$newest, $counts, $reported, $till] = $state ?? $this->empty($now);
        $bucket = intdiv($now, $this->bucketUs);
        for ($next = max($newest + 1, $bucket + 1 - self::BUCKETS); $next <= $bucket; $next++) {
            $counts[$next % self::BUCKETS] = 0;
        }
        $newest = max($newest, $bucket);
        $counts[$newest % self::BUCKETS] += $request->cost;
        return [$newest, $counts, $reported, $till];
    }

    public function fullAfter(?array $state, int $now): int
    {
        return max([$now, ...array_column($this->counted($state, $now), 0)]) - $now;
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$newest, $counts, $reported, $till] = $state;
        $left = $cost;
        for ($bucket = $newest; $bucket >= $this->firstLive($newest, $now); $bucket--) {
            $back = min($left, $counts[$bucket % self::BUCKETS]);
            $counts[$bucket % self::BUCKETS] -= $back;
            $left -= $back;
        }
        $back = min($left, $now < $till ? $reported : 0);
        return [[$newest, $counts, $reported - $back, $till], $cost - $left + $back];
    }

    public function rewind(array $state, int $now): array
    {
        [$newest, $counts, $reported, $till] = $state;
        $till = min($till, $now + $this->spanUs);
        $bucket = intdiv($now, $this->bucketUs);
        if ($bucket >= $newest) {
            return [$newest, $counts, $reported, $till];
        }
        // The newest bucket is that of now, and the others keep their distances less one: the position of the clock in
        // its bucket is not known, so none of them may end sooner than it did.
        [$earlier, $back] = [array_fill(0, self::BUCKETS, 0), $newest - $bucket - 1];
        for ($old = max($newest + 1 - self::BUCKETS, 0); $old <= $newest; $old++) {
            $earlier[min(max($old - $back, 0), $bucket) % self::BUCKETS] += $counts[$old % self::BUCKETS];
        }
        return [$bucket, $earlier, $reported, $till];
    }

    public function used(?array $state, int $now): int
    {
        return array_sum(array_column($this->counted($state, $now), 1));
    }

    public function withUsed(int $now, int $used): ?array
    {
        $state = $this->empty($now);
        if ($this->kind === null) {
            $state[1][$state[0] % self::BUCKETS] = $used;
            return $state;
        }
        $till = match ($this->kind) {
            self::EPOCH => $now - $now % $this->spanUs + $this->spanUs,
            self::FIRST => $now + $this->spanUs,
            default => $this->calendar?->windowAround($now)[1] ?? $now + $this->spanUs,
        };
        return [$state[0], $state[1], $used, $till];
    }

    /**
     * Returns the permits that count at `$now`, as `[end, number]`: first those that Redis reported, then the buckets
     * in order.
     *
     * @return list<array{int, int}>
     */
    private function counted(?array $state, int $now): array
    {
        if ($state === null) {
            return [];
        }
        [$newest, $counts, $reported, $till] = $state;
        $counted = $now < $till && $reported > 0 ? [[$till, $reported]] : [];
        for ($bucket = $this->firstLive($newest, $now); $bucket <= $newest; $bucket++) {
            $count = $counts[$bucket % self::BUCKETS];
            if ($count > 0) {
                $counted[] = [($bucket + 1) * $this->bucketUs + $this->spanUs - 1, $count];
            }
        }
        return $counted;
    }

    private function firstLive(int $newest, int $now): int
    {
        return max($newest + 1 - self::BUCKETS, intdiv(max($now + 1 - $this->spanUs, 0), $this->bucketUs), 0);
    }

    /** @return array{int, list<int>, int, int} */
    private function empty(int $now): array
    {
        return [intdiv($now, $this->bucketUs), array_fill(0, self::BUCKETS, 0), 0, 0];
    }
}
