<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use Closure;
use Psr\Http\Message\ResponseFactoryInterface;
use Psr\Http\Message\ResponseInterface;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;
use Sluicegate\Decision;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Limiter;

/**
 * The common steps of the middlewares of PSR-15: all but the decision on a request.
 *
 * @internal
 */
final class MiddlewareSteps
{
    /** @var Closure(Decision, ServerRequestInterface, RequestHandlerInterface): (ResponseInterface|null)|null */
    private readonly ?Closure $fallback;

    public function __construct(
        private readonly Limiter $limiter,
        private readonly Key $key,
        private readonly ResponseFactoryInterface $responseFactory,
        ?callable $fallback,
        private readonly bool $passUnavailable,
        private readonly bool $oldHeaders,
    ) {
        $this->fallback = $fallback === null ? null : $fallback(...);
    }

    /**
     * Answers a request: by its handler if it is allowed.
     *
     * @param callable(string|null): Decision $decide decides about the key of the request
     */
    public function process(
        ServerRequestInterface $request,
        RequestHandlerInterface $handler,
        callable $decide,
    ): ResponseInterface {
        try {
            $decision = $decide($this->key->of(RequestFacts::ofPsr7($request), $this->limiter, $request));
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
