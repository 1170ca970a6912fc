<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Limiter;
use Symfony\Component\RateLimiter\LimiterInterface;

/**
 * Makes limiters of Symfony of the budgets of a policy: the service `limiter.NAME` of the bundle.
 */
final class SluicegateLimiterFactory implements LimiterFactory
{
    public function __construct(private readonly Limiter $limiter)
    {
    }

    /** Returns the limiter of a key; null: the shared budget. */
    public function create(?string $key = null): LimiterInterface
    {
        return new SluicegateLimiter($this->limiter, $key);
    }
}
