<?php

declare(strict_types=1);

namespace Sluicegate;

/**
 * The time of this process.
 */
interface Clock
{
    /** µs since 1970. */
    public function nowUs(): int;

    /** Lets `$us` µs pass. */
    public function sleep(int $us): void;
}
