<?php

declare(strict_types=1);

namespace Sluicegate\Testing;

use Sluicegate\Clock;

/**
 * A clock that tests move.
 */
final class ManualClock implements Clock
{
    /** @param int $nowUs µs since 1970; by default 2026-01-01 */
    public function __construct(private int $nowUs = 1_767_225_600_000_000)
    {
    }

    public function nowUs(): int
    {
        return $this->nowUs;
    }

    public function sleep(int $us): void
    {
        $this->nowUs += $us;
    }

    /** Sets it to an instant in µs since 1970. */
    public function setTo(int $nowUs): void
    {
        $this->nowUs = $nowUs;
    }

    /** Moves it on by seconds; a negative number moves it back. */
    public function advance(float $seconds): void
    {
        $this->nowUs += (int) round($seconds * 1_000_000);
    }
}
