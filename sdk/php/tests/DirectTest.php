<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use Closure;
use InvalidArgumentException;
use LogicException;
use PHPUnit\Framework\TestCase;
use Predis\Client;
use Redis;
use Sluicegate\Decision;
use Sluicegate\Exception\Charged;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\LimitExceeded;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Runner;
use Sluicegate\Remote\HttpGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\CountingRunner;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HookedClock;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;

final class DirectTest extends TestCase
{
    private const TURNS = ['name' => 'turns', 'rules' => [
        ['name' => 'turn', 'concurrency' => ['limit' => 1, 'ttl' => '1m', 'queue' => 2]],
    ]];

    private RedisServer $redis;
    private ManualClock $clock;

    protected function setUp(): void
    {
        $this->redis = RedisServer::shared();
        $this->clock = new ManualClock((int) (microtime(true) * 1e6));
    }

    private function gate(?Memory $memory = null, string $app = '', ?int $port = null): Gate
    {
        return Gates::direct(
            $port ?? $this->redis->port,
            app: $app,
            memory: $memory ?? new ProcessMemory(),
            clock: $this->clock,
        );
    }

    /** @param array<string, mixed> ...$policies */
    private function publish(int $revision, array ...$policies): void
    {
        Published::in($this->redis->client(), $revision, ...$policies);
    }

    private const ORDERS = ['name' => 'orders', 'rules' => [['name' => 'minute', 'sliding_log' => [
        'limit' => 3, 'window' => '1h',
    ]]]];

    public function testAPolicyIsFoundAndDecided(): void
    {
        $this->publish(1, self::ORDERS);
        $orders = $this->gate()->policy('orders');
        $first = $orders->check('alice');
        self::assertTrue($first->allowed);
        self::assertSame([1, 3, 2, 0], [$first->granted, $first->limit, $first->remaining, $first->retryAfterUs]);
        self::assertSame(['orders', 'minute', Mode::Store], [$first->policy, $first->rule, $first->mode]);
        self::assertSame('"minute";q=3;w=3600', $first->quotas);
        self::assertSame(2, $orders->atMost('alice', 5)->granted);
        $refused = $orders->check('alice');
        self::assertFalse($refused->allowed);
        self::assertGreaterThan(3_500_000_000, $refused->retryAfterUs);
        self::assertSame(Mode::Remembered, $orders->check('alice')->mode);
        self::assertSame(Mode::Store, $orders->peek('alice')->mode);
        self::assertSame(1, $orders->refund('alice')->granted);
        self::assertTrue($orders->check('alice')->allowed);
        $orders->reset('alice');
        self::assertSame(2, $orders->check('alice')->remaining);
        self::assertSame(2, $orders->check(null)->remaining);
        $orders->ensure('alice', 2);
        $this->expectException(LimitExceeded::class);
        $orders->ensure('alice');
    }

    public function testPredisDecidesTheSameBudget(): void
    {
        if (!class_exists(Client::class)) {
            @include_once 'Predis/autoload.php';
        }
        $this->publish(1, self::ORDERS);
        $this->gate()->policy('orders')->check('p');
        $client = new Client(['host' => '127.0.0.1', 'port' => $this->redis->port]);
        $gate = Gates::direct(new Predis($client));
        self::assertSame(1, $gate->policy('orders')->check('p')->remaining);
    }

    public function testWhatIsKnownOfOneRedisIsNotBelievedOfAnother(): void
    {
        $port = $this->redis->port;
        $own = new \Redis();
        $own->connect('127.0.0.1', $port);
        $own->select(3);
        self::assertSame("127.0.0.1:$port/0", PhpRedis::persistent('127.0.0.1', $port)->endpoint());
        self::assertSame("127.0.0.1:$port/3", PhpRedis::of($own)->endpoint());
        $client = new Client(['host' => '127.0.0.1', 'port' => $port, 'database' => 3]);
        self::assertSame("127.0.0.1:$port/3", (new Predis($client))->endpoint());
    }

    public function testAScriptThatIsGoneIsLoadedAgain(): void
    {
        $this->publish(1, self::ORDERS);
        $orders = $this->gate()->policy('orders');
        $this->redis->client()->script('flush');
        self::assertSame(2, $orders->check('a')->remaining);
        $this->redis->client()->script('flush');
        self::assertSame(1, $orders->check('a')->remaining);
    }

    public function testRulesAreAnnouncedAndLaterRulesDecide(): void
    {
        $this->publish(1, self::ORDERS);
        $early = $this->gate()->policy('orders');
        $early->check('a');
        self::assertCount(1, $this->redis->client()->keys('sg:rules:*'));
        $changed = self::ORDERS;
        $changed['rules'][0]['sliding_log']['limit'] = 5;
        $this->clock->advance(0.002);
        $this->publish(2, $changed);
        $late = $this->gate()->policy('orders');
        self::assertSame([5, 3], [$late->check('a')->limit, $late->peek('a')->remaining]);
        // A program that has not heard of the change decides by the later version, too.
        $decision = $early->check('a');
        self::assertSame([5, 2, 'minute'], [$decision->limit, $decision->remaining, $decision->rule]);
        self::assertSame(2, $late->peek('a')->remaining);
    }

    public function testOverridesAppsAndShadowHold(): void
    {
        $own = Fixture::record('own', ['app' => 'shop', 'apps' => ['shop', 'web', '*']]);
        $this->publish(1, $own, Fixture::record('seen'), Fixture::record('closed'));
        $gate = $this->gate(app: 'web');
        self::assertSame(9, $gate->policy('own')->check('203.0.113.7')->limit);
        self::assertSame(3, $gate->policy('own')->check('203.0.113.8')->limit);
        $gate->policy('seen')->check('a');
        $over = $gate->policy('seen')->check('a');
        self::assertSame([true, 0, OverflowKind::Shadow], [$over->allowed, $over->granted, $over->overflow?->kind]);
        $this->assertError('policy_not_available', fn () => $gate->policy('closed')->check('a'));
        $this->assertError('app_missing', fn () => $this->gate()->policy('closed')->check('a'));
        $this->assertError('unknown_policy', fn () => $gate->policy('none')->check('a'));
        self::assertSame(0, $gate->policy('own')->refund('b')->granted);
        $this->assertError('policy_not_available', fn () => $this->gate(app: 'x')->policy('own')->refund('b'));
    }

    public function testWhatMakesNoSenseIsAnError(): void
    {
        $this->publish(1, self::ORDERS);
        $orders = $this->gate()->policy('orders');
        $this->assertError('key_empty', fn () => $orders->check(''));
        $this->assertError('key_length', fn () => $orders->check(str_repeat('k', 1025)));
        $this->assertError('cost_range', fn () => $orders->check('a', 0));
        $this->assertError('cost_range', fn () => $orders->check('a', 2147483649));
        $this->assertError('max_wait_range', fn () => $orders->reserve('a', 1, -1));
        $this->assertError('unsupported_verb', fn () => $orders->acquire('a'));
        $this->assertError('id_length', fn () => $orders->acquire('a', 1, ''));
        $this->assertError('rules', fn () => Limit::tokenBucket('10'));
        $this->assertError('app_name', fn () => $this->gate(app: 'A'));
        $runner = PhpRedis::connect('127.0.0.1', $this->redis->port);
        $this->assertError('nodes_range', fn () => Gate::direct($runner, nodes: 0));
        $this->assertError('deadline_range', fn () => Gate::direct($runner, deadlineMs: 0));
        foreach (['http', 'resp'] as $scheme) {
            foreach ([-1, 0, 10_001] as $timeoutMs) {
                $remote = static fn () => Gate::remote("$scheme://127.0.0.1:1", timeoutMs: $timeoutMs);
                $this->assertError('deadline_range', $remote);
            }
        }
        $this->assertError('deadline_range', fn () => HttpGate::at('http://127.0.0.1:1', timeoutMs: 0));
        $outside = [
            'maxHoldMs: `-1` is outside 0..=31622400000' => ['maxHoldMs' => -1],
            'accountsMax: `-5` is outside 1..=1000000' => ['accountsMax' => -5],
            'accountsMax: `0` is outside 1..=1000000' => ['accountsMax' => 0],
        ];
        foreach ($outside as $message => $options) {
            try {
                Gate::direct($runner, ...$options);
                self::fail("taken, though $message");
            } catch (InvalidArgumentException $e) {
                self::assertSame($message, $e->getMessage());
            }
        }
    }

    public function testASubclassMakesNoGateOfAnotherKind(): void
    {
        self::assertInstanceOf(HttpGate::class, HttpGate::remote('http://127.0.0.1:1'));
        foreach (['direct' => PhpRedis::connect('127.0.0.1', 1), 'remote' => 'resp://127.0.0.1:1'] as $make => $of) {
            try {
                HttpGate::$make($of);
                self::fail("HttpGate::$make gives a gate");
            } catch (LogicException) {
                continue;
            }
        }
    }

    public function testAPermitThatIsNotGivenBackCanBeGivenBackAgain(): void
    {
        $redis = new RedisServer();
        $jobs = Gates::direct($redis->port)->limit('jobs', Limit::concurrency(1, '1m'));
        $permit = $jobs->acquire('a');
        $redis->stop();
        self::assertSame([false, true], [$permit->release(), $permit->isHeld()]);
        $redis->start();
        self::assertSame([true, false], [$permit->release(), $permit->isHeld()]);
        self::assertTrue($permit->release(), 'the second time');
    }

    public function testAClientOfTheProgramKeepsItsReadTimeout(): void
    {
        foreach ([0.0, 7.5] as $timeout) {
            $client = new Redis();
            $client->connect('127.0.0.1', $this->redis->port, 1.0, null, 0, $timeout);
            $limiter = Gate::direct(PhpRedis::of($client), deadlineMs: 2000)->limit('own', Limit::slidingLog(9, '1h'));
            self::assertSame(Mode::Store, $limiter->check('a')->mode);
            self::assertSame($timeout ?: 60.0, $client->getOption(Redis::OPT_READ_TIMEOUT));
            // Longer than the deadline.
            self::assertNull($client->blPop(['nothing'], 3)[0] ?? null);
            self::assertSame(Mode::Store, $limiter->check('a')->mode);
            $at = ['host' => '127.0.0.1', 'port' => $this->redis->port];
            $client = new Client($at + ($timeout > 0 ? ['read_write_timeout' => $timeout] : []));
            $limiter = Gate::direct(new Predis($client), deadlineMs: 2000)->limit('own', Limit::slidingLog(9, '1h'));
            self::assertSame(Mode::Store, $limiter->check('a')->mode);
            self::assertNull($client->blpop(['nothing'], 3)[0] ?? null);
        }
    }

    public function testDegradeDivertAndQueue(): void
    {
        $this->publish(1, ...array_map(Fixture::record(...), ['tagged', 'other', 'queue', 'old']));
        // Redis goes by the clock of the test, too.
        $this->redis->client()->hSet('sg:{policies}', '#clock', 'client');
        $gate = $this->gate();
        foreach (['tagged', 'other', 'old'] as $name) {
            $gate->policy($name)->check('k');
        }
        self::assertSame('cached', $gate->policy('tagged')->check('k')->overflow?->tag);
        self::assertSame('https://b', $gate->policy('other')->check('k')->overflow?->target);
        $response = $gate->policy('old')->check('k')->overflow?->response;
        $expected = [203, 'cached', ['x-from' => 'cache']];
        self::assertSame($expected, [$response?->status, $response?->body, $response?->headers]);
        $queue = $gate->policy('queue');
        self::assertSame(0, $queue->check('k')->heldUs);
        $begin = $this->clock->nowUs();
        $held = $queue->check('k');
        self::assertSame([true, 50_000], [$held->allowed, $held->heldUs]);
        self::assertSame(50_000, $this->clock->nowUs() - $begin);
        self::assertFalse($queue->check('k', 2)->allowed);
    }

    public function testPermitsAreHeldAndGivenBack(): void
    {
        $this->publish(1, ['name' => 'jobs', 'rules' => [['concurrency' => ['limit' => 2, 'ttl' => '1m']]]]);
        $jobs = $this->gate()->policy('jobs');
        $one = $jobs->acquire('t');
        $two = $jobs->acquire('t', id: 'job-2');
        self::assertTrue($one->isHeld() && $two->isHeld());
        self::assertFalse($jobs->acquire('t')->isHeld());
        self::assertNull($jobs->acquire('t', id: 'job-2')->decision->retryAfterUs);
        self::assertTrue($two->renew());
        $one->release();
        $one->release();
        self::assertSame(1, $jobs->peek('t')->remaining);
        self::assertTrue($jobs->release('t', 'job-2')->allowed);
        self::assertFalse($jobs->release('t', 'job-2')->allowed);
    }

    public function testAnAcquireWaitsForItsTurn(): void
    {
        $this->publish(1, self::TURNS);
        $others = $this->gate()->policy('turns');
        $held = $others->acquire('t');
        $turns = $this->hooked(static function (int $sleep) use ($others, $held): void {
            if ($sleep === 3) {
                $held->release();
                self::assertFalse($others->acquire('t')->isHeld(), 'who came first has the next permit');
            }
        });
        $permit = $turns->acquire('t', maxWaitUs: 60_000_000);
        self::assertSame([true, 300_000, 1], [
            $permit->isHeld(), $permit->decision->heldUs, $permit->decision->granted,
        ]);
        self::assertFalse($others->acquire('t')->isHeld());
        $permit->release();
        self::assertTrue($others->acquire('t', maxWaitUs: 0)->isHeld());
    }

    public function testWhoWaitsNoLongerLeaves(): void
    {
        $this->publish(1, self::TURNS);
        $others = $this->gate()->policy('turns');
        $held = $others->acquire('t');
        $refused = $this->hooked(static fn () => null)->acquire('t', maxWaitUs: 250_000);
        self::assertSame([false, 250_000, 0], [
            $refused->isHeld(), $refused->decision->heldUs, $refused->decision->granted,
        ]);
        self::assertGreaterThan(50_000_000, $refused->decision->retryAfterUs);
        self::assertSame(0, $this->hooked(self::fail(...))->acquire('t', maxWaitUs: 0)->decision->heldUs);
        $held->release();
        self::assertTrue($others->acquire('t')->isHeld(), 'nobody waits before it');
    }

    public function testAQueueHasRoomForSoMany(): void
    {
        $this->publish(1, self::TURNS);
        $this->gate()->policy('turns')->acquire('t', id: 'mine');
        $last = null;
        $third = $this->hooked(self::fail(...));
        $second = $this->hooked(static function () use ($third, &$last): void {
            $last ??= $third->acquire('t', maxWaitUs: 60_000_000);
        });
        $first = $this->hooked(static fn (int $sleep) => $sleep > 1 ?: $second->acquire('t', maxWaitUs: 100_000));
        self::assertFalse($first->acquire('t', maxWaitUs: 200_000)->isHeld());
        self::assertSame([false, 0], [$last?->isHeld(), $last?->decision->heldUs]);
        // An id that is held never passes, and more than the limit does not either.
        self::assertNull($third->acquire('t', id: 'mine', maxWaitUs: 60_000_000)->decision->retryAfterUs);
        self::assertNull($third->acquire('t', 2, maxWaitUs: 60_000_000)->decision->retryAfterUs);
    }

    public function testThePolicyLetsAnAcquireWait(): void
    {
        $queue = ['overflow' => ['kind' => 'queue', 'max_wait_us' => 400_000]];
        $this->publish(1, $queue + self::TURNS, ['name' => 'long', 'overflow' => ['max_wait_us' => 20_000_000] +
            $queue['overflow']] + self::TURNS, ['name' => 'plain', 'rules' => [
                ['concurrency' => ['limit' => 1, 'ttl' => '1m']],
            ]] + $queue);
        $held = function (string $policy): int {
            $this->gate()->policy($policy)->acquire('t');
            return $this->hooked(static fn () => null, $policy)->acquire('t')->decision->heldUs;
        };
        // A gate holds requests for a second at most, unless you configure another time.
        self::assertSame([400_000, 1_000_000, 0], [$held('turns'), $held('long'), $held('plain')]);
        $plain = $this->gate()->policy('plain');
        $this->assertError('unsupported_verb', static fn () => $plain->acquire('t', maxWaitUs: 0));
        $limit = Limit::rules([['name' => 'a', 'concurrency' => ['limit' => 1, 'ttl' => '1m', 'queue' => 1]]]);
        $inCode = $this->gate()->limit('in-code', $limit);
        self::assertTrue($inCode->acquire('t', maxWaitUs: 0)->isHeld());
        self::assertSame(100_000, $inCode->acquire('t', maxWaitUs: 100_000)->decision->heldUs);
        try {
            $this->gate()->limit('none', Limit::concurrency(1, '1m'))->acquire('t', maxWaitUs: 1);
            self::fail('no error');
        } catch (InvalidRequest $e) {
            self::assertSame('op: `acquire with max_wait` is not supported by policy `none`', $e->getMessage());
        }
    }

    /** @return iterable<string, array{string, list<mixed>}> */
    public static function decisionsWithoutRedis(): iterable
    {
        yield 'local: the share grants it' => ['local', [true, Mode::Local, 100_000]];
        yield 'allow' => ['allow', [true, Mode::Allow, 100_000]];
        yield 'deny: it waits on' => ['deny', [false, Mode::Deny, 500_000]];
    }

    /**
     * @dataProvider decisionsWithoutRedis
     * @param list<mixed> $expected
     */
    public function testWhileRedisIsAwayWhoWaitsIsDecidedByThePolicy(string $onStoreFailure, array $expected): void
    {
        $redis = new RedisServer();
        Published::in($redis->client(), 1, ['on_store_failure' => $onStoreFailure] + self::TURNS);
        $this->gate(port: $redis->port)->policy('turns')->acquire('t');
        $turns = $this->hooked(static fn (int $sleep) => $sleep > 1 ?: $redis->stop(), port: $redis->port);
        $permit = $turns->acquire('t', maxWaitUs: 500_000);
        self::assertSame($expected, [$permit->isHeld(), $permit->decision->mode, $permit->decision->heldUs]);
        // A request that begins now does not wait where nobody decides.
        if ($onStoreFailure === 'deny') {
            self::assertSame(0, $turns->acquire('t', maxWaitUs: 500_000)->decision->heldUs);
        }
    }

    public function testWhileRedisIsAwayWhoWaitsGetsAPermitOfTheShare(): void
    {
        $redis = new RedisServer();
        $memory = new ProcessMemory();
        Published::in($redis->client(), 1, self::TURNS);
        $first = $this->gate($memory, port: $redis->port)->policy('turns');
        self::assertSame(1, $first->peek('t')->remaining);
        $redis->stop();
        $held = $first->acquire('t');
        self::assertSame([true, Mode::Local], [$held->isHeld(), $held->decision->mode]);
        $clock = new HookedClock(static fn (int $sleep) => $sleep !== 2 ?: $held->release());
        $second = Gates::direct($redis->port, memory: $memory, clock: $clock)->policy('turns');
        $permit = $second->acquire('t', maxWaitUs: 60_000_000);
        self::assertSame([true, Mode::Local, 200_000], [
            $permit->isHeld(), $permit->decision->mode, $permit->decision->heldUs,
        ]);
    }

    public function testAPermitWhoseReplyIsLostIsFoundByTheNextCall(): void
    {
        $this->publish(1, ['on_store_failure' => 'deny'] + self::TURNS);
        $held = $this->gate()->policy('turns')->acquire('t');
        $proxy = new Proxy($this->redis->port);
        $turns = $this->hooked(static function (int $sleep) use ($held, $proxy): void {
            if ($sleep === 1) {
                $held->release();
                $proxy->loseNextReply();
            }
        }, port: $proxy->port);
        $permit = $turns->acquire('t', maxWaitUs: 60_000_000);
        self::assertSame([true, Mode::Store, 200_000], [
            $permit->isHeld(), $permit->decision->mode, $permit->decision->heldUs,
        ]);
        self::assertTrue($permit->renew());
    }

    /** @param Closure(int): mixed $onSleep called when the limiter sleeps */
    private function hooked(Closure $onSleep, string $policy = 'turns', ?int $port = null): Limiter
    {
        return Gates::direct($port ?? $this->redis->port, clock: new HookedClock($onSleep))->policy($policy);
    }

    public function testLimitsInCodeDoNotMeetPolicies(): void
    {
        $this->publish(1, self::ORDERS);
        $gate = $this->gate();
        $limit = Limit::tokenBucket('10/h', burst: 2);
        $gate->policy('orders')->check('a');
        self::assertSame(1, $gate->limit('orders', $limit)->check('a')->remaining);
        self::assertSame(0, $this->gate()->limit('orders', $limit)->check('a')->remaining);
        // Another limit takes the usage over.
        $more = $gate->limit('orders', Limit::tokenBucket('10/h', burst: 20));
        self::assertSame(17, $more->check('a')->remaining);
        self::assertCount(1, $this->redis->client()->keys('sg:rules:*'));
    }

    /** @return iterable<string, array{callable(int): Runner}> */
    public static function runners(): iterable
    {
        yield 'phpredis' => [static fn (int $port): Runner => Gates::runner($port)];
        yield 'phpredis, persistent' => [static fn (int $port): Runner =>
            PhpRedis::persistent('127.0.0.1', $port, null, 10.0)];
        yield 'phpredis of the program' => [static function (int $port): Runner {
            $client = new \Redis();
            $client->connect('127.0.0.1', $port);
            return PhpRedis::of($client);
        }];
        yield 'Predis' => [static fn (int $port): Runner =>
            new Predis(new Client(['host' => '127.0.0.1', 'port' => $port, 'timeout' => 10]))];
    }

    /**
     * @dataProvider runners
     * @param callable(int): Runner $runner
     */
    public function testAReplyThatIsLostIsChargedOnce(callable $runner): void
    {
        $faults = ['loseNextReply' => OnStoreFailure::Deny, 'holdNextReply' => OnStoreFailure::Local];
        foreach ($faults as $fault => $way) {
            $proxy = new Proxy($this->redis->port);
            $limit = Limit::slidingLog(100, '1h')->onStoreFailure($way);
            $plain = $this->gate()->limit(strtolower($fault), $limit);
            self::assertSame(99, $plain->check('a')->remaining);
            // A second is short for a reply that never comes, and long for one that does.
            $deadline = $fault === 'holdNextReply' ? 1000 : Gates::DEADLINE_MS;
            $limiter = Gates::direct($runner($proxy->port), deadlineMs: $deadline)
                ->limit(strtolower($fault), $limit);
            $proxy->$fault();
            $decision = $limiter->check('a');
            self::assertSame($way === OnStoreFailure::Deny ? Mode::Deny : Mode::Local, $decision->mode, $fault);
            self::assertSame(98, $plain->peek('a')->remaining, $fault);
            // A late reply is not read as that of the next command.
            $next = Patience::until(static function () use ($limiter): ?Decision {
                $decision = $limiter->peek('b');
                return $decision->mode === Mode::Store ? $decision : null;
            }, 'Redis decides again');
            self::assertSame(100, $next->remaining, $fault);
        }
    }

    /**
     * @dataProvider runners
     * @param callable(int): Runner $runner
     */
    public function testAReplyThatEndsAtAnyByteIsChargedOnce(callable $runner): void
    {
        $proxy = new Proxy($this->redis->port);
        $limit = Limit::slidingLog(1000, '1h')->onStoreFailure(OnStoreFailure::Deny);
        $plain = $this->gate()->limit('bytes', $limit);
        $plain->check('a');
        // A reply has 34 bytes: its length, 27, and the ends of lines.
        for ($bytes = 0; $bytes < 34; $bytes++) {
            $limiter = Gates::direct($runner($proxy->port))->limit('bytes', $limit);
            $proxy->loseNextReply($bytes);
            self::assertSame(Mode::Deny, $limiter->check('a')->mode, "after $bytes bytes");
            self::assertSame(998 - $bytes, $plain->peek('a')->remaining, "after $bytes bytes");
        }
    }

    /**
     * @testWith [null]
     *           ["own"]
     */
    public function testAClientOfTheProgramIsOpenedAgainAsItWas(?string $persistent): void
    {
        $redis = new RedisServer();
        $redis->client()->config('SET', 'requirepass', 'secret');
        $client = new \Redis();
        $persistent === null
            ? $client->connect('127.0.0.1', $redis->port, 10.0)
            : $client->pconnect('127.0.0.1', $redis->port, 10.0, $persistent);
        $client->auth('secret');
        $client->select(3);
        $limiter = Gates::direct(PhpRedis::of($client))->limit('again', Limit::slidingLog(100, '1h'));
        $client->setOption(\Redis::OPT_PREFIX, 'app:');
        $client->setOption(\Redis::OPT_SERIALIZER, \Redis::SERIALIZER_JSON);
        $client->set('mine', ['a' => 1]);
        self::assertSame(99, $limiter->check('a')->remaining);
        $other = $redis->client();
        $other->auth('secret');
        foreach (['CLIENT KILL', 'restart'] as $way) {
            if ($way === 'restart') {
                $redis->stop();
                self::assertSame(Mode::Local, $limiter->check('b')->mode);
                $redis->start();
                $redis->client()->config('SET', 'requirepass', 'secret');
            } else {
                $other->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
            }
            Patience::until(static fn (): bool => $limiter->peek('a')->mode === Mode::Store, 'Redis decides again');
            self::assertSame(['app:', 3], [$client->getOption(\Redis::OPT_PREFIX), $client->getDbNum()], $way);
            self::assertSame($way === 'restart' ? null : ['a' => 1], $client->get('mine') ?: null, $way);
        }
    }

    public function testALostReplyToARefundSaysPerhapsCharged(): void
    {
        $proxy = new Proxy($this->redis->port);
        $limiter = $this->gate(port: $proxy->port)->limit('lost', Limit::slidingLog(100, '1h'));
        $limiter->check('a', 5);
        $proxy->loseNextReply();
        try {
            $limiter->refund('a', 2);
            self::fail('no error');
        } catch (StoreUnavailable $e) {
            self::assertTrue($e->perhapsCharged);
            self::assertSame(Charged::Unknown, $e->charged());
        }
        self::assertSame(97, $limiter->peek('a')->remaining);
    }

    public function testAKeyThatCannotBeReadLeavesOthersAlone(): void
    {
        $this->publish(1, self::ORDERS);
        $orders = $this->gate()->policy('orders');
        $this->redis->client()->hSet(Keys::state('orders', 'bad'), 'a', 'b');
        for ($number = 0; $number < 30; $number++) {
            $decision = $orders->check('bad');
            self::assertSame([false, Mode::Deny], [$decision->allowed, $decision->mode]);
            self::assertSame(Mode::Store, $orders->check("good$number")->mode);
        }
    }

    public function testWithoutRedisTheShareHoldsAndDebtsArePaid(): void
    {
        $redis = new RedisServer();
        $runner = new CountingRunner(Gates::runner($redis->port));
        $gate = Gates::direct($runner, nodes: 2, clock: $this->clock);
        $limiter = $gate->limit('api', Limit::slidingLog(20, '1h'));
        self::assertSame(16, $limiter->check('a', 4)->remaining);
        $redis->stop();
        $allowed = 0;
        for ($number = 0; $number < 20; $number++) {
            $decision = $limiter->check('a');
            self::assertSame(Mode::Local, $decision->mode);
            $allowed += $decision->allowed ? 1 : 0;
        }
        self::assertSame(8, $allowed);
        $this->assertError('not_charged', fn () => $limiter->refund('a'));
        $deny = $gate->limit('deny', Limit::slidingLog(20, '1h')->onStoreFailure(OnStoreFailure::Deny))->check('a');
        self::assertSame([false, Mode::Deny, 1_000_000], [$deny->allowed, $deny->mode, $deny->retryAfterUs]);
        $allow = $gate->limit('allow', Limit::slidingLog(20, '1h')->onStoreFailure(OnStoreFailure::Allow));
        self::assertSame(Mode::Allow, $allow->check('a', 7)->mode);
        // The breaker is open: requests do not wait for Redis.
        $calls = $runner->calls;
        $limiter->check('b');
        self::assertSame($calls, $runner->calls);
        $redis->start();
        $this->clock->advance(0.35);
        $back = $limiter->peek('b');
        self::assertSame(Mode::Store, $back->mode);
        $gate->close();
        $other = Gates::direct($redis->port);
        // Redis has lost its data, so only what was admitted here is known: 8 and 7 permits.
        self::assertSame(12, $other->limit('api', Limit::slidingLog(20, '1h'))->peek('a')->remaining);
        self::assertSame(13, $other->limit('allow', Limit::slidingLog(20, '1h'))->peek('a')->remaining);
    }

    public function testADebtIsChargedBeforeTheNextDecisionOfTheKey(): void
    {
        $redis = new RedisServer();
        $limiter = Gates::direct($redis->port, clock: $this->clock)->limit('api', Limit::slidingLog(20, '1h'));
        $limiter->check('a', 5);
        $redis->stop();
        for ($number = 0; $number < 10; $number++) {
            $limiter->check('a');
        }
        $redis->start();
        $this->clock->advance(0.35);
        $decision = $limiter->check('a');
        // Redis began anew: 10 that were owed, and this one.
        self::assertSame([Mode::Store, 9], [$decision->mode, $decision->remaining]);
        self::assertSame(8, $limiter->check('a')->remaining);
    }

    public function testAnUnreadablePolicyKeepsItsVersionAndIsAnErrorWithoutOne(): void
    {
        $this->publish(1, ['life_ms' => 0] + Fixture::record('plain'));
        $this->expectException(UnreadablePolicy::class);
        $this->expectExceptionMessage('policy: `plain` cannot be read: life_ms: expected an integer from 1 to ');
        $this->gate()->policy('plain')->check('a');
    }

    public function testWhatCannotBeReadIsSaidOnceInEachErrorAndNeverAtLength(): void
    {
        $long = str_repeat('x', 5000);
        $this->publish(
            1,
            ['name' => 'odd', 'apps' => []] + Fixture::record('plain'),
            ['name' => 'later', 'on_store_failure' => 'é'] + Fixture::record('plain'),
            ['name' => 'long', 'on_store_failure' => $long] + Fixture::record('plain'),
        );
        $gate = $this->gate();
        $causes = [
            'odd' => 'apps: expected a list of texts',
            'later' => 'on_store_failure: `é` is unknown to this program',
        ];
        foreach ($causes as $name => $cause) {
            foreach ([1, 2] as $time) {
                try {
                    $gate->policy($name)->check('a');
                    self::fail("$name is read");
                } catch (UnreadablePolicy $e) {
                    self::assertStringStartsWith("policy: `$name` cannot be read: $cause", $e->getMessage());
                }
            }
        }
        try {
            $gate->policy('long')->check('a');
            self::fail('it is read');
        } catch (UnreadablePolicy $e) {
            self::assertLessThan(1200, strlen($e->getMessage()));
        }
    }

    public function testFieldsBesideThePoliciesAreNone(): void
    {
        $this->publish(1, ['name' => 'p', 'rules' => [['sliding_log' => ['limit' => 1, 'window' => '1h']]]]);
        $gate = $this->gate();
        self::assertTrue($gate->policy('p')->check('a')->allowed);
        foreach (['#format', '#revision', '#clock', '#', '', 'P', 'a b', "p\n", str_repeat('p', 1_000_000)] as $name) {
            try {
                $gate->policy($name)->check('a');
                self::fail("$name decides");
            } catch (InvalidRequest $e) {
                self::assertSame('unknown_policy', $e->errorName);
                self::assertLessThan(1200, strlen($e->getMessage()));
            }
        }
        self::assertFalse($gate->policy('p')->check('a')->allowed);
    }

    public function testNobodyWaitsLongForARedisThatIsSilent(): void
    {
        $redis = new RedisServer();
        $runner = new CountingRunner(Gates::runner($redis->port));
        $gate = Gates::direct($runner, deadlineMs: 50, clock: $this->clock);
        $limiter = $gate->limit('silent', Limit::slidingLog(100, '1h'));
        $redis->signal(SIGSTOP);
        for ($number = 0; $number < 20; $number++) {
            $begin = hrtime(true);
            self::assertSame(Mode::Local, $limiter->check('a')->mode);
            // The deadline is 50 ms; the rest is for a machine that is busy. FaultsTest measures it.
            self::assertLessThan(2000, (hrtime(true) - $begin) / 1e6);
        }
        // Five until the breaker opens; by the clock of the test no time passes, so there is no probe.
        self::assertSame(5, $runner->calls);
        $redis->signal(SIGCONT);
        Patience::until(function () use ($limiter): bool {
            $this->clock->advance(0.35);
            return $limiter->check('b')->mode === Mode::Store;
        }, 'Redis decides again');
    }

    public function testMemoryDoesNotGrowWithDecisions(): void
    {
        $gate = $this->gate(new ProcessMemory(100));
        $limiter = $gate->limit('many', Limit::tokenBucket('1000/s', burst: 5));
        $decide = static function (int $count) use ($limiter): int {
            for ($number = 0; $number < $count; $number++) {
                $limiter->check('k' . $number % 1000);
            }
            return memory_get_usage();
        };
        $before = $decide(3_000);
        $count = getenv('SLUICEGATE_LONG') === '1' ? 1_000_000 : 12_000;
        self::assertLessThan(1_048_576, $decide($count) - $before);
    }

    public function testOneNodeOfAClusterFollows(): void
    {
        $redis = new RedisServer('--cluster-enabled', 'yes');
        $redis->client()->rawCommand('CLUSTER', 'ADDSLOTS', ...range(0, 16383));
        Patience::until(static fn (): bool => str_contains(
            (string) $redis->client()->rawCommand('CLUSTER', 'INFO'),
            'cluster_state:ok',
        ), 'the cluster is ready');
        foreach (['sg:{abc}', 'a{}b', '{', '', 'plain', "sg:\xff{x}{y}"] as $key) {
            self::assertSame($redis->client()->rawCommand('CLUSTER', 'KEYSLOT', $key), PhpRedisCluster::slot($key));
        }
        $gate = Gates::direct(new PhpRedisCluster(["127.0.0.1:$redis->port"], timeout: 10.0));
        $limiter = $gate->limit('c', Limit::slidingLog(20, '1h'));
        self::assertSame(19, $limiter->check('a')->remaining);
        self::assertSame(18, $limiter->check('a')->remaining);
    }

    private function assertError(string $name, callable $act): void
    {
        try {
            $act();
            self::fail("no error `$name`");
        } catch (SluicegateException $e) {
            self::assertSame($name, $e->errorName, $e->getMessage());
        }
    }
}
