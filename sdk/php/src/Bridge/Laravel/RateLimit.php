<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Closure;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Response;
use InvalidArgumentException;
use Sluicegate\Decision;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Http\BadRequest;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Key;
use Sluicegate\Http\Refusal;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Limiter;

/**
 * The middleware `sluicegate:POLICY,BY`: `by` is `user` (for guests, the address), `ip`, or `all`. A request without
 * such a key is a bad request (400); with `sluicegate:POLICY,BY,shared` all of them share one budget.
 *
 * The address is that of Laravel's `$request->ip()`, so Laravel's trusted proxies apply.
 */
final class RateLimit
{
    public function __construct(private readonly Gate $gate)
    {
    }

    /**
     * @param \Illuminate\Http\Request $request
     * @return \Symfony\Component\HttpFoundation\Response
     */
    public function handle($request, Closure $next, string $policy, string $by = 'user', string $without = '')
    {
        $limiter = $this->gate->policy($policy);
        return self::pass($request, $next, $limiter, $by, $without, $limiter->check(...));
    }

    /**
     * Returns the response of the application, if a request is allowed.
     *
     * @internal
     * @param \Illuminate\Http\Request $request
     * @param Closure(string|null): Decision $decide decides about the key of the request
     * @return \Symfony\Component\HttpFoundation\Response
     * @throws HttpResponseException if it is not
     */
    public static function pass(
        $request,
        Closure $next,
        Limiter $limiter,
        string $by,
        string $without,
        Closure $decide,
    ) {
        if (!in_array($by, ['user', 'ip', 'all'], true)) {
            throw new InvalidArgumentException("sluicegate: `$by` is none of `user`, `ip`, `all`");
        }
        if (!in_array($without, ['', 'shared'], true)) {
            throw new InvalidArgumentException("sluicegate: `$without` is not `shared`");
        }
        try {
            $decision = $decide(self::key($request, $limiter, $by, $without === 'shared'));
        } catch (BadRequest | StoreUnavailable | ServerProblem $e) {
            throw self::exception(Refusal::undecided($e));
        }
        if (!$decision->allowed) {
            throw self::exception(Refusal::of($decision));
        }
        $decision->pause();
        $response = $next($request);
        $response->headers->add(Headers::of($decision));
        return $response;
    }

    /**
     * @param \Illuminate\Http\Request $request
     * @throws BadRequest if the request has no key
     */
    private static function key($request, Limiter $limiter, string $by, bool $shared): ?string
    {
        $user = $by === 'user' ? $request->user() : null;
        if ($by === 'all' || $user !== null) {
            return $user === null ? null : 'user:' . $user->getAuthIdentifier();
        }
        return Key::remoteIp(shared: $shared)->of(new RequestFacts((string) $request->ip(), '', '', []), $limiter);
    }

    /** @internal */
    public static function exception(Refusal $refusal): HttpResponseException
    {
        return new HttpResponseException(new Response($refusal->body, $refusal->status, $refusal->headers));
    }
}
