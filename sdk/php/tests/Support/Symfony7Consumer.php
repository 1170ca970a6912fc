<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

/**
 * A service that Symfony 7.3 gives a limiter by its interface.
 */
final class Symfony7Consumer
{
    public function __construct(public readonly RateLimiterFactoryInterface $apiLimiter)
    {
    }
}
