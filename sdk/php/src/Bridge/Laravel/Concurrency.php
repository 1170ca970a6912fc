<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Closure;
use Illuminate\Http\Exceptions\HttpResponseException;
use InvalidArgumentException;
use Sluicegate\Decision;
use Sluicegate\Gate;
use Sluicegate\Http\RequestPermit;
use Throwable;

/**
 * The middleware `sluicegate.concurrency:POLICY,BY,WITHOUT,MAX_WAIT_MS`, which limits how many requests are handled at
 * once, by a `concurrency` rule. `by` and `without` are those of `sluicegate`; `max_wait_ms` is the longest wait for a
 * permit, and this process waits, too.
 *
 * A request holds its permit until its response was sent (`terminate`), or until its exception; at most until the
 * process ends.
 */
final class Concurrency
{
    /** The attribute of requests with a list of their permits: Laravel terminates another object than it asked. */
    private const ATTRIBUTE = 'sluicegate.concurrency';

    /** 366 days, as the longest `max_wait` of a policy. */
    private const WAIT_MAX_MS = 31_622_400_000;

    public function __construct(private readonly Gate $gate)
    {
    }

    /**
     * @param \Illuminate\Http\Request $request
     * @return \Symfony\Component\HttpFoundation\Response
     */
    public function handle(
        $request,
        Closure $next,
        string $policy,
        string $by = 'user',
        string $without = '',
        string $maxWaitMs = '',
    ) {
        $waitUs = $maxWaitMs === '' ? null : self::waitUs($maxWaitMs);
        $limiter = $this->gate->policy($policy);
        $permit = new RequestPermit($limiter);
        $permits = $request->attributes->get(self::ATTRIBUTE, []);
        $request->attributes->set(self::ATTRIBUTE, [...$permits, $permit]);
        try {
            return RateLimit::pass($request, $next, $limiter, $by, $without, static fn (?string $key): Decision =>
                $permit->acquire($key, 1, $waitUs));
        } catch (HttpResponseException $e) {
            // A response, which ends with `terminate`.
            throw $e;
        } catch (Throwable $e) {
            $permit->release();
            throw $e;
        }
    }

    /**
     * Releases the permits, after the response was sent.
     *
     * @param \Illuminate\Http\Request $request
     * @param \Symfony\Component\HttpFoundation\Response $response
     */
    public function terminate($request, $response): void
    {
        foreach ($request->attributes->get(self::ATTRIBUTE, []) as $permit) {
            $permit->release();
        }
        $request->attributes->remove(self::ATTRIBUTE);
    }

    private static function waitUs(string $ms): int
    {
        $number = filter_var($ms, FILTER_VALIDATE_INT);
        return $number === false || $number < 0 || $number > self::WAIT_MAX_MS
            ? throw new InvalidArgumentException("sluicegate.concurrency: `$ms` is not a wait of 0 to 31622400000 ms")
            : 1000 * $number;
    }
}
