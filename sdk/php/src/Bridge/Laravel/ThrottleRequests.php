<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Closure;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Unlimited;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Routing\Middleware\ThrottleRequests as Base;
use Sluicegate\Gate;
use Sluicegate\Http\Refusal;
use Sluicegate\Limit;
use Sluicegate\Mode;

/**
 * Laravel's `throttle`, decided in one step: `throttle:60,1` and `throttle:api` with `RateLimiter::for('api', …)`.
 *
 * Limits of one key are decided together, all or none; each key is one call. Several `throttle` middlewares, of one
 * route or of several, are decided separately, and share a budget if their windows are equally long. Header fields are
 * Laravel's. Without a decision the response is a 503.
 */
final class ThrottleRequests extends Base
{
    /** The prefix of names, before the windows in s: other windows need another budget, or calls would change rules. */
    private const NAME = 'laravel.throttle.';

    /** The largest limit of a rule; Laravel's may be larger. */
    private const LIMIT_MAX = 1 << 32;

    public function __construct(RateLimiter $limiter, private readonly Gate $gate)
    {
        parent::__construct($limiter);
    }

    /**
     * @param mixed $request
     * @param array<int, object> $limits
     * @return mixed
     */
    protected function handleRequest($request, Closure $next, array $limits)
    {
        $decisions = [];
        foreach ($this->byKey($limits) as $key => $same) {
            foreach ($same as $seconds => $none) {
                if ($none->maxAttempts < 1) {
                    throw $this->refusal($request, $none, 0, $seconds);
                }
            }
            $limit = Limit::rules(array_map(self::rule(...), array_keys($same), array_column($same, 'maxAttempts')));
            $decision = $this->gate->limit(self::NAME . implode('-', array_keys($same)), $limit)->check((string) $key);
            if (!$decision->allowed && $decision->mode === Mode::Deny) {
                throw RateLimit::exception(Refusal::of($decision));
            }
            if (!$decision->allowed) {
                $seconds = (int) substr($decision->rule, strlen('every-'));
                $retry = $decision->retryAfterSeconds() ?? $seconds;
                throw $this->refusal($request, $same[$seconds], $decision->limit, $retry);
            }
            $decisions[] = $decision;
        }
        $response = $next($request);
        foreach ($decisions as $decision) {
            $response = $this->addHeaders($response, $decision->limit, $decision->remaining);
        }
        return $response;
    }

    /**
     * Returns the limits of each key, by the length of their windows in s; of two with the same length, the smaller.
     *
     * @param array<int, object> $limits
     * @return array<string, array<int, object>>
     */
    private function byKey(array $limits): array
    {
        $byKey = [];
        foreach ($limits as $limit) {
            if ($limit instanceof Unlimited) {
                continue;
            }
            $seconds = max((int) ($limit->decaySeconds ?? 60 * $limit->decayMinutes), 1);
            $before = $byKey[$limit->key][$seconds] ?? null;
            if ($before === null || $limit->maxAttempts < $before->maxAttempts) {
                $byKey[$limit->key][$seconds] = $limit;
            }
        }
        foreach ($byKey as &$same) {
            ksort($same);
        }
        return $byKey;
    }

    private static function rule(int $seconds, int|string $maxAttempts): array
    {
        return ['name' => "every-{$seconds}s", 'fixed_window' => [
            'limit' => min((int) $maxAttempts, self::LIMIT_MAX), 'window' => "{$seconds}s", 'align' => 'first',
        ]];
    }

    private function refusal(
        mixed $request,
        object $limit,
        int $permits,
        int $retryAfter,
    ): HttpResponseException|ThrottleRequestsException {
        $headers = $this->getHeaders($permits, 0, $retryAfter);
        return is_callable($limit->responseCallback ?? null)
            ? new HttpResponseException(($limit->responseCallback)($request, $headers))
            : new ThrottleRequestsException('Too Many Attempts.', null, $headers);
    }
}
