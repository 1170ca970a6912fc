<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `concurrency`: permits that are held until they are released, or until their time to live ends.
 *
 * A state is the list of its holders `[id, lapses, cost]`, in the order of the ends; an id is 16 bytes.
 */
final class Concurrency implements Primitive
{
    public function __construct(private readonly int $limit, private readonly int $ttlUs)
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
        $held = $this->held($state ?? [], $now);
        $excess = array_sum(array_column($held, 2)) + $cost - $this->limit;
        $retry = 0;
        foreach ($excess > 0 ? $held : [] as [, $lapses, $granted]) {
            if ($excess <= 0) {
                break;
            }
            $excess -= $granted;
            $retry = $lapses - $now;
        }
        return $retry > 0 ? [null, $retry] : [0, 0];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        $held = $this->held($state ?? [], $now);
        $held[] = [$permit, $now + $this->ttlUs, $cost];
        return $held;
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
        $resetAfter = $state ? $state[count($state) - 1][1] - $now : 0;
        return [$this->available($state, $now), max($resetAfter, 0)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        return [$state, 0];
    }

    public function rewind(array $state, int $now): array
    {
        return $this->shorten($state, $now);
    }

    public function used(?array $state, int $now): int
    {
        return array_sum(array_column($this->held($state ?? [], $now), 2));
    }

    public function withUsed(int $now, int $used): ?array
    {
        return null;
    }

    /**
     * Gives a permit back.
     *
     * @param array<mixed> $state
     * @return array{array<mixed>, int|null} the state, and what was held under that id; null: nothing
     */
    public function release(array $state, int $now, string $permit): array
    {
        $place = $this->placeOf($state, $now, $permit);
        if ($place === null) {
            return [$state, null];
        }
        $released = $state[$place][2];
        array_splice($state, $place, 1);
        return [$this->held($state, $now), $released];
    }

    /**
     * Holds a permit for another time to live.
     *
     * @param array<mixed> $state
     * @return array{array<mixed>, int|null} the state, and what is held under that id; null: nothing
     */
    public function renew(array $state, int $now, string $permit): array
    {
        $place = $this->placeOf($state, $now, $permit);
        if ($place === null) {
            return [$state, null];
        }
        $granted = $state[$place][2];
        array_splice($state, $place, 1);
        $state[] = [$permit, $now + $this->ttlUs, $granted];
        return [$state, $granted];
    }

    /**
     * Whether a permit of that id is held.
     *
     * @param array<mixed>|null $state
     */
    public function holds(?array $state, int $now, string $permit): bool
    {
        return $this->placeOf($state ?? [], $now, $permit) !== null;
    }

    /** @param array<mixed> $state */
    private function placeOf(array $state, int $now, string $permit): ?int
    {
        foreach ($state as $place => [$id, $lapses]) {
            if ($id === $permit && $lapses > $now) {
                return $place;
            }
        }
        return null;
    }

    /**
     * No permit lasts longer than the time to live from now.
     *
     * @param array<mixed> $state
     * @return array<mixed>
     */
    private function shorten(array $state, int $now): array
    {
        $last = $now + $this->ttlUs;
        for ($place = count($state) - 1; $place >= 0 && $state[$place][1] > $last; $place--) {
            $state[$place][1] = $last;
        }
        return $state;
    }

    /**
     * @param array<mixed> $state
     * @return list<array{string, int, int}>
     */
    private function held(array $state, int $now): array
    {
        $first = 0;
        while (isset($state[$first]) && $state[$first][1] <= $now) {
            $first++;
        }
        return $first > 0 ? array_slice($state, $first) : $state;
    }
}
