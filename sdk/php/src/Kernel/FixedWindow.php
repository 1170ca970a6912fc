<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `fixed_window`: a counter for each window. A state is `[count, till]`.
 */
final class FixedWindow implements Algorithm
{
    public const EPOCH = 0;
    public const FIRST = 1;
    public const CALENDAR = 2;

    /**
     * @param int $kind when windows begin: EPOCH, FIRST or CALENDAR
     * @param int $spanUs length of a window; 0 for a calendar
     * @param list<int> $calendar unit and hash of the zone; zeros without a calendar
     * @param int $till end of the calendar window around now; see `withTill`
     */
    public function __construct(
        private readonly int $limit,
        private readonly int $kind,
        private readonly int $spanUs,
        private readonly array $calendar,
        private readonly int $till = 0,
    ) {
    }

    /** The same rule, with the end of the calendar window around now. */
    public function withTill(int $till): self
    {
        return new self($this->limit, $this->kind, $this->spanUs, $this->calendar, $till);
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
        if ($this->used($state, $now) + $cost <= $this->limit) {
            return [0, 0];
        }
        return [null, $this->windowEnd($state, $now) - $now];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        return [$this->used($state, $now) + $cost, $this->windowEnd($state, $now)];
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
        $count = $this->used($state, $now);
        return [max($this->limit - $count, 0), $count > 0 ? $this->windowEnd($state, $now) - $now : 0];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        $back = min($this->used($state, $now), $cost);
        return [[$state[0] - $back, $state[1]], $back];
    }

    public function rewind(array $state, int $now): array
    {
        return [$state[0], min($state[1], $this->windowEnd(null, $now))];
    }

    public function used(?array $state, int $now): int
    {
        return $state !== null && $now < $state[1] ? $state[0] : 0;
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [$used, $this->windowEnd(null, $now)];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        if ($this->sameWindow($old)) {
            return $state;
        }
        return [$this->used($state, $now), $this->windowEnd(null, $now)];
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        assert($old instanceof self);
        return $this->sameWindow($old) ? [$scaled($state[0]), $state[1]] : null;
    }

    private function sameWindow(self $old): bool
    {
        return $this->kind === $old->kind && $this->spanUs === $old->spanUs && $this->calendar === $old->calendar;
    }

    /** @param array<mixed>|null $state */
    private function windowEnd(?array $state, int $now): int
    {
        if ($this->kind === self::EPOCH) {
            return $now - $now % $this->spanUs + $this->spanUs;
        }
        if ($this->kind === self::CALENDAR) {
            return $this->till;
        }
        if ($state !== null && $now < $state[1] && $state[0] > 0) {
            return $state[1];
        }
        return $now + $this->spanUs;
    }
}
