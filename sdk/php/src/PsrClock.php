<?php

declare(strict_types=1);

namespace Sluicegate;

use Psr\Clock\ClockInterface;

/**
 * A clock of PSR-20. It waits by the clock's own `sleep(seconds)`, which Symfony's clocks have, or by the machine's.
 */
final class PsrClock implements Clock
{
    public function __construct(private readonly ClockInterface $clock)
    {
    }

    /** The clock of this package that a clock of either kind is. */
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
