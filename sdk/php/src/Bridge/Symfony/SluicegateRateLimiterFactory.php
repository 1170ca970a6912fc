<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Symfony\Component\RateLimiter\RateLimiterFactoryInterface;

/**
 * The same factory under the interface that Symfony has from 7.3 on.
 */
final class SluicegateRateLimiterFactory extends SluicegateLimiterFactory implements RateLimiterFactoryInterface
{
}
