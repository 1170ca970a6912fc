<?php

/**
 * The interface of PSR-20, which Debian does not package.
 */

declare(strict_types=1);

namespace Psr\Clock;

use DateTimeImmutable;

if (!interface_exists(ClockInterface::class)) {
    interface ClockInterface
    {
        public function now(): DateTimeImmutable;
    }
}
