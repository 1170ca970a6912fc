<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

// Symfony has an interface for factories from 7.3 on.
if (interface_exists(RateLimiterFactoryInterface::class)) {
    /**
     * Symfony's interface, by a name that exists for all versions of Symfony.
     *
     * @internal
     */
    interface LimiterFactory extends RateLimiterFactoryInterface
    {
    }
} else {
    /**
     * A factory with the method of Symfony's interface, for versions without the interface.
     *
     * @internal
     */
    interface LimiterFactory // phpcs:ignore PSR1.Classes.ClassDeclaration.MultipleClasses
    {
        public function create(?string $key = null): LimiterInterface;
    }
}
