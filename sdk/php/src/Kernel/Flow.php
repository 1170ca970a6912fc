<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * What flows out of a bucket per tick, and what one permit weighs. A level is `used` units as of the instant `at`.
 *
 * A state is `[used, at]`.
 */
final class Flow
{
    /**
     * @param int $tickUs length of a tick
     * @param int $perTick units that flow out per tick
     * @param int $perPermit units that a permit weighs
     * @param int $depth units of a full bucket
     * @param bool $stepped whether a whole period flows out at its end
     */
    public function __construct(
        public readonly int $tickUs,
        public readonly int $perTick,
        public readonly int $perPermit,
        public readonly int $depth,
        public readonly bool $stepped,
    ) {
    }

    /**
     * What is in use at `$now`. Time that went backwards carries nothing.
     *
     * @return array{int, int}
     */
    public function drain(int $used, int $at, int $now): array
    {
        $ticks = max($now - $at, 0);
        if ($this->tickUs !== 1) {
            $ticks = intdiv($ticks, $this->tickUs);
        }
        $carried = $ticks * $this->perTick; // a float above 64 bits, which is more than any level
        if ($carried >= $used) {
            return [0, $now];
        }
        return [$used - $carried, $at + $ticks * $this->tickUs];
    }

    /**
     * A drained level with `$units` more in use.
     *
     * @return array{int, int}
     */
    public function fill(int $used, int $at, int $now, int $units): array
    {
        if ($this->tickUs !== 1 && !$this->stepped && $used < $this->perTick) {
            // The running tick will carry more than is in use: of the time that it has run for, only as much counts
            // as emptied the bucket. The rest found nothing to carry.
            [$emptied] = Num::mulDiv($used, $this->tickUs, $this->perTick);
            $at = max($at, $now - (int) $emptied);
        }
        return [$used + $units, $at];
    }

    /** From `$now` until `$used` units of a drained level have flowed out, rounded up, capped. */
    public function timeToDrain(int|float $used, int $at, int $now): int
    {
        if ($used <= 0) {
            return 0;
        }
        $ticks = is_int($used) ? Num::divCeil($used, $this->perTick) : Num::ceil($used / $this->perTick);
        $span = ($ticks - 1) * $this->tickUs + ($this->tickUs - max($now - $at, 0));
        if ($span < 0) {
            return 0;
        }
        return $span < Algorithm::SPAN_MAX_US ? (int) $span : Algorithm::SPAN_MAX_US;
    }

    /**
     * A level under `$old` as one under this flow from `$now` on: of what was in use then, `$to` units for each
     * `$from` of the old flow, rounded up (against the caller).
     *
     * @return array{int, int}
     */
    public function takeOver(int $used, int $at, self $old, int $now, int $to, int $from): array
    {
        [$used, $at] = $old->drain($used, $at, $now);
        [$converted, $left] = Num::mulDiv($used, $to, $from);
        if ($left > 0) {
            $converted++;
        }
        // Permits that come together come when they were due, however many they are by then. Any other part of a
        // tick that was not counted yet counts for nothing when the tick changes.
        $countsOn = $this->tickUs === $old->tickUs && $this->stepped === $old->stepped
            && ($this->stepped || ($this->perTick === $old->perTick && $this->perPermit === $old->perPermit));
        return [(int) min($converted, Algorithm::UNITS_MAX), $countsOn ? $at : $now];
    }

    /** Whole permits that fit beside `$used` units. */
    public function left(int $used): int
    {
        return $used < $this->depth ? intdiv($this->depth - $used, $this->perPermit) : 0;
    }
}
