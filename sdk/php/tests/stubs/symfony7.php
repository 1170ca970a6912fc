<?php

/**
 * What Symfony has from 7.3 on, and Debian's has not.
 */

declare(strict_types=1);

namespace Symfony\Component\RateLimiter;

interface RateLimiterFactoryInterface
{
    public function create(?string $key = null): LimiterInterface;
}
