<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `smooth_warmup`: like `smooth_bursty`, but stored permits above a threshold take longer.
 *
 * A state is `[stored, debt_us, at]`; the first two are doubles, and what is done with them is done in this order.
 */
final class SmoothWarmup implements Algorithm
{
    /**
     * @param float $stable µs between permits when warm
     * @param float $threshold stored permits above which permits take longer
     * @param float $maxStored most permits stored
     * @param float $slope how much longer, for each permit above the threshold
     * @param float $cooldown µs of idle time that store a permit
     */
    public function __construct(
        private readonly float $stable,
        private readonly float $threshold,
        private readonly float $maxStored,
        private readonly float $slope,
        private readonly float $cooldown,
    ) {
    }

    public function limit(): int
    {
        return max((int) floor(min($this->maxStored, 4503599627370496.0)), 1);
    }

    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        $wait = Num::span(Num::ceil($this->asOf($state, $now)[1]));
        $maxWait ??= 0;
        return $wait > $maxWait ? [null, $wait - $maxWait] : [$wait, 0];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        [$stored, $debt] = $this->asOf($state, $now);
        return [$stored - min((float) $cost, $stored), $debt + $this->timeToHandOut($stored, (float) $cost), $now];
    }

    public function firstSeen(int $now): ?array
    {
        return null;
    }

    public function available(?array $state, int $now): int
    {
        return $this->asOf($state, $now)[1] > 0.0 ? 0 : self::UNITS_MAX;
    }

    public function status(?array $state, int $now): array
    {
        [$stored, $debt] = $this->asOf($state, $now);
        $remaining = $debt > 0.0 ? 0 : (int) floor(min($stored, 4503599627370496.0));
        return [$remaining, Num::span(Num::ceil($debt + ($this->maxStored - $stored) * $this->cooldown))];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        [$stored, $debt] = $this->asOf($state, $now);
        $paid = min($debt, $cost * $this->stable);
        $left = max(min($cost - $paid / $this->stable, $this->maxStored - $stored), 0.0);
        $back = (int) min(Num::ceil($paid / $this->stable + $left), $cost);
        return [[$stored + $left, $debt - $paid, $now], $back];
    }

    public function rewind(array $state, int $now): array
    {
        return $state[2] > $now ? [$state[0], $state[1], $now] : $state;
    }

    public function used(?array $state, int $now): int
    {
        [$stored, $debt] = $this->asOf($state, $now);
        return (int) min(Num::ceil($this->maxStored - $stored + $debt / $this->stable), self::UNITS_MAX);
    }

    public function withUsed(int $now, int $used): ?array
    {
        $spent = min((float) $used, $this->maxStored);
        return [$this->maxStored - $spent, ($used - $spent) * $this->stable, $now];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        [$stored, $debt] = $old->asOf($state, $now);
        return [$stored * $this->maxStored / $old->maxStored, $debt, $now];
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        // The conversion keeps the part of a full store to the last bit.
        return $this->convert($state, $now, $old);
    }

    /**
     * @param array<mixed>|null $state
     * @return array{float, float}
     */
    private function asOf(?array $state, int $now): array
    {
        if ($state === null) {
            return [$this->maxStored, 0.0];
        }
        [$stored, $debt, $at] = $state;
        $elapsed = (float) max($now - $at, 0);
        if ($elapsed < $debt) {
            return [$stored, $debt - $elapsed];
        }
        $idle = $elapsed - $debt;
        return [min($stored + $idle / $this->cooldown, $this->maxStored), 0.0];
    }

    /** µs that it takes to hand out `$cost` permits when `$stored` are stored. */
    private function timeToHandOut(float $stored, float $cost): float
    {
        $fromStored = min($cost, $stored);
        $above = max($stored - $this->threshold, 0.0);
        $slow = min($fromStored, $above);
        $trapezoid = $slow * ($this->interval($above) + $this->interval($above - $slow)) / 2;
        return $trapezoid + ($fromStored - $slow) * $this->stable + ($cost - $fromStored) * $this->stable;
    }

    private function interval(float $above): float
    {
        return $this->stable + $above * $this->slope;
    }
}
