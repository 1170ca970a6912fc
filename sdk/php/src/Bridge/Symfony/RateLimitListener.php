<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Decision;
use Sluicegate\Limiter;
use Symfony\Component\HttpFoundation\Request;

/**
 * Limits requests before a controller is called: `sluicegate.requests` of the configuration.
 *
 * @internal
 */
final class RateLimitListener extends RequestListener
{
    public const ATTRIBUTE = 'sluicegate';

    /** After the router (32), and before the firewall (8): a refused request costs no login. */
    private const PRIORITY = 24;

    /** @param list<array{string, Limiter, string, bool}> $limits as of a `RequestListener`, without a wait */
    public function __construct(array $limits)
    {
        parent::__construct($limits, self::ATTRIBUTE);
    }

    public static function getSubscribedEvents(): array
    {
        return ['kernel.request' => ['onRequest', self::PRIORITY], 'kernel.response' => 'onResponse'];
    }

    protected function decide(Request $request, Limiter $limiter, ?string $key, ?int $maxWaitUs): Decision
    {
        return $limiter->check($key);
    }
}
