<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Closure;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\MiddlewareInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Decision;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Limiter;

/**
 * Limits requests: middleware of PSR-15. It needs the interfaces of PSR-7, -15 and -17.
 */
final class RateLimitMiddleware implements MiddlewareInterface
{
    /** @var Closure(Decision, ServerRequestInterface, RequestHandlerInterface): (ResponseInterface|null)|null */
    private readonly ?Closure $fallback;

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
        private readonly Key $key,
        private readonly ResponseFactoryInterface $responseFactory,
        private readonly int $cost = 1,
        ?callable $fallback = null,
        private readonly bool $passUnavailable = false,
        private readonly bool $oldHeaders = false,
    ) {
        $this->fallback = $fallback === null ? null : $fallback(...);
    }

    public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
    {
        try {
            $key = $this->key->of(RequestFacts::ofPsr7($request), $this->limiter, $request);
            $decision = $this->limiter->check($key, $this->cost);
        } catch (BadRequest $e) {
            return $this->response(Refusal::undecided($e));
        } catch (StoreUnavailable | ServerProblem $e) {
            $passes = $this->passUnavailable && ($e instanceof ServerProblem
                ? $e->isOutage()
                : !$e instanceof NothingPublished);
            return $passes ? $handler->handle($request) : $this->response(Refusal::undecided($e));
        }
        if (!$decision->allowed) {
            $answer = $this->fallback === null ? null : ($this->fallback)($decision, $request, $handler);
            return $answer ?? $this->response(Refusal::of($decision, $this->oldHeaders));
        }
        $decision->pause();
        $response = $handler->handle($request);
        foreach (Headers::of($decision, $this->oldHeaders) as $name => $value) {
            $response = $response->withHeader($name, $value);
        }
        return $response;
    }

    private function response(Refusal $refusal): ResponseInterface
    {
        $response = $this->responseFactory->createResponse($refusal->status);
        foreach ($refusal->headers as $name => $value) {
            $response = $response->withHeader($name, $value);
        }
        $response->getBody()->write($refusal->body);
        return $response;
    }
}
