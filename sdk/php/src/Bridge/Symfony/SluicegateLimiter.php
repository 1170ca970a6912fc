<?php

declare(strict_types=1);

namespace Sluicegate\Bridge\Symfony;

use DateTimeImmutable;
use InvalidArgumentException;
use Sluicegate\Decision;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Limiter;
use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
use Symfony\Component\RateLimiter\Exception\ReserveNotSupportedException;
use Symfony\Component\RateLimiter\LimiterInterface;
use Symfony\Component\RateLimiter\RateLimit;
use Symfony\Component\RateLimiter\Reservation;

/**
 * The budget of one key, as a limiter of Symfony.
 */
final class SluicegateLimiter implements LimiterInterface
{
    /** The retry of a request that never passes, in µs from now: a year. `RateLimit` has no "never". */
    private const NEVER_US = 31_536_000_000_000;

    public function __construct(private readonly Limiter $limiter, private readonly ?string $key)
    {
    }

    public function reserve(int $tokens = 1, ?float $maxTime = null): Reservation
    {
        $maxWait = (int) min(($maxTime ?? INF) * 1e6, KernelRequest::MAX_WAIT_US);
        $decision = $this->limiter->reserve($this->key, $tokens, $maxWait);
        if ($decision->allowed) {
            return new Reservation(microtime(true) + $decision->waitLeftUs() / 1e6, self::rateLimit($decision, true));
        }
        if ($decision->retryAfterUs === null && $tokens > $decision->limit) {
            throw new InvalidArgumentException("Cannot reserve more tokens ($tokens) than $decision->limit.");
        }
        if ($maxTime === null) {
            throw new ReserveNotSupportedException(self::class);
        }
        $seconds = (int) $decision->retryAfterSeconds();
        throw new MaxWaitDurationExceededException(
            "The rate limiter wait time exceeds the provided maximum time ($seconds s more).",
            self::rateLimit($decision, false),
        );
    }

    public function consume(int $tokens = 1): RateLimit
    {
        // Symfony peeks at a budget by consuming 0 tokens.
        $decision = $tokens === 0 ? $this->limiter->peek($this->key) : $this->limiter->check($this->key, $tokens);
        return self::rateLimit($decision, $tokens === 0 || $decision->allowed);
    }

    public function reset(): void
    {
        $this->limiter->reset($this->key);
    }

    private static function rateLimit(Decision $decision, bool $accepted): RateLimit
    {
        $after = $decision->allowed ? $decision->waitLeftUs() : $decision->retryAfterUs ?? self::NEVER_US;
        $at = (int) (microtime(true) * 1e6) + $after;
        $text = sprintf('%d.%06d', intdiv($at, 1_000_000), $at % 1_000_000);
        $retryAt = DateTimeImmutable::createFromFormat('U.u', $text);
        assert($retryAt instanceof DateTimeImmutable);
        return new RateLimit($decision->remaining, $retryAt, $accepted, $decision->limit);
    }
}
