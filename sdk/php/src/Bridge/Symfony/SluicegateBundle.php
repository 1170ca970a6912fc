<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Symfony\Component\HttpKernel\Bundle\Bundle;

/**
 * The bundle for Symfony: a `Gate`, and a service `limiter.NAME` for each entry of `sluicegate.limiters`.
 *
 * DependencyInjection\Configuration lists what can be configured.
 */
final class SluicegateBundle extends Bundle
{
}
