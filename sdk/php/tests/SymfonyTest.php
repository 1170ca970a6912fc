<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Bridge\Symfony\SluicegateLimiterFactory;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Limit;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Symfony\Component\HttpFoundation\RateLimiter\AbstractRequestRateLimiter;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\RateLimiter\CompoundLimiter;
use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
use Symfony\Component\RateLimiter\Exception\RateLimitExceededException;
use Symfony\Component\RateLimiter\Exception\ReserveNotSupportedException;
use Symfony\Component\RateLimiter\RateLimiterFactory;
use Symfony\Component\RateLimiter\Storage\InMemoryStorage;

/**
 * Run on Symfony 5.4.
 */
final class SymfonyTest extends TestCase
{
    private ManualClock $clock;

    private function factory(Limit $limit): SluicegateLimiterFactory
    {
        $this->clock = new ManualClock();
        $gate = InMemoryGate::with($this->clock, ['api' => $limit]);
        return new SluicegateLimiterFactory($gate->policy('api'));
    }

    public function testConsumeTakesAndRefuses(): void
    {
        $limiter = $this->factory(Limit::tokenBucket('10/s', burst: 3))->create('k');
        $taken = $limiter->consume(2);
        self::assertSame([true, 1, 3], [$taken->isAccepted(), $taken->getRemainingTokens(), $taken->getLimit()]);
        self::assertTrue($limiter->consume(0)->isAccepted());
        $begin = microtime(true);
        $refused = $limiter->consume(2);
        self::assertFalse($refused->isAccepted());
        $retryAt = (float) $refused->getRetryAfter()->format('U.u');
        self::assertGreaterThanOrEqual($begin + 0.0999, $retryAt);
        self::assertLessThanOrEqual(microtime(true) + 0.1001, $retryAt);
        $limiter->reset();
        self::assertSame(2, (new CompoundLimiter([$limiter]))->consume()->getRemainingTokens());
        $this->expectException(RateLimitExceededException::class);
        $limiter->consume(4)->ensureAccepted();
    }

    public function testReserveBooksOrThrows(): void
    {
        $limiter = $this->factory(Limit::tokenBucket('10/s', burst: 1))->create('k');
        $begin = microtime(true);
        $first = $limiter->reserve()->getTimeToAct();
        self::assertLessThanOrEqual(microtime(true), $first);
        $booked = $limiter->reserve(1, 0.2)->getTimeToAct();
        self::assertGreaterThanOrEqual($begin + 0.0999, $booked);
        self::assertLessThanOrEqual(microtime(true) + 0.1001, $booked);
        try {
            $limiter->reserve(1, 0.1);
            self::fail('no exception');
        } catch (MaxWaitDurationExceededException $e) {
            self::assertFalse($e->getRateLimit()->isAccepted());
        }
        $log = $this->factory(Limit::slidingLog(1, '1m'))->create('k');
        $log->reserve();
        try {
            $log->reserve();
            self::fail('no exception');
        } catch (ReserveNotSupportedException) {
            self::assertTrue(true);
        }
        $this->expectException(\InvalidArgumentException::class);
        $log->reserve(2);
    }

    public function testAnEmptyKeyIsNotTheBudgetOfAll(): void
    {
        $limiters = $this->factory(Limit::slidingLog(2, '1m'));
        self::assertTrue($limiters->create()->consume()->isAccepted());
        $this->expectException(InvalidRequest::class);
        $limiters->create('')->consume();
    }

    public function testALimiterOfRequestsLimitsLogins(): void
    {
        $factory = $this->factory(Limit::slidingLog(1, '1m'));
        $limiter = new class ($factory) extends AbstractRequestRateLimiter {
            public function __construct(private readonly SluicegateLimiterFactory $loginLimiter)
            {
            }

            protected function getLimiters(Request $request): array
            {
                return [$this->loginLimiter->create($request->getClientIp())];
            }
        };
        $request = static fn (string $ip): Request => Request::create('/', server: ['REMOTE_ADDR' => $ip]);
        self::assertTrue($limiter->consume($request('192.0.2.1'))->isAccepted());
        self::assertFalse($limiter->consume($request('192.0.2.1'))->isAccepted());
        self::assertTrue($limiter->consume($request('192.0.2.2'))->isAccepted());
        $limiter->reset($request('192.0.2.1'));
        self::assertTrue($limiter->consume($request('192.0.2.1'))->isAccepted());
    }

    /** The table "Coming from Symfony RateLimiter": both say the same of the same requests. */
    public function testLimitersOfSymfonyHaveTheirLike(): void
    {
        $pairs = [
            [
                ['policy' => 'fixed_window', 'limit' => 3, 'interval' => '1 hour'],
                Limit::fixedWindow(3, '1h', fromFirst: true),
            ],
            [
                ['policy' => 'sliding_window', 'limit' => 3, 'interval' => '1 hour'],
                Limit::slidingCounter(3, '1h'),
            ],
            [
                ['policy' => 'token_bucket', 'limit' => 3, 'rate' => ['interval' => '15 minutes', 'amount' => 2]],
                Limit::rules([['token_bucket' => ['rate' => '2/15m', 'burst' => 3, 'refill' => 'interval']]]),
            ],
        ];
        foreach ($pairs as [$config, $limit]) {
            $theirs = (new RateLimiterFactory(['id' => 'x'] + $config, new InMemoryStorage()))->create('k');
            $ours = $this->factory($limit)->create('k');
            foreach ([1, 2, 1, 1] as $tokens) {
                [$expected, $actual] = [$theirs->consume($tokens), $ours->consume($tokens)];
                self::assertSame(
                    [$expected->isAccepted(), $expected->getRemainingTokens(), $expected->getLimit()],
                    [$actual->isAccepted(), $actual->getRemainingTokens(), $actual->getLimit()],
                    $config['policy'],
                );
            }
        }
    }
}
