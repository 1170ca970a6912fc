<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

// Symfony has an interface for factories from 7.3 on.
if (interface_exists(RateLimiterFactoryInterface::class)) {
    /** The interface of Symfony, by a name that there is in all versions. */
    interface LimiterFactory extends RateLimiterFactoryInterface
    {
    }
} else {
    /** The same method without that interface. */
    interface LimiterFactory // phpcs:ignore PSR1.Classes.ClassDeclaration.MultipleClasses
    {
        public function create(?string $key = null): LimiterInterface;
    }
}
