<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `sliding_log`: an entry for each grant. A state is the list of its entries `[at, cost]`, oldest first.
 */
final class SlidingLog implements Algorithm
{
    public function __construct(private readonly int $limit, private readonly int $windowUs)
    {
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
        $live = $this->live($state ?? [], $now);
        $wanted = array_sum(array_column($live, 1)) + $cost;
        if ($wanted <= $this->limit) {
            return [0, 0];
        }
        $retry = 0;
        foreach ($live as [$at, $granted]) {
            if ($wanted <= $this->limit) {
                break;
            }
            $wanted -= $granted;
            $retry = $at + $this->windowUs - $now;
        }
        return [null, $retry];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        $live = $this->live($state ?? [], $now);
        $live[] = [$now, $cost];
        return $live;
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
        $resetAfter = $state ? $state[count($state) - 1][0] + $this->windowUs - $now : 0;
        return [$this->available($state, $now), max($resetAfter, 0)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        $live = $this->live($state, $now);
        $left = $cost;
        while ($left > 0 && $live) {
            [$at, $granted] = array_pop($live);
            $back = min($granted, $left);
            $left -= $back;
            if ($granted > $back) {
                $live[] = [$at, $granted - $back];
            }
        }
        return [$live, $cost - $left];
    }

    public function rewind(array $state, int $now): array
    {
        for ($place = count($state) - 1; $place >= 0 && $state[$place][0] > $now; $place--) {
            $state[$place][0] = $now;
        }
        return $state;
    }

    public function used(?array $state, int $now): int
    {
        return array_sum(array_column($this->live($state ?? [], $now), 1));
    }

    public function withUsed(int $now, int $used): ?array
    {
        $used = min($used, $this->limit);
        return $used > 0 ? [[$now, $used]] : [];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        return $old->live($state, $now);
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        if ($this->windowUs !== $old->windowUs) {
            return null;
        }
        [$kept, $sum, $before] = [[], 0, 0];
        foreach (array_reverse($state) as [$at, $granted]) {
            $sum += $granted;
            $after = min($scaled($sum), $this->limit);
            if ($after > $before) {
                $kept[] = [$at, $after - $before];
            }
            $before = $after;
        }
        return array_reverse($kept);
    }

    /**
     * @param array<mixed> $state
     * @return list<array{int, int}>
     */
    private function live(array $state, int $now): array
    {
        $first = 0;
        while (isset($state[$first]) && $state[$first][0] + $this->windowUs <= $now) {
            $first++;
        }
        return $first > 0 ? array_slice($state, $first) : $state;
    }
}
