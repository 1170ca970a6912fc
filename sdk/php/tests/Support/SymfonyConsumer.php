<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Bridge\Symfony\SluicegateLimiterFactory;
use Sluicegate\Gate;
use Sluicegate\Limiter;

/**
 * A service that Symfony gives limiters: by an id, and by the names of parameters.
 */
final class SymfonyConsumer
{
    public function __construct(
        public readonly object $byId,
        public readonly SluicegateLimiterFactory $apiLimiter,
        public readonly Limiter $signUpLimiter,
        public readonly Gate $gate,
    ) {
    }
}
