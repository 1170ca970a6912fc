<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * `smooth_bursty`: any cost passes if nothing is owed, and the next request pays for it.
 *
 * A state is `[balance, at]`; the balance is a double, and what is done with it is done in this order.
 */
final class SmoothBursty implements Algorithm
{
    /**
     * @param float $permits permits of the rate, a whole number
     * @param float $periodUs period of the rate, a whole number
     * @param float $maxStored most permits stored
     */
    public function __construct(
        private readonly float $permits,
        private readonly float $periodUs,
        private readonly float $maxStored,
    ) {
    }

    public function limit(): int
    {
        return max((int) floor($this->maxStored), 1);
    }

    public function check(?array $state, int $now, int $cost, ?int $maxWait): array
    {
        $wait = $this->waitFor($state, $now);
        $maxWait ??= 0;
        return $wait > $maxWait ? [null, $wait - $maxWait] : [$wait, 0];
    }

    public function charge(?array $state, int $now, int $cost, string $permit): array
    {
        return [$this->balanceAt($state, $now, 0) - $cost, $now];
    }

    public function firstSeen(int $now): ?array
    {
        return null;
    }

    public function available(?array $state, int $now): int
    {
        return $this->balanceAt($state, $now, 0) < 0.0 ? 0 : self::UNITS_MAX;
    }

    public function status(?array $state, int $now): array
    {
        $balance = $this->balanceAt($state, $now, 0);
        return [$balance > 0.0 ? (int) floor($balance) : 0, $this->timeFor($this->maxStored - $balance)];
    }

    public function refund(array $state, int $now, int $cost): array
    {
        $balance = $this->balanceAt($state, $now, 0);
        $refunded = min($balance + $cost, $this->maxStored);
        // The difference of two doubles may be a little more than what was added.
        return [[$refunded, $now], min((int) Num::ceil($refunded - $balance), $cost)];
    }

    public function rewind(array $state, int $now): array
    {
        return $state[1] > $now ? [$state[0], $now] : $state;
    }

    public function used(?array $state, int $now): int
    {
        return (int) min(Num::ceil($this->maxStored - $this->balanceAt($state, $now, 0)), self::UNITS_MAX);
    }

    public function withUsed(int $now, int $used): ?array
    {
        return [$this->maxStored - $used, $now];
    }

    public function convert(array $state, int $now, Algorithm $old): array
    {
        assert($old instanceof self);
        // What is stored is rescaled, and a debt keeps its time.
        $balance = $old->balanceAt($state, $now, 0);
        if ($balance >= 0.0) {
            $balance = $balance * $this->maxStored / $old->maxStored;
        } else {
            $balance = ($balance * $old->periodUs / $old->permits) * $this->permits / $this->periodUs;
        }
        return [$balance, $now];
    }

    public function rescale(array $state, int $now, callable $scaled, Algorithm $old): ?array
    {
        // The conversion keeps the part of a full store to the last bit.
        return $this->convert($state, $now, $old);
    }

    /**
     * The balance `$wait` after `$now`.
     *
     * @param array<mixed>|null $state
     */
    private function balanceAt(?array $state, int $now, int $wait): float
    {
        if ($state === null) {
            return 0.0;
        }
        $elapsed = (float) (max($now - $state[1], 0) + $wait);
        $units = Num::round($state[0] * $this->periodUs) + $elapsed * $this->permits;
        return min($units / $this->periodUs, $this->maxStored);
    }

    private function timeFor(float $permits): int
    {
        return Num::span(Num::ceil($permits * $this->periodUs / $this->permits));
    }

    /**
     * Until the first moment at which the balance is not negative.
     *
     * @param array<mixed>|null $state
     */
    private function waitFor(?array $state, int $now): int
    {
        $balance = $this->balanceAt($state, $now, 0);
        if ($balance >= 0.0) {
            return 0;
        }
        // Doubles round one way from a debt to a time and another from a time to permits: what the balance will be
        // then is what counts, so a request that comes after the wait is not refused.
        $wait = $this->timeFor(-$balance);
        while ($wait < self::SPAN_MAX_US && $this->balanceAt($state, $now, $wait) < 0.0) {
            $wait++;
        }
        while ($this->balanceAt($state, $now, $wait - 1) >= 0.0) {
            $wait--;
        }
        return $wait;
    }
}
