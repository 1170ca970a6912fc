<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use DateTimeImmutable;
use Illuminate\Cache\ArrayStore;
use Illuminate\Cache\Repository;
use PHPUnit\Framework\TestCase;
use Psr\Clock\ClockInterface;
use Psr\SimpleCache\CacheInterface;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\PsrClock;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Symfony\Component\Cache\Adapter\ArrayAdapter;
use Symfony\Component\Cache\Adapter\FilesystemAdapter;
use Symfony\Component\Cache\Psr16Cache;
use Symfony\Component\Filesystem\Filesystem;

/**
 * Clocks of PSR-20, and caches of PSR-16.
 */
final class PsrTest extends TestCase
{
    public function testAClockOfPsr20IsTaken(): void
    {
        $clock = self::clock('2026-01-01 00:00:00.250001 UTC');
        self::assertSame(1_767_225_600_250_001, PsrClock::of($clock)->nowUs());
        $gate = InMemoryGate::with($clock);
        $mail = $gate->limit('mail', Limit::slidingLog(1, '1m'));
        self::assertTrue($mail->check('a')->allowed);
        self::assertSame(65_749_998, $mail->check('a')->retryAfterUs);
        $clock->now = $clock->now->modify('+66 seconds');
        self::assertTrue($mail->check('a')->allowed);
        // Without Redis the share of a host fills by this clock, too.
        $gate = Gate::direct(PhpRedis::connect('127.0.0.1', 1), memory: new ProcessMemory(), clock: $clock);
        $mail = $gate->limit('mail', Limit::slidingLog(1, '1h'));
        self::assertSame([true, false], [$mail->check('a')->allowed, $mail->check('a')->allowed]);
        $clock->now = $clock->now->modify('+66 minutes');
        self::assertSame([true, Mode::Local], [($again = $mail->check('a'))->allowed, $again->mode]);
    }

    public function testAClockThatSleepsIsWhereAQueueWaits(): void
    {
        $clock = self::clock('2026-01-01 UTC');
        $queue = InMemoryGate::with($clock, Fixture::text())->policy('queue');
        $queue->check('a');
        self::assertSame(50_000, $queue->check('a')->heldUs);
        self::assertSame('00.050000', $clock->now->format('s.u'));
    }

    /** @return iterable<string, array{callable(): CacheInterface}> */
    public static function caches(): iterable
    {
        yield 'Symfony, in memory' => [static fn (): CacheInterface => new Psr16Cache(new ArrayAdapter())];
        yield 'Symfony, in files' => [static fn (): CacheInterface => new Psr16Cache(
            new FilesystemAdapter('test', 0, self::directory()),
        )];
        yield 'Laravel' => [static fn (): CacheInterface => new Repository(new ArrayStore(true))];
    }

    /**
     * @dataProvider caches
     * @param callable(): CacheInterface $make
     */
    public function testRequestsFindPoliciesInACache(callable $make): void
    {
        $cache = $make();
        $cache->clear();
        $redis = RedisServer::shared();
        $clock = new ManualClock();
        // Each has a memory of its own, as requests of FPM have without APCu.
        $request = static fn (): Gate => self::gate($redis, $cache, $clock);
        self::publish($redis, 1, 2);
        $redis->client()->rawCommand('CONFIG', 'RESETSTAT');
        self::assertSame([1, 0], [
            $request()->policy('orders')->check('a')->remaining, $request()->policy('orders')->check('a')->remaining,
        ]);
        self::assertFalse($request()->policy('orders')->check('a')->allowed);
        self::assertSame(1, self::looks($redis));
        // An edit holds at the next look, for all.
        self::publish($redis, 2, 5);
        self::assertSame(2, $request()->policy('orders')->peek('b')->limit);
        $clock->advance(11.1);
        self::assertSame([5, 5], [
            $request()->policy('orders')->peek('b')->limit, $request()->policy('orders')->peek('b')->limit,
        ]);
        self::assertSame(2, self::looks($redis));
        // A policy that is deleted is deleted for all.
        Published::in($redis->client(), 3, ['name' => 'other', 'rules' => [['sliding_log' => [
            'limit' => 1, 'window' => '1h',
        ]]]]);
        $clock->advance(11.1);
        foreach ([1, 2] as $_) {
            try {
                $request()->policy('orders')->check('a');
                self::fail('no exception');
            } catch (InvalidRequest $e) {
                self::assertSame('unknown_policy', $e->errorName);
            }
        }
        $cache->clear();
        (new Filesystem())->remove(self::directory());
    }

    private static function directory(): string
    {
        return sys_get_temp_dir() . '/sg-cache-' . getmypid();
    }

    public function testNothingButPoliciesIsInTheCache(): void
    {
        $adapter = new ArrayAdapter();
        $redis = RedisServer::shared();
        self::publish($redis, 1, 1);
        $orders = self::gate($redis, new Psr16Cache($adapter), new ManualClock())->policy('orders');
        $orders->check('a');
        $orders->check('a');
        self::assertSame(Mode::Remembered, $orders->check('a')->mode);
        // The policy, what is known of all, and the names that are used.
        self::assertCount(3, $adapter->getValues());
        foreach (array_keys($adapter->getValues()) as $key) {
            self::assertMatchesRegularExpression('/^sluicegate\.[0-9a-f]{32}$/', $key);
        }
    }

    public function testACacheThatFailsCostsNoDecision(): void
    {
        $redis = RedisServer::shared();
        self::publish($redis, 1, 3);
        $broken = $this->createStub(CacheInterface::class);
        $broken->method('get')->willThrowException(new \RuntimeException('gone'));
        $broken->method('set')->willThrowException(new \RuntimeException('gone'));
        $broken->method('delete')->willThrowException(new \RuntimeException('gone'));
        $full = $this->createStub(CacheInterface::class);
        $full->method('get')->willReturn(null);
        $full->method('set')->willReturn(false);
        foreach (['broken' => $broken, 'full' => $full] as $key => $cache) {
            $orders = self::gate($redis, $cache, new ManualClock())->policy('orders');
            self::assertSame([2, 1], [$orders->check($key)->remaining, $orders->check($key)->remaining]);
        }
    }

    private static function gate(RedisServer $redis, CacheInterface $cache, ManualClock $clock): Gate
    {
        return Gate::direct(
            Gates::runner($redis->port),
            memory: new ProcessMemory(),
            deadlineMs: Gates::DEADLINE_MS,
            clock: $clock,
            cache: $cache,
        );
    }

    private static function publish(RedisServer $redis, int $revision, int $limit): void
    {
        Published::in($redis->client(), $revision, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]]);
    }

    private static function looks(RedisServer $redis): int
    {
        $stats = $redis->client()->info('commandstats');
        return (int) preg_replace('/^calls=(\d+).*/', '$1', $stats['cmdstat_hmget'] ?? 'calls=0');
    }

    private static function clock(string $now): ClockInterface
    {
        return new class (new DateTimeImmutable($now)) implements ClockInterface {
            public function __construct(public DateTimeImmutable $now)
            {
            }

            public function now(): DateTimeImmutable
            {
                return $this->now;
            }

            public function sleep(float|int $seconds): void
            {
                $this->now = $this->now->modify(sprintf('+%d microseconds', (int) round($seconds * 1e6)));
            }
        };
    }
}
