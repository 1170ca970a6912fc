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
use Throwable;

/**
 * Limits how many requests are handled at once, by a `concurrency` rule: middleware of PSR-15. It needs the interfaces
 * of PSR-7, -15 and -17.
 *
 * A request holds its permit until the body of its response was read to the end, or closed, or nobody has it any more;
 * until its exception; and at most until the process ends. A process that is killed leaves its permit to its `ttl`,
 * which should be longer than the longest request.
 */
final class ConcurrencyMiddleware implements MiddlewareInterface
{
    private readonly MiddlewareSteps $steps;

    /**
     * @param int $cost permits of a request
     * @param callable|null $fallback as of a `RateLimitMiddleware`
     * @param bool $passUnavailable as of a `RateLimitMiddleware`
     * @param bool $oldHeaders whether `X-RateLimit-*` are sent, too
     * @param int|null $maxWaitUs the longest wait for a permit, as of `Limiter::acquire`; this process waits, too
     */
    public function __construct(
        private readonly Limiter $limiter,
        Key $key,
        ResponseFactoryInterface $responseFactory,
        private readonly int $cost = 1,
        ?callable $fallback = null,
        bool $passUnavailable = false,
        bool $oldHeaders = false,
        private readonly ?int $maxWaitUs = null,
    ) {
        $this->steps = new MiddlewareSteps($limiter, $key, $responseFactory, $fallback, $passUnavailable, $oldHeaders);
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        $permit = new RequestPermit($this->limiter);
        try {
            $response = $this->steps->process($request, $handler, fn (?string $key): Decision =>
                $permit->acquire($key, $this->cost, $this->maxWaitUs));
            return PermitBody::hold($permit, $response);
        } catch (Throwable $e) {
            $permit->release();
            throw $e;
        }
    }
}
