<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

use Sluicegate\Verb;

/**
 * `concurrency`: permits that are held until they are released, or until their time to live ends.
 *
 * A state is the list of its holders `[id, lapses, cost]`, in the order of the ends; an id is 16 bytes.
 *
 * @internal
 */
final class Concurrency extends Primitive
{
    /** @param int $queue the most requests that wait for a permit; here none do */
    public function __construct(int $limit, private readonly int $ttlUs, public readonly int $queue = 0)
    {
        parent::__construct($limit);
    }

    public function check(?array $state, int $now, KernelRequest $request): array
    {
        if ($request->cost > $this->limit || $this->placeOf($state ?? [], $now, $request->permit) !== null) {
            return [null, self::NEVER];
        }
        $held = $this->held($state ?? [], $now);
        $excess = array_sum(array_column($held, 2)) + $request->cost - $this->limit;
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

    public function charge(?array $state, int $now, KernelRequest $request): array
    {
        $held = $this->held($state ?? [], $now);
        $held[] = [$request->permit, $now + $this->ttlUs, $request->cost];
        return $held;
    }

    public function fullAfter(?array $state, int $now): int
    {
        return $state ? max($state[count($state) - 1][1] - $now, 0) : 0;
    }

    public function refund(array $state, int $now, int $cost): array
    {
        return [$state, 0];
    }

    /** No permit lasts longer than the time to live from now. */
    public function rewind(array $state, int $now): array
    {
        $last = $now + $this->ttlUs;
        for ($place = count($state) - 1; $place >= 0 && $state[$place][1] > $last; $place--) {
            $state[$place][1] = $last;
        }
        return $state;
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
     * Gives a permit back, or holds it for another time to live.
     *
     * @return array{array<mixed>, int|null} the state, and the permits that were held under that id; null: none
     */
    public function settle(array $state, int $now, KernelRequest $request): array
    {
        $place = $this->placeOf($state, $now, $request->permit);
        if ($place === null) {
            return [$state, null];
        }
        [[, , $granted]] = array_splice($state, $place, 1);
        if ($request->verb === Verb::Renew) {
            $state[] = [$request->permit, $now + $this->ttlUs, $granted];
        }
        return [$this->held($state, $now), $granted];
    }

    private function placeOf(array $state, int $now, string $permit): ?int
    {
        foreach ($state as $place => [$id, $lapses]) {
            if ($id === $permit && $lapses > $now) {
                return $place;
            }
        }
        return null;
    }

    /** @return list<array{string, int, int}> */
    private function held(array $state, int $now): array
    {
        $first = 0;
        while (isset($state[$first]) && $state[$first][1] <= $now) {
            $first++;
        }
        return $first > 0 ? array_slice($state, $first) : $state;
    }
}
