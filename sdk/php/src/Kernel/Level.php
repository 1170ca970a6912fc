<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * The primitive of `token_bucket`, `leaky_bucket`, `smooth_bursty` and `smooth_warmup`: use drains at a steady rate.
 *
 * It counts in units, `perPermit` of which are one permit, so that nothing is rounded: `spec/failure.md`, A level.
 * A state is `[used, at]`: units in use as of an instant.
 *
 * @internal
 */
final class Level extends Primitive
{
    /** Units that drain each µs where the time between two permits is a double. */
    private const SMOOTH_TICKS = 1024;
    private const DEPTH_MAX = 1 << 52;

    /** A number of units that no level reaches. */
    private const TOO_MANY = 1 << 62;

    /** Length of a tick. */
    private readonly int $tickUs;
    /** Units that drain at each tick. */
    private readonly int $perTick;
    /** Units of one permit. */
    private readonly int $perPermit;
    /** Units of a full bucket. */
    private readonly int $depth;
    /** Units in use of a new key. */
    private readonly int $fresh;
    /** True if a whole period drains at its end. */
    private readonly bool $stepped;
    /** Units above which a request that passes waits; null: none waits. */
    private readonly ?int $free;
    /** True if a request of any cost passes when no more than the depth is in use. */
    public readonly bool $afterwards;

    /**
     * The level of a rule's code and numbers (`spec/redis.md`, Rules).
     *
     * @param list<float> $n
     */
    public function __construct(int $limit, int $code, array $n)
    {
        parent::__construct($limit);
        $this->afterwards = $code === 2 || $code === 3;
        $this->stepped = $code === 1 && $n[6] === 1.0;
        // Where the time between two permits is a double, a permit has the units that drain in it, rounded up.
        [$this->tickUs, $this->perTick, $this->perPermit, $this->depth] = array_map(intval(...), match ($code) {
            2 => [1, $n[0], $n[1], min($n[2] * $n[1], self::DEPTH_MAX)],
            3 => [1, self::SMOOTH_TICKS, ceil(min($n[0] * self::SMOOTH_TICKS, self::DEPTH_MAX)), 0],
            default => array_slice($n, 0, 4),
        });
        $this->fresh = match ($code) {
            1 => (int) $n[5],
            2 => $this->depth,
            default => 0,
        };
        $free = $code === 4 && $n[5] === 1.0 ? (int) $n[7] : $this->depth;
        $this->free = $code === 4 ? $free : null;
    }

    public function check(?array $state, int $now, KernelRequest $request): array
    {
        if ($request->cost > $this->limit && !$this->afterwards) {
            return [null, self::NEVER];
        }
        [$used, $at] = $this->at($state, $now);
        $units = $this->units($request->cost);
        // Above 2^53 units the numbers would not be exact in all languages.
        $retry = $this->until($used + $units - self::UNITS_MAX, $at, $now);
        if ($this->free !== null) {
            $wait = $this->until($used - $this->free, $at, $now);
            $retry = max($retry, $this->until($used + $units - $this->depth, $at, $now));
            $retry = $request->maxWaitUs === null ? $retry : max($retry, $wait - $request->maxWaitUs);
        } else {
            $wait = $this->until($used - $this->depth + ($this->afterwards ? 0 : $units), $at, $now);
            $retry = max($retry, $wait - ($request->maxWaitUs ?? 0));
        }
        return $retry <= 0 ? [$wait, 0] : [null, $retry];
    }

    public function charge(?array $state, int $now, KernelRequest $request): array
    {
        [$used, $at] = $this->at($state, $now);
        if ($this->tickUs !== 1 && !$this->stepped && $used < $this->perTick) {
            // The current tick will drain more than is in use: of its time so far, only the part that emptied the
            // bucket counts.
            $at = max($at, $now - self::mulDiv($used, $this->tickUs, $this->perTick));
        }
        return [min($used + $this->units($request->cost), self::UNITS_MAX), $at];
    }

    public function firstSeen(int $now): ?array
    {
        return $this->fresh === 0 || $this->afterwards ? null : [$this->fresh, $now];
    }

    public function left(?array $state, int $now): int
    {
        return intdiv(max($this->depth - $this->at($state, $now)[0], 0), $this->perPermit);
    }

    public function available(?array $state, int $now): int
    {
        $passesAny = $this->afterwards && $this->at($state, $now)[0] <= $this->depth;
        return $passesAny ? self::UNITS_MAX : $this->left($state, $now);
    }

    public function fullAfter(?array $state, int $now): int
    {
        return $this->until(...$this->at($state, $now), now: $now);
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$used, $at] = $this->at($state, $now);
        $back = min($this->units($cost), $used);
        return [[$used - $back, $at], self::divCeil($back, $this->perPermit)];
    }

    public function rewind(array $state, int $now): array
    {
        return [$state[0], min($state[1], $now)];
    }

    public function used(?array $state, int $now): int
    {
        return self::divCeil($this->at($state, $now)[0], $this->perPermit);
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [min($this->units($used), self::UNITS_MAX), $now];
    }

    /** Returns the permits that the two `smooth_*` have in use when nothing is stored and nothing is owed. */
    public function unstored(): int
    {
        return self::divCeil($this->depth, $this->perPermit);
    }

    /** Returns the units of permits. */
    private function units(int $permits): int
    {
        return (int) min($permits * $this->perPermit, self::TOO_MANY);
    }

    /**
     * Returns the units in use at `$now` and their instant; a new key has `fresh` ones. A clock set back drains
     * nothing.
     *
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

    /** Returns the µs until so many units have drained, rounded up. */
    private function until(int $units, int $at, int $now): int
    {
        if ($units <= 0) {
            return 0;
        }
        $span = self::divCeil($units, $this->perTick) * $this->tickUs - max($now - $at, 0);
        return $span < 0 ? 0 : (int) min($span, self::SPAN_MAX_US);
    }
}
