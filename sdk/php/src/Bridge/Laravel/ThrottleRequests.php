<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Laravel;

use Closure;
use Illuminate\Cache\RateLimiter;
use Illuminate\Cache\RateLimiting\Unlimited;
use Illuminate\Http\Exceptions\HttpResponseException;
use Illuminate\Http\Exceptions\ThrottleRequestsException;
use Illuminate\Routing\Middleware\ThrottleRequests as Base;
use Sluicegate\Decision;
use Sluicegate\Gate;
use Sluicegate\Http\Refusal;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Mode;

/**
 * Laravel's `throttle`, decided in one step: `throttle:60,1` and `throttle:api` with `RateLimiter::for('api', …)`.
 *
 * Limits of one key are decided together, all or none; each key is one call. Several `throttle` middlewares, of one
 * route or of several, are decided separately, and share a budget if their windows are equally long. A limit with
 * `after(…)`, of later versions, counts a request if that function of the response returns true. Header fields are
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
        // Later versions of Laravel have limits that count a request by its response.
        $counted = static fn (object $limit): bool => ($limit->afterCallback ?? null) !== null;
        $after = array_filter($limits, $counted);
        foreach ($after as $limit) {
            $this->passed($request, [self::secondsOf($limit) => $limit], (string) $limit->key, false);
        }
        $decisions = [];
        foreach ($this->byKey(array_diff_key($limits, $after)) as $key => $same) {
            $decisions[] = $this->passed($request, $same, (string) $key, true);
        }
        $response = $next($request);
        foreach ($after as $limit) {
            $limiter = $this->limiterOf([self::secondsOf($limit) => $limit]);
            $counts = ($limit->afterCallback)($response);
            $decisions[] = $counts ? $limiter->check((string) $limit->key) : $limiter->peek((string) $limit->key);
        }
        foreach ($decisions as $decision) {
            $response = $this->addHeaders($response, $decision->limit, $decision->remaining);
        }
        return $response;
    }

    /**
     * Returns the limiter of the limits of a key.
     *
     * @param array<int, object> $same by the length of their windows in s
     */
    private function limiterOf(array $same): Limiter
    {
        $limit = Limit::rules(array_map(self::rule(...), array_keys($same), array_column($same, 'maxAttempts')));
        return $this->gate->limit(self::NAME . implode('-', array_keys($same)), $limit);
    }

    /**
     * Returns the decision that allows a request; throws the response if it is refused.
     *
     * @param array<int, object> $same the limits of a key, by the length of their windows in s
     * @param bool $counts whether the request counts now
     */
    private function passed(mixed $request, array $same, string $key, bool $counts): Decision
    {
        foreach ($same as $seconds => $none) {
            if ($none->maxAttempts < 1) {
                throw $this->refusal($request, $none, 0, $seconds);
            }
        }
        $limiter = $this->limiterOf($same);
        $decision = $counts ? $limiter->check($key) : $limiter->peek($key);
        if ($decision->allowed) {
            return $decision;
        }
        if ($decision->mode === Mode::Deny) {
            throw RateLimit::exception(Refusal::of($decision));
        }
        $seconds = (int) substr($decision->rule, strlen('every-'));
        $retry = $decision->retryAfterSeconds() ?? $seconds;
        throw $this->refusal($request, $same[$seconds], $decision->limit, $retry);
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
            $seconds = self::secondsOf($limit);
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

    /** Returns the length of a limit's window in s. */
    private static function secondsOf(object $limit): int
    {
        return max((int) ($limit->decaySeconds ?? 60 * $limit->decayMinutes), 1);
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
