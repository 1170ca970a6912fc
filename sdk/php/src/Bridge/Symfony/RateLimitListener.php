<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

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
 * Limits requests before a controller is called: `sluicegate.requests` of the configuration.
 *
 * The address is that of Symfony's `getClientIp()`, so Symfony's trusted proxies apply. The decision is in the
 * attribute `sluicegate` of the request.
 *
 * @internal
 */
final class RateLimitListener implements EventSubscriberInterface
{
    public const ATTRIBUTE = 'sluicegate';

    /** After the router (32), and before the firewall (8): a refused request costs no login. */
    private const PRIORITY = 24;

    /**
     * @param list<array{string, Limiter, string, bool}> $limits a regular expression of paths, the limiter, the key
     *   (`address`, `all` or `header:NAME`), and whether requests without that share one budget; the first whose path
     *   fits limits a request
     */
    public function __construct(private readonly array $limits)
    {
    }

    public static function getSubscribedEvents(): array
    {
        return ['kernel.request' => ['onRequest', self::PRIORITY], 'kernel.response' => 'onResponse'];
    }

    public function onRequest(RequestEvent $event): void
    {
        if (!$event->isMainRequest()) {
            return;
        }
        $request = $event->getRequest();
        // As the router and the firewall read it.
        $requestPath = rawurldecode($request->getPathInfo());
        foreach ($this->limits as [$path, $limiter, $key, $shared]) {
            // An expression that fails at a path limits it, too.
            if (preg_match("\1$path\1", $requestPath) !== 0) {
                $refused = $this->refused($request, $limiter, $key, $shared);
                if ($refused !== null) {
                    $event->setResponse($refused);
                }
                return;
            }
        }
    }

    public function onResponse(ResponseEvent $event): void
    {
        $decision = $event->getRequest()->attributes->get(self::ATTRIBUTE);
        if ($decision !== null && $decision->allowed && $event->isMainRequest()) {
            $event->getResponse()->headers->add(Headers::of($decision));
        }
    }

    /** Returns the response to a refused request; null if the request may go on. */
    private function refused(Request $request, Limiter $limiter, string $key, bool $shared): ?Response
    {
        try {
            $decision = $limiter->check(self::key($request, $limiter, $key, $shared));
        } catch (BadRequest | StoreUnavailable | ServerProblem $e) {
            return self::response(Refusal::undecided($e));
        }
        $request->attributes->set(self::ATTRIBUTE, $decision);
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
