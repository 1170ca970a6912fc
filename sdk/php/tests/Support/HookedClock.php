<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Closure;
use Sluicegate\Clock;

/**
 * A clock of which each sleep is over at once, after it called a function with the number of the sleep, from 1 on.
 */
final class HookedClock implements Clock
{
    private int $nowUs;
    public int $sleeps = 0;

    /** @param Closure(int): mixed $onSleep */
    public function __construct(private readonly Closure $onSleep)
    {
        $this->nowUs = (int) (microtime(true) * 1e6);
    }

    public function nowUs(): int
    {
        return $this->nowUs;
    }

    public function sleep(int $us): void
    {
        $this->nowUs += $us;
        ($this->onSleep)(++$this->sleeps);
    }
}
