<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Closure;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Response;
use InvalidArgumentException;
use Sluicegate\Exception\ServerProblem;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Http\Address;
use Sluicegate\Http\Headers;
use Sluicegate\Http\Refusal;

/**
 * The middleware `sluicegate:POLICY,BY`: `by` is `user` (for guests, the address), `ip`, or `all`.
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
    public function handle($request, Closure $next, string $policy, string $by = 'user')
    {
        $user = $by === 'user' ? $request->user() : null;
        $key = match (true) {
            $user !== null => 'user:' . $user->getAuthIdentifier(),
            $by === 'all' => null,
            $by === 'user', $by === 'ip' => Address::asKey((string) $request->ip()) ?: null,
            default => throw new InvalidArgumentException("sluicegate: `$by` is none of `user`, `ip`, `all`"),
        };
        try {
            $decision = $this->gate->policy($policy)->check($key);
        } catch (StoreUnavailable | ServerProblem $e) {
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

    /** @internal */
    public static function exception(Refusal $refusal): HttpResponseException
    {
        return new HttpResponseException(new Response($refusal->body, $refusal->status, $refusal->headers));
    }
}
