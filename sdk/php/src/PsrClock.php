<?php

declare(strict_types=1);

namespace Sluicegate;

use Psr\Clock\ClockInterface;

/**
 * Adapts a PSR-20 clock. It waits with the clock's own `sleep(seconds)`, which Symfony's clocks have, else with
 * `usleep`.
 *
 * @internal
 */
final class PsrClock implements Clock
{
    public function __construct(private readonly ClockInterface $clock)
    {
    }

    /** Returns `$clock` itself, or an adapter of a PSR-20 clock. */
    public static function of(Clock|ClockInterface $clock): Clock
    {
        return $clock instanceof Clock ? $clock : new self($clock);
    }

    public function nowUs(): int
    {
        return (int) $this->clock->now()->format('Uu');
    }

    public function sleep(int $us): void
    {
        if ($us > 0) {
            method_exists($this->clock, 'sleep') ? $this->clock->sleep($us / 1e6) : usleep($us);
        }
    }
}
