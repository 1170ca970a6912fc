<?php

/**
 * The parts of Laravel 11 to 13 that differ from Debian's 8.83 and that the bridge extends or reads, with the
 * signatures of 13.26: no registry here has their packages.
 */

declare(strict_types=1);

namespace Illuminate\Cache\RateLimiting {
    class Limit
    {
        /** @var mixed */
        public $key;
        /** @var int */
        public $maxAttempts;
        /** @var int */
        public $decaySeconds;
        /** @var callable|null */
        public $afterCallback = null;
        /** @var callable|null */
        public $responseCallback;

        public function __construct(mixed $key = '', int $maxAttempts = 60, int $decaySeconds = 60)
        {
            [$this->key, $this->maxAttempts, $this->decaySeconds] = [$key, $maxAttempts, $decaySeconds];
        }
    }

    class GlobalLimit extends Limit
    {
    }

    class Unlimited extends GlobalLimit
    {
        public function __construct()
        {
            parent::__construct('', PHP_INT_MAX);
        }
    }
}

namespace Illuminate\Routing\Middleware {
    use Closure;
    use Illuminate\Cache\RateLimiter;
    use Illuminate\Cache\RateLimiting\Unlimited;
    use Symfony\Component\HttpFoundation\Response;

    class ThrottleRequests
    {
        /** @var RateLimiter */
        protected $limiter;
        /** @var bool */
        protected static $shouldHashKeys = true;

        public function __construct(RateLimiter $limiter)
        {
            $this->limiter = $limiter;
        }

        /**
         * @param mixed $name
         * @return string
         */
        public static function using($name)
        {
            return static::class . ":$name";
        }

        /**
         * @param mixed $request
         * @param mixed $maxAttempts
         * @param mixed $decayMinutes
         * @param mixed $prefix
         * @return mixed
         */
        public function handle($request, Closure $next, $maxAttempts = 60, $decayMinutes = 1, $prefix = '')
        {
            $limiter = is_string($maxAttempts) ? $this->limiter->limiter($maxAttempts) : null;
            if ($limiter !== null) {
                return $this->handleRequestUsingNamedLimiter($request, $next, (string) $maxAttempts, $limiter);
            }
            return $this->handleRequest($request, $next, [(object) [
                'key' => "{$prefix}signature", 'maxAttempts' => (int) $maxAttempts,
                'decaySeconds' => 60 * $decayMinutes, 'afterCallback' => null, 'responseCallback' => null,
            ]]);
        }

        /**
         * @param mixed $request
         * @param mixed $limiterName
         * @return mixed
         */
        protected function handleRequestUsingNamedLimiter($request, Closure $next, $limiterName, Closure $limiter)
        {
            $limits = $limiter($request);
            return $limits instanceof Unlimited ? $next($request) : $this->handleRequest($request, $next, array_map(
                static fn (object $limit): object => (object) [
                    'key' => md5($limiterName . $limit->key), 'maxAttempts' => $limit->maxAttempts,
                    'decaySeconds' => $limit->decaySeconds, 'afterCallback' => $limit->afterCallback,
                    'responseCallback' => $limit->responseCallback,
                ],
                is_array($limits) ? $limits : [$limits],
            ));
        }

        /**
         * @param mixed $request
         * @param array<object> $limits
         * @return mixed
         */
        protected function handleRequest($request, Closure $next, array $limits)
        {
            throw new \LogicException('the bridge decides');
        }

        /**
         * @param mixed $maxAttempts
         * @param mixed $remainingAttempts
         * @param mixed $retryAfter
         * @return Response
         */
        protected function addHeaders(Response $response, $maxAttempts, $remainingAttempts, $retryAfter = null)
        {
            $response->headers->add($this->getHeaders($maxAttempts, $remainingAttempts, $retryAfter, $response));
            return $response;
        }

        /**
         * @param mixed $maxAttempts
         * @param mixed $remainingAttempts
         * @param mixed $retryAfter
         * @return array<string, mixed>
         */
        protected function getHeaders($maxAttempts, $remainingAttempts, $retryAfter = null, ?Response $response = null)
        {
            $headers = ['X-RateLimit-Limit' => $maxAttempts, 'X-RateLimit-Remaining' => $remainingAttempts];
            return $headers + ($retryAfter === null ? [] : ['Retry-After' => $retryAfter]);
        }
    }
}
