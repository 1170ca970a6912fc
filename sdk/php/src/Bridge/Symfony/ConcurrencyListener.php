<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use Sluicegate\Decision;
use Sluicegate\Http\RequestPermit;
use Sluicegate\Limiter;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Event\FinishRequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\Event\TerminateEvent;
use WeakMap;

/**
 * Limits how many requests are handled at once: `sluicegate.concurrency` of the configuration.
 *
 * A request holds its permit until its response was sent (`kernel.terminate`), or until an exception that nothing
 * answers; at most until the process ends. Caches ask the kernel with a copy of the request, so that only the response
 * is the same at the end: the permit goes over to it.
 *
 * @internal
 */
final class ConcurrencyListener extends RequestListener
{
    public const ATTRIBUTE = 'sluicegate.concurrency';

    /** After the limits of rates (24): what they refuse takes no place. */
    private const PRIORITY = 23;

    /** After all that replace the response. */
    private const LAST = -4096;

    /** Before other work after the response, which is not part of the request. */
    private const FIRST = 4096;

    /** @var WeakMap<Request|Response, RequestPermit> by its request, then by the response */
    private readonly WeakMap $permits;

    /** @param list<array{string, Limiter, string, bool, int|null}> $limits as of a `RequestListener` */
    public function __construct(array $limits)
    {
        parent::__construct($limits, self::ATTRIBUTE);
        $this->permits = new WeakMap();
    }

    public static function getSubscribedEvents(): array
    {
        return [
            'kernel.request' => ['onRequest', self::PRIORITY],
            'kernel.response' => [['onResponse'], ['onLastResponse', self::LAST]],
            'kernel.finish_request' => 'onFinishRequest',
            'kernel.terminate' => ['onTerminate', self::FIRST],
        ];
    }

    public function onLastResponse(ResponseEvent $event): void
    {
        $request = $event->getRequest();
        if (isset($this->permits[$request])) {
            $this->permits[$event->getResponse()] = $this->permits[$request];
            unset($this->permits[$request]);
        }
    }

    /** Releases the permit of a request without a response: its exception leaves the kernel. */
    public function onFinishRequest(FinishRequestEvent $event): void
    {
        $this->release($event->getRequest());
    }

    public function onTerminate(TerminateEvent $event): void
    {
        $this->release($event->getResponse());
    }

    protected function decide(Request $request, Limiter $limiter, ?string $key, ?int $maxWaitUs): Decision
    {
        $this->permits[$request] = new RequestPermit($limiter);
        return $this->permits[$request]->acquire($key, 1, $maxWaitUs);
    }

    private function release(Request|Response $holder): void
    {
        if (isset($this->permits[$holder])) {
            $this->permits[$holder]->release();
            unset($this->permits[$holder]);
        }
    }
}
