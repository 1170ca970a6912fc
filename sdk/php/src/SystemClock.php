<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The clock of the machine.
 */
final class SystemClock implements Clock
{
    public function nowUs(): int
    {
        return (int) (microtime(true) * 1_000_000);
    }

    public function sleep(int $us): void
    {
        if ($us > 0) {
            usleep($us);
        }
    }
}
