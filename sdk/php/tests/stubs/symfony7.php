<?php

/**
 * The interface that Symfony has from 7.3 on; Debian's version does not have it.
 */

declare(strict_types=1);

namespace Symfony\Component\RateLimiter;

interface RateLimiterFactoryInterface
{
    public function create(?string $key = null): LimiterInterface;
}
