<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Decision;
use Sluicegate\Limiter;

/**
 * Limits requests: middleware of PSR-15. It needs the interfaces of PSR-7, -15 and -17.
 */
final class RateLimitMiddleware implements MiddlewareInterface
{
    private readonly MiddlewareSteps $steps;

    /**
     * @param int $cost permits of a request
     * @param callable|null $fallback answers refused requests, such as those whose policy has `degrade` with a tag or
     *   `divert`: it gets the decision, the request and the handler, and returns a response, or null to refuse
     * @param bool $passUnavailable whether requests pass while a server does not answer, or with a status of 500 and
     *   more; else they get 503, as they do for a wrong token, and where no policies are published. In direct mode
     *   `on_store_failure` of the policy decides
     * @param bool $oldHeaders whether `X-RateLimit-*` are sent, too
     */
    public function __construct(
        private readonly Limiter $limiter,
        Key $key,
        ResponseFactoryInterface $responseFactory,
        private readonly int $cost = 1,
        ?callable $fallback = null,
        bool $passUnavailable = false,
        bool $oldHeaders = false,
    ) {
        $this->steps = new MiddlewareSteps($limiter, $key, $responseFactory, $fallback, $passUnavailable, $oldHeaders);
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        return $this->steps->process($request, $handler, fn (?string $key): Decision =>
            $this->limiter->check($key, $this->cost));
    }
}
