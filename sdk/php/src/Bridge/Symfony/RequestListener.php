<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Decision;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Http\BadRequest;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Refusal;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Limiter;
use Symfony\Component\EventDispatcher\EventSubscriberInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;

/**
 * The common steps of the listeners: all but the decision on a request.
 *
 * The address is that of Symfony's `getClientIp()`, so Symfony's trusted proxies apply. The decision is in an attribute
 * of the request.
 *
 * @internal
 */
abstract class RequestListener implements EventSubscriberInterface
{
    /**
     * @param list<array{0: string, 1: Limiter, 2: string, 3: bool, 4?: int|null}> $limits a regular expression of
     *   paths, the limiter, the key (`address`, `all` or `header:NAME`), whether requests without that share one
     *   budget, and the longest wait in µs; the first whose path fits limits a request
     * @param string $attribute of requests, with the decision
     */
    public function __construct(private readonly array $limits, private readonly string $attribute)
    {
    }

    /** Decides about the key of a request. */
    abstract protected function decide(Request $request, Limiter $limiter, ?string $key, ?int $maxWaitUs): Decision;

    public function onRequest(RequestEvent $event): void
    {
        if (!$event->isMainRequest()) {
            return;
        }
        $request = $event->getRequest();
        // As the router and the firewall read it.
        $requestPath = rawurldecode($request->getPathInfo());
        foreach ($this->limits as $limit) {
            [$path, $limiter, $key, $shared] = $limit;
            // An expression that fails at a path limits it, too.
            if (preg_match("\1$path\1", $requestPath) !== 0) {
                $refused = $this->refused($request, $limiter, $key, $shared, $limit[4] ?? null);
                if ($refused !== null) {
                    $event->setResponse($refused);
                }
                return;
            }
        }
    }

    public function onResponse(ResponseEvent $event): void
    {
        $decision = $event->getRequest()->attributes->get($this->attribute);
        if ($decision !== null && $decision->allowed && $event->isMainRequest()) {
            $event->getResponse()->headers->add(Headers::of($decision));
        }
    }

    /** Returns the response to a refused request; null if the request may go on. */
    private function refused(
        Request $request,
        Limiter $limiter,
        string $key,
        bool $shared,
        ?int $maxWaitUs,
    ): ?Response {
        try {
            $key = self::key($request, $limiter, $key, $shared);
            $decision = $this->decide($request, $limiter, $key, $maxWaitUs);
        } catch (BadRequest | StoreUnavailable | ServerProblem $e) {
            return self::response(Refusal::undecided($e));
        }
        $request->attributes->set($this->attribute, $decision);
        if (!$decision->allowed) {
            return self::response(Refusal::of($decision));
        }
        $decision->pause();
        return null;
    }

    /** @throws BadRequest if a header field that the key names is there twice, or the request has no key */
    private static function key(Request $request, Limiter $limiter, string $key, bool $shared): ?string
    {
        if ($key === 'all') {
            return null;
        }
        if ($key !== 'address') {
            return Key::attributes([$key], shared: $shared)->of(RequestFacts::ofSymfony($request), $limiter);
        }
        $client = new RequestFacts((string) $request->getClientIp(), '', '', []);
        return Key::remoteIp(shared: $shared)->of($client, $limiter);
    }

    private static function response(Refusal $refusal): Response
    {
        return new Response($refusal->body, $refusal->status, $refusal->headers);
    }
}
