<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Redis;
use Sluicegate\Decision;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Limit;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Runner;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\CountingRunner;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Processes;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * Faults of Redis and of the network to it. `SLUICEGATE_LONG=1` runs the long versions.
 */
final class FaultsTest extends TestCase
{
    private const PROCESSES = 8;

    protected function setUp(): void
    {
        RedisServer::require();
    }

    /** @return iterable<string, array{callable(int): Runner, bool}> */
    public static function runners(): iterable
    {
        yield 'phpredis' => [static fn (int $port): Runner => Gates::runner($port), false];
        yield 'Predis' => [static fn (int $port): Runner => new Predis(new Client(['port' => $port])), false];
        yield 'cluster, phpredis' => [static fn (int $port): Runner =>
            new PhpRedisCluster(["127.0.0.1:$port"], timeout: 10.0), true];
        yield 'cluster, Predis' => [static fn (int $port): Runner =>
            new Predis(new Client(["tcp://127.0.0.1:$port"], ['cluster' => 'redis'])), true];
    }

    /**
     * @dataProvider runners
     * @param callable(int): Runner $runner
     */
    public function testALostReplyIsChargedOnce(callable $runner, bool $isCluster): void
    {
        $port = RedisServer::freePort();
        $redis = $isCluster ? self::clusterAt($port) : new RedisServer();
        $proxy = new Proxy($redis->port, $port);
        $limit = Limit::fixedWindow(100_000, '1h', fromFirst: true)->onStoreFailure(OnStoreFailure::Deny);
        $client = $redis->client();
        $plain = Gates::direct(PhpRedis::of($client))->limit('lost', $limit);
        $left = $plain->check('a', 1000)->remaining;
        $seed = (int) (getenv('SEED') ?: random_int(1, 1_000_000));
        mt_srand($seed);
        for ($try = 0; $try < (self::isLong() ? 200 : 20); $try++) {
            // Nothing is known of what was before: each try is a gate of its own.
            $limiter = Gates::direct($runner($port))->limit('lost', $limit);
            $bytes = mt_rand(0, 33);
            $verb = ['check', 'atMost', 'reserve', 'refund'][mt_rand(0, 3)];
            $cost = mt_rand(1, 9);
            $about = "seed $seed, try $try: $verb $cost, cut after $bytes bytes";
            $proxy->loseNextReply($bytes);
            try {
                self::assertSame(Mode::Deny, $limiter->$verb('a', $cost)->mode, $about);
                self::assertNotSame('refund', $verb, $about);
            } catch (StoreUnavailable $e) {
                self::assertSame(['refund', 'perhaps_charged'], [$verb, $e->errorName], $about);
            }
            $left += $verb === 'refund' ? $cost : -$cost;
            self::assertSame($left, $plain->peek('a')->remaining, $about);
        }
    }

    public function testProcessesDecideWhileRedisStandsStill(): void
    {
        Processes::require();
        $redis = new RedisServer();
        $memory = new Apcu('sg-still:' . getmypid() . ':');
        [$rate, $burst, $nodes] = [200, 100, 2];
        $limit = Limit::tokenBucket("$rate/s", burst: $burst);
        $deadlineMs = 50;
        Gates::direct($redis->port, memory: $memory)->limit('still', $limit)->check('other');
        $ends = hrtime(true) + 4_000_000_000;
        $limiter = Gates::direct($redis->port, memory: $memory, nodes: $nodes, deadlineMs: $deadlineMs)
            ->limit('still', $limit);
        $processes = new Processes(self::PROCESSES, static function () use ($limiter, $ends): array {
            $calls = [];
            while (hrtime(true) < $ends) {
                $begin = hrtime(true);
                $decision = $limiter->check('a');
                $end = hrtime(true);
                usleep(2_000);
                // How much longer than asked it slept, the machine was busy with others.
                $stallMs = (hrtime(true) - $end) / 1e6 - 2;
                $calls[] = [$begin, $end, $decision->mode->value, $decision->allowed, $stallMs];
            }
            return $calls;
        });
        usleep(500_000);
        $redis->signal(SIGSTOP);
        $stopped = hrtime(true);
        $opened = Patience::until(
            static fn (): ?int => $memory->get('breaker') === null ? null : hrtime(true),
            'the breaker opens',
        );
        usleep(intdiv(max(0, $stopped + 1_500_000_000 - hrtime(true)), 1000));
        $redis->signal(SIGCONT);
        $continued = hrtime(true);
        $calls = array_merge(...$processes->results());
        $longest = max(array_map(static fn (array $call): float => ($call[1] - $call[0]) / 1e6, $calls));
        $local = array_filter($calls, static fn (array $call): bool => $call[2] === 'local' && $call[3]);
        $isBack = static fn (array $call): bool => $call[2] === 'store' && $call[1] > $continued;
        $back = array_filter($calls, $isBack);
        $again = $back === [] ? INF : (min(array_column($back, 1)) - $continued) / 1e6;
        $spanS = $local === [] ? 0 : (max(array_column($local, 1)) - min(array_column($local, 0))) / 1e9;
        $most = ($burst + $rate * $spanS) / $nodes + 1;
        $openedMs = ($opened - $stopped) / 1e6;
        self::say(sprintf(
            'stopped: longest call %.1f ms of %d, breaker open in %.0f ms, %d of %.0f local, Redis again in %.0f ms',
            $longest,
            $deadlineMs,
            $openedMs,
            count($local),
            $most,
            $again,
        ));
        self::assertLessThan($deadlineMs + 250 + max(array_column($calls, 4)), $longest);
        // What Redis answered in the last second counts, too; then there is the time that a busy machine takes.
        self::assertLessThan(2000, $openedMs);
        self::assertNotEmpty($local);
        self::assertLessThanOrEqual($most, count($local));
        self::assertLessThan(5000, $again);
    }

    public function testProcessesAndAServerNeverPassMoreThanTheLimit(): void
    {
        Processes::require();
        Server::require();
        $redis = new RedisServer();
        [$rate, $burst] = [500, 500];
        $server = new Server(
            [['name' => 'hot', 'rules' => [['token_bucket' => ['rate' => "$rate/s", 'burst' => $burst]]]]],
            options: ['--store', Server::store($redis->port)],
        );
        $client = $redis->client();
        Patience::until(static fn (): bool => $client->hExists('sg:{policies}', 'hot'), 'the server publishes');
        $seconds = self::isLong() ? 30 : 2;
        $before = self::timeOf($client);
        $ends = hrtime(true) + $seconds * 1_000_000_000;
        $url = 'http://' . $server->address('http');
        $processes = new Processes(self::PROCESSES + 1, static function (int $number) use ($redis, $url, $ends): array {
            $gate = $number === self::PROCESSES ? Gates::remote($url) : Gates::direct($redis->port);
            $limiter = $gate->policy('hot');
            $begin = hrtime(true);
            [$passed, $calls, $last] = [0, 0, $begin];
            while ($last < $ends) {
                $decision = $limiter->check('a');
                $passed += $decision->allowed ? 1 : 0;
                $calls++;
                $decision->allowed || usleep((int) min($decision->retryAfterUs, 5_000));
                $last = hrtime(true);
            }
            return [$passed, $begin, $last, $calls];
        });
        $results = $processes->results();
        $span = (self::timeOf($client) - $before) / 1e6;
        $passed = array_sum(array_column($results, 0));
        $seconds = (max(array_column($results, 2)) - min(array_column($results, 1))) / 1e9;
        $used = $passed / ($burst + $rate * $seconds);
        self::say(sprintf('hot key: %d passed of %.0f, %.1f %%', $passed, $burst + $rate * $span, 100 * $used));
        self::assertGreaterThan(0, $results[self::PROCESSES][3], 'the server was not asked');
        self::assertLessThanOrEqual($burst + $rate * $span, $passed);
        self::assertGreaterThanOrEqual(self::isLong() ? 0.99 : 0.9, $used);
    }

    /** @return iterable<string, array{callable(int): Runner}> */
    public static function clients(): iterable
    {
        yield 'phpredis' => [static fn (int $port): Runner => PhpRedis::persistent('127.0.0.1', $port)];
        yield 'Predis' => [static fn (int $port): Runner => new Predis(new Client(['port' => $port]))];
    }

    /**
     * @dataProvider clients
     * @param callable(int): Runner $client
     */
    public function testCloseWaitsASecondForARedisThatIsSilentAndPays(callable $client): void
    {
        $redis = new RedisServer();
        $gate = Gates::direct($client($redis->port), nodes: 4, deadlineMs: 50);
        $limiter = $gate->limit('close', Limit::fixedWindow(200, '1d', fromFirst: true));
        $limiter->check('a', 10);
        $redis->signal(SIGSTOP);
        $passed = 0;
        for ($number = 0; $number < 60; $number++) {
            $passed += $limiter->check('a')->granted;
        }
        self::assertGreaterThan(40, $passed);
        $took = static function (?float $seconds = null) use ($gate): float {
            $begin = hrtime(true);
            $gate->close($seconds);
            return (hrtime(true) - $begin) / 1e9;
        };
        // With 0 it does not wait; else it waits for a second at most. The bounds leave room for a busy machine.
        self::assertLessThan(0.5, $took(0));
        $silent = $took();
        self::assertGreaterThan(0.9, $silent);
        self::assertLessThan(1.6, $silent);
        $continues = proc_open(['sh', '-c', "sleep 0.4; kill -CONT {$redis->pid()}"], [], $pipes);
        self::assertIsResource($continues);
        self::assertLessThan(1.6, $took());
        proc_close($continues);
        $left = Gates::direct($redis->port)->limit('close', Limit::fixedWindow(200, '1d', fromFirst: true))->peek('a');
        // Five requests before the breaker opened had no answer, and may have been charged beside.
        self::assertLessThanOrEqual(190 - $passed, $left->remaining);
        self::assertGreaterThanOrEqual(185 - $passed, $left->remaining);
        self::assertLessThan(0.04, $took(), 'nothing is owed');
    }

    public function testTheRightsOfAProgramSuffice(): void
    {
        $redis = new RedisServer();
        preg_match('/^user sluicegate-program (.*)$/m', Server::run('redis-acl'), $line);
        $rights = explode(' ', str_replace('>PASSWORD', '>secret', $line[1]));
        $redis->client()->rawCommand('ACL', 'SETUSER', 'sluicegate-program', ...$rights);
        $policy = static fn (int $limit): array => ['name' => 'orders', 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]];
        Published::in($redis->client(), 1, $policy(3));
        foreach (['connect', 'persistent'] as $way) {
            $clock = new ManualClock((int) (microtime(true) * 1e6));
            $runner = PhpRedis::$way('127.0.0.1', $redis->port, ['sluicegate-program', 'secret'], 10.0);
            $gate = Gates::direct($runner, clock: $clock);
            $orders = $gate->policy('orders');
            $limit = $orders->peek('other')->limit;
            $decision = $orders->check($way);
            self::assertSame([Mode::Store, $limit - 1], [$decision->mode, $decision->remaining]);
            self::assertSame(1, $orders->refund($way)->granted);
            // An edit is followed, and decides with the usage of before.
            $orders->check($way);
            Published::in($redis->client(), $limit + 2, $policy($limit + 1));
            $clock->advance(11.1);
            self::assertSame([$limit + 1, $limit - 1], [
                ($edited = $orders->check($way))->limit, $edited->remaining,
            ]);
            $permit = $gate->limit('jobs', Limit::concurrency(2, '1m'))->acquire($way);
            self::assertTrue($permit->isHeld() && $permit->renew());
            $permit->release();
            self::assertSame(Mode::Store, $gate->limit('mail', Limit::tokenBucket('1/h'))->check($way)->mode);
            $redis->client()->script('flush');
            self::assertSame(Mode::Store, $orders->peek('flushed')->mode);
            self::assertSame('', $gate->health('orders')->cause);
        }
        $wrong = PhpRedis::connect('127.0.0.1', $redis->port, ['sluicegate-program', 'wrong'], 10.0);
        $gate = Gates::direct($wrong);
        try {
            $gate->policy('orders')->check('a');
            self::fail('no error');
        } catch (SluicegateException $e) {
            self::assertSame('not_charged', $e->errorName);
        }
        $limit = Limit::slidingLog(3, '1h')->onStoreFailure(OnStoreFailure::Deny);
        self::assertSame(Mode::Deny, $gate->limit('l', $limit)->check('a')->mode);
    }

    public function testAFullRedisIsAStoreThatFails(): void
    {
        $redis = new RedisServer('--maxmemory-policy', 'noeviction');
        $runner = new CountingRunner(Gates::runner($redis->port));
        $gate = Gates::direct($runner);
        $limiter = static fn (OnStoreFailure $way) =>
            $gate->limit($way->value, Limit::slidingLog(100, '1h')->onStoreFailure($way));
        foreach (OnStoreFailure::cases() as $way) {
            self::assertSame(99, $limiter($way)->check('a')->remaining);
        }
        $client = $redis->client();
        $client->config('SET', 'maxmemory', '1');
        $calls = $runner->calls;
        for ($number = 1; $number <= 10; $number++) {
            $decision = $limiter(OnStoreFailure::Allow)->check('a');
            self::assertSame([true, Mode::Allow], [$decision->allowed, $decision->mode]);
            $decision = $limiter(OnStoreFailure::Deny)->check('a');
            self::assertSame([false, Mode::Deny], [$decision->allowed, $decision->mode]);
            $decision = $limiter(OnStoreFailure::Local)->check('a');
            self::assertSame([true, Mode::Local], [$decision->allowed, $decision->mode]);
        }
        // It can charge nothing, so the breaker opened: Redis was not asked each time.
        self::assertLessThan(30, $runner->calls - $calls);
        $client->config('SET', 'maxmemory', '0');
        $any = $limiter(OnStoreFailure::Deny);
        Patience::until(static fn (): bool => $any->peek('b')->mode === Mode::Store, 'Redis decides again');
        foreach (OnStoreFailure::cases() as $way) {
            $decision = $limiter($way)->check('a');
            // What passed meanwhile is charged as soon as Redis can.
            $expected = $way === OnStoreFailure::Deny ? 98 : 88;
            self::assertSame([Mode::Store, $expected], [$decision->mode, $decision->remaining], $way->value);
        }
    }

    public function testOptionsOfTheProgramsClientDoNotMatter(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'orders', 'rules' => [
            ['sliding_log' => ['limit' => 100, 'window' => '1h']],
        ]]);
        $plain = Gates::direct($redis->port)->policy('orders');
        $left = $plain->check('a')->remaining;
        $options = [
            [Redis::OPT_PREFIX, 'app:'], [Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP],
            [Redis::OPT_SERIALIZER, Redis::SERIALIZER_JSON], [Redis::OPT_REPLY_LITERAL, true],
            [Redis::OPT_READ_TIMEOUT, 0.001], [Redis::OPT_SCAN, Redis::SCAN_PREFIX],
        ];
        foreach ($options as [$option, $value]) {
            $client = $redis->client();
            $client->setOption($option, $value);
            $orders = Gates::direct(PhpRedis::of($client))->policy('orders');
            $decision = $orders->check('a');
            self::assertSame([Mode::Store, --$left], [$decision->mode, $decision->remaining], "option $option");
            if ($option !== Redis::OPT_READ_TIMEOUT) {
                self::assertEquals($value, $client->getOption($option));
            }
        }
        $client = new Client(['port' => $redis->port], ['prefix' => 'app:']);
        self::assertSame(--$left, Gates::direct(new Predis($client))->policy('orders')->check('a')->remaining);
        // Another database is another Redis: it has neither the policies nor the budgets.
        $client = $redis->client();
        $client->select(3);
        $gate = Gates::direct(PhpRedis::of($client));
        try {
            $gate->policy('orders')->check('a');
            self::fail('no error');
        } catch (SluicegateException $e) {
            self::assertSame('nothing_published', $e->errorName);
            self::assertStringContainsString("127.0.0.1:$redis->port/3;", $e->getMessage());
        }
        $limit = Limit::slidingLog(5, '1h');
        self::assertSame(4, $gate->limit('mail', $limit)->check('a')->remaining);
        self::assertSame(4, Gates::direct($redis->port)->limit('mail', $limit)->check('a')->remaining);
        self::assertSame(3, $client->getDbNum());
    }

    /** A cluster of one node that others know by another port. */
    private static function clusterAt(int $port): RedisServer
    {
        $announce = ['--cluster-announce-ip', '127.0.0.1', '--cluster-announce-port', (string) $port];
        $redis = new RedisServer('--cluster-enabled', 'yes', ...$announce);
        $redis->client()->rawCommand('CLUSTER', 'ADDSLOTS', ...range(0, 16383));
        Patience::until(static fn (): bool => str_contains(
            (string) $redis->client()->rawCommand('CLUSTER', 'INFO'),
            'cluster_state:ok',
        ), 'the cluster is ready');
        return $redis;
    }

    private static function timeOf(Redis $client): int
    {
        [$seconds, $micros] = $client->time();
        return 1_000_000 * (int) $seconds + (int) $micros;
    }

    private static function isLong(): bool
    {
        return getenv('SLUICEGATE_LONG') === '1';
    }

    private static function say(string $text): void
    {
        fwrite(STDERR, "\n$text\n");
    }
}
