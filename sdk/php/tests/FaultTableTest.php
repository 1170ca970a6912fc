<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Sluicegate\Decision;
use Sluicegate\Exception\NothingPublished;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\Gate;
use Sluicegate\HealthStatus;
use Sluicegate\Http\Refusal;
use Sluicegate\Limit;
use Sluicegate\Observation;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Runner;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Drip;
use Sluicegate\Tests\Support\FixedRunner;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\RecordingLogger;
use Sluicegate\Tests\Support\HttpServer;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Proxy;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * Table of faults: of each the answer, the line in the log, the health, the metric, and how it ends.
 */
final class FaultTableTest extends TestCase
{
    private const ORDERS = ['name' => 'orders', 'rules' => [
        ['name' => 'hour', 'sliding_log' => ['limit' => 100, 'window' => '1h']],
    ]];

    private RedisServer $redis;
    private ManualClock $clock;
    private RecordingLogger $logger;
    /** @var list<Observation> */
    private array $seen = [];

    protected function setUp(): void
    {
        RedisServer::require();
        $this->clock = new ManualClock();
        $this->logger = new RecordingLogger();
    }

    /**
     * Faults of a Redis that answered before: the policy is held.
     *
     * @return iterable<string, array{
     *   callable(RedisServer, Proxy): mixed, callable(RedisServer, Proxy): mixed, string, string, HealthStatus, string
     * }>
     */
    public static function faults(): iterable
    {
        yield 'killed' => [
            static fn (RedisServer $redis) => $redis->stop(),
            static function (RedisServer $redis): void {
                $redis->start();
                Published::in($redis->client(), 2, self::ORDERS);
            },
            'local', 'does not answer: .+', HealthStatus::Degraded, 'does not answer: ',
        ];
        yield 'frozen' => [
            static fn (RedisServer $redis) => $redis->signal(SIGSTOP),
            static fn (RedisServer $redis) => $redis->signal(SIGCONT),
            'local', 'does not answer: .+', HealthStatus::Degraded, 'does not answer: ',
        ];
        yield 'slow by 70 ms' => [
            static fn (RedisServer $redis, Proxy $proxy) => $proxy->slowDown(70),
            static fn (RedisServer $redis, Proxy $proxy) => $proxy->slowDown(0),
            'local', 'does not answer: .+', HealthStatus::Degraded, 'does not answer: ',
        ];
        yield 'full' => [
            static fn (RedisServer $redis) => $redis->client()->config('SET', 'maxmemory', '1'),
            static fn (RedisServer $redis) => $redis->client()->config('SET', 'maxmemory', '0'),
            'local', 'does not decide: .*OOM.*', HealthStatus::Degraded, 'OOM',
        ];
        yield 'read-only' => [
            static fn (RedisServer $redis) => $redis->client()->rawCommand('REPLICAOF', '127.0.0.1', '1'),
            static fn (RedisServer $redis) => $redis->client()->rawCommand('REPLICAOF', 'NO', 'ONE'),
            'local', 'does not decide: .*READONLY.*', HealthStatus::Degraded, 'READONLY',
        ];
        yield 'another password' => [
            static function (RedisServer $redis): void {
                $client = $redis->client();
                $client->config('SET', 'requirepass', 's3cret');
                $client->auth('s3cret');
                $client->rawCommand('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
            },
            static function (RedisServer $redis): void {
                $client = $redis->client();
                $client->auth('s3cret');
                $client->config('SET', 'requirepass', '');
            },
            'local', 'does not (answer|decide): .+', HealthStatus::Degraded, 'NOAUTH',
        ];
    }

    /** @dataProvider faults */
    public function testAFaultOfARedisThatAnsweredBefore(
        callable $break,
        callable $mend,
        string $mode,
        string $line,
        HealthStatus $status,
        string $cause,
    ): void {
        $this->redis = new RedisServer('--maxmemory-policy', 'noeviction');
        Published::in($this->redis->client(), 1, self::ORDERS);
        $proxy = new Proxy($this->redis->port);
        $gate = $this->gate(PhpRedis::connect('127.0.0.1', $proxy->port), 50);
        $orders = $gate->policy('orders');
        $this->untilStore($gate);
        $this->logger->lines = [];
        $break($this->redis, $proxy);
        // The answer, and the metric. On a busy machine some calls are shed before.
        $decision = Patience::until(static function () use ($orders, $mode): ?Decision {
            $decision = $orders->check('a');
            return $decision->mode->value === $mode ? $decision : null;
        }, "it is decided by $mode");
        self::assertTrue($decision->allowed);
        self::assertSame(['allowed', $mode, ''], $this->metric());
        // The log: a line for each cause. A connection that is cut may be a cause of its own, before the error.
        $address = preg_quote("Redis at 127.0.0.1:$proxy->port");
        self::assertNotEmpty($this->logger->lines);
        self::assertLessThanOrEqual(4, count($this->logger->lines));
        self::assertMatchesRegularExpression("/^warning sluicegate: $address $line; on_store_failure of each policy "
            . "decides, `local` by this host's share$/m", implode("\n", $this->logger->lines));
        // The health.
        $health = $gate->health();
        self::assertSame([$status, "127.0.0.1:$proxy->port"], [$health->status, $health->address], $health->cause);
        self::assertStringContainsString($cause, $health->cause);
        self::assertStringNotContainsString('s3cret', $health->cause . implode('', $this->logger->lines));
        // The end.
        $mend($this->redis, $proxy);
        $this->untilStore($gate);
        self::assertContains("notice sluicegate: Redis at 127.0.0.1:$proxy->port decides again", $this->logger->lines);
        Patience::until(static fn (): bool => $gate->health()->isUp(), 'its health is good again');
        self::assertSame(['allowed', 'store', ''], $this->metric());
    }

    /**
     * Faults of a Redis that never answered.
     *
     * @return iterable<string, array{callable(self): Runner, string}>
     */
    public static function faultsFromTheBegin(): iterable
    {
        yield 'nothing listens' => [
            static fn () => PhpRedis::connect('127.0.0.1', RedisServer::freePort()), 'does not answer: .*refused',
        ];
        yield 'no such host' => [static fn () => PhpRedis::connect('host.invalid', 1), 'does not answer: .+'];
        yield 'a wrong password' => [static function (self $of): PhpRedis {
            $of->redis = new RedisServer();
            $of->redis->client()->config('SET', 'requirepass', 's3cret');
            return PhpRedis::connect('127.0.0.1', $of->redis->port, 'wrong-s3cret', 10.0);
        }, 'answers with an error: WRONGPASS.*'];
        yield 'a wrong password, by Predis' => [static function (self $of): Predis {
            $of->redis = new RedisServer();
            $of->redis->client()->config('SET', 'requirepass', 's3cret');
            return self::predis($of->redis->port, ['password' => 'wrong-s3cret']);
        }, 'answers with an error: .*WRONGPASS.*'];
        yield 'a wrong password, by a cluster' => [static function (self $of): PhpRedisCluster {
            $of->redis = new RedisServer();
            $of->redis->client()->config('SET', 'requirepass', 's3cret');
            return new PhpRedisCluster(["127.0.0.1:{$of->redis->port}"], 'wrong-s3cret', 10.0);
        }, 'answers with an error: WRONGPASS.*'];
        yield 'no password' => [static function (self $of): PhpRedis {
            $of->redis = new RedisServer();
            $of->redis->client()->config('SET', 'requirepass', 's3cret');
            return Gates::runner($of->redis->port);
        }, 'answers with an error: NOAUTH.*'];
        yield 'TLS is expected' => [static function (self $of): PhpRedis {
            $of->other = new Drip("\x15\x03\x01\x00\x02\x02\x46", '', 0);
            return Gates::runner($of->other->port);
        }, 'does not answer: it expects TLS, as rediss://HOST or tls://HOST say'];
        foreach (['' => '.*expects TLS.*', 'tls://' => '.*certificate verify failed.*'] as $scheme => $cause) {
            yield "a Redis with TLS, by {$scheme}127.0.0.1" => [static function (self $of) use ($scheme): PhpRedis {
                $port = $of->startWithTls();
                return PhpRedis::connect("{$scheme}127.0.0.1", $port, null, 10.0);
            }, "does not answer: $cause"];
        }
        yield 'something else than Redis' => [static function (self $of): PhpRedis {
            $of->other = new Drip("HTTP/1.1 400 Bad Request\r\n\r\n", '', 0);
            return Gates::runner($of->other->port);
        }, "answers, but not as Redis does: protocol error, got 'H' .*"];
        yield 'something else than Redis, by Predis' => [static function (self $of): Predis {
            $of->other = new Drip("HTTP/1.1 400 Bad Request\r\n\r\n", '', 0);
            return self::predis($of->other->port);
        }, "answers, but not as Redis does: .*'H'.*"];
    }

    /** @param array<string, string> $options */
    private static function predis(int $port, array $options = []): Predis
    {
        if (!class_exists(Client::class)) {
            @include_once 'Predis/autoload.php';
        }
        if (!class_exists(Client::class)) {
            $reason = 'Predis is not installed';
            getenv('CI') === 'true' ? self::fail($reason) : self::markTestSkipped($reason);
        }
        return new Predis(new Client(['host' => '127.0.0.1', 'port' => $port, 'timeout' => 10] + $options));
    }

    private ?Drip $other = null;

    /** Starts a Redis that also listens for TLS, with a certificate that nobody trusts; returns that port. */
    private function startWithTls(): int
    {
        $dir = sys_get_temp_dir() . '/sgtls' . getmypid();
        is_dir($dir) || mkdir($dir, 0700);
        $key = openssl_pkey_new(['private_key_bits' => 2048]) ?: self::markTestSkipped('no keys');
        $request = openssl_csr_new(['commonName' => '127.0.0.1'], $key);
        openssl_x509_export_to_file(openssl_csr_sign($request, null, $key, 2) ?: '', "$dir/cert");
        openssl_pkey_export_to_file($key, "$dir/key");
        $port = RedisServer::freePort();
        $files = ['--tls-cert-file', "$dir/cert", '--tls-key-file', "$dir/key", '--tls-ca-cert-file', "$dir/cert"];
        try {
            $this->redis = new RedisServer('--tls-port', (string) $port, '--tls-auth-clients', 'no', ...$files);
        } catch (\RuntimeException $e) {
            getenv('CI') === 'true' ? throw $e : self::markTestSkipped('this Redis has no TLS');
        }
        array_map(unlink(...), glob("$dir/*") ?: []);
        rmdir($dir);
        return $port;
    }

    /**
     * @dataProvider faultsFromTheBegin
     * @param callable(self): Runner $at
     */
    public function testAFaultFromTheBegin(callable $at, string $cause): void
    {
        $runner = $at($this);
        $address = (string) preg_replace('~/0$~', '', $runner->endpoint());
        $gate = $this->gate($runner, 2000);
        $where = "Redis at $address $cause";
        for ($number = 0; $number < 3; $number++) {
            try {
                $gate->policy('orders')->check('a');
                self::fail('no exception');
            } catch (SluicegateException $e) {
                self::assertMatchesRegularExpression(
                    "~^store: $where, and policy `orders` is not held; nothing was charged$~",
                    $e->getMessage(),
                );
                self::assertSame(503, Refusal::undecided($e)->status);
                self::assertStringNotContainsString('orders', Refusal::undecided($e)->body);
            }
        }
        self::assertSame(['error', '', 'not_charged'], $this->metric());
        self::assertCount(1, $this->logger->lines);
        self::assertMatchesRegularExpression(
            "~^warning sluicegate: policies: $where; none is held, so requests that need a policy get no decision$~",
            $this->logger->lines[0],
        );
        $health = $gate->health('orders');
        self::assertSame([HealthStatus::Down, $address], [$health->status, $health->address]);
        self::assertMatchesRegularExpression("~^$where$~", $health->cause);
        // The share of this host decides a limit in code, and the mode reports it.
        self::assertSame('local', $gate->limit('mail', Limit::slidingLog(9, '1h'))->check('a')->mode->value);
        $what = str_starts_with($cause, 'answers') ? 'does not decide' : 'does not answer';
        self::assertStringContainsString("Redis at $address $what: ", $this->logger->lines[1]);
        self::assertStringNotContainsString('s3cret', implode('', $this->logger->lines) . $health->cause);
    }

    public function testAReplyThatIsNotOfTheScriptIsAnAnswer(): void
    {
        $gate = $this->gate(new FixedRunner(7));
        self::assertSame('local', $gate->limit('mail', Limit::slidingLog(9, '1h'))->check('a')->mode->value);
        self::assertStringContainsString(' does not decide: not a reply of the script; ', $this->logger->lines[0]);
    }

    public function testWhereNothingIsPublished(): void
    {
        $this->redis = new RedisServer();
        $gate = $this->gate(Gates::runner($this->redis->port));
        $what = "policy: no policies are published in the Redis at 127.0.0.1:{$this->redis->port}; start a server on "
            . 'it (its `store.publish` is `true` unless set)';
        for ($number = 0; $number < 3; $number++) {
            try {
                $gate->policy('orders')->check('a');
                self::fail('no exception');
            } catch (NothingPublished $e) {
                self::assertSame(['nothing_published', $what], [$e->errorName, $e->getMessage()]);
                self::assertSame('no', $e->charged()->value);
                self::assertSame(503, Refusal::undecided($e)->status);
            }
        }
        self::assertSame(['error', '', 'nothing_published'], $this->metric());
        self::assertSame([
            "warning sluicegate: policies: $what; none is held, so requests that need a policy get no decision",
        ], $this->logger->lines);
        self::assertEquals([HealthStatus::Down, $what], [$gate->health()->status, $gate->health()->cause]);
        // A program that needs no policy is well.
        $code = $this->gate(Gates::runner($this->redis->port));
        self::assertSame('store', $code->limit('mail', Limit::slidingLog(9, '1h'))->check('a')->mode->value);
        self::assertTrue($code->health()->isUp());
        self::assertSame(HealthStatus::Down, $code->health('orders')->status);
        Published::in($this->redis->client(), 1, self::ORDERS);
        $this->clock->advance(11.1);
        $this->untilStore($gate);
        self::assertTrue($gate->health()->isUp());
        $again = "notice sluicegate: policies are read again from the Redis at 127.0.0.1:{$this->redis->port}";
        self::assertContains($again, $this->logger->lines);
    }

    public function testARedisThatComesBackEmptyKeepsThePoliciesInForce(): void
    {
        $this->redis = new RedisServer();
        Published::in($this->redis->client(), 1, self::ORDERS);
        $gate = $this->gate(Gates::runner($this->redis->port));
        self::assertSame(99, $gate->policy('orders')->check('a')->remaining);
        $this->redis->client()->flushAll();
        $this->clock->advance(11.1);
        self::assertSame([99, 'store'], [
            ($decision = $gate->policy('orders')->check('a'))->remaining, $decision->mode->value,
        ]);
        self::assertStringEndsWith('; policies that are held stay in force', $this->logger->lines[0]);
        self::assertSame(HealthStatus::Degraded, $gate->health()->status);
        // One that is not held is not unknown.
        try {
            $gate->policy('other')->check('a');
            self::fail('no exception');
        } catch (NothingPublished $e) {
            self::assertStringContainsString("127.0.0.1:{$this->redis->port}", $e->getMessage());
        }
    }

    public function testPoliciesThatAreEditedRemovedAndRenamed(): void
    {
        $this->redis = new RedisServer();
        $client = $this->redis->client();
        $policy = static fn (string $name, int $limit): array => ['name' => $name, 'rules' => [
            ['name' => 'hour', 'sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]];
        Published::in($client, 1, $policy('orders', 100));
        $gate = $this->gate(Gates::runner($this->redis->port));
        $orders = $gate->policy('orders');
        self::assertSame(99, $orders->check('a')->remaining);
        Published::in($client, 2, $policy('orders', 50));
        $this->clock->advance(11.1);
        self::assertSame(48, $orders->check('a')->remaining);
        // Renamed: the old name is removed, and the new one has budgets of its own.
        Published::in($client, 3, $policy('purchases', 50));
        $this->clock->advance(11.1);
        for ($number = 0; $number < 3; $number++) {
            try {
                $orders->check('a');
                self::fail('no exception');
            } catch (SluicegateException $e) {
                self::assertSame('unknown_policy', $e->errorName);
            }
        }
        self::assertSame(['error', '', 'unknown_policy'], $this->metric());
        $where = "in the Redis at 127.0.0.1:{$this->redis->port}";
        self::assertSame(
            ["warning sluicegate: policy `orders` is not published $where; requests get no decision"],
            $this->logger->lines,
        );
        self::assertSame(49, $gate->policy('purchases')->check('a')->remaining);
        // What is used no more is no fault; what is required is.
        self::assertTrue($gate->health()->isUp());
        $health = $gate->health('orders');
        self::assertSame(
            [HealthStatus::Down, 'policy: unknown policy `orders`'],
            [$health->status, $health->cause],
        );
        $gate->require('purchases');
        $this->expectExceptionMessage('unknown policy `orders`');
        $gate->require('purchases', 'orders');
    }

    public function testAPolicyOfOtherAppsIsNamedInTheLog(): void
    {
        $this->redis = new RedisServer();
        Published::in($this->redis->client(), 1, ['apps' => ['billing']] + self::ORDERS);
        $gate = $this->gate(Gates::runner($this->redis->port));
        for ($number = 0; $number < 3; $number++) {
            try {
                $gate->policy('orders')->check('a');
                self::fail('no exception');
            } catch (SluicegateException $e) {
                self::assertSame('app_missing', $e->errorName);
            }
        }
        self::assertSame(['error', '', 'app_missing'], $this->metric());
        $what = 'policy `orders` is not available to a caller without an app';
        self::assertSame(["warning sluicegate: app: $what; requests get no decision"], $this->logger->lines);
        try {
            $gate->require('orders');
            self::fail('no exception');
        } catch (SluicegateException $e) {
            self::assertStringContainsString('policy `orders` is not available', $e->getMessage());
        }
        Published::in($this->redis->client(), 2, self::ORDERS);
        $this->clock->advance(11.1);
        $gate->policy('orders')->check('a');
        $gate->policy('orders')->check('a');
        $again = ['notice sluicegate: policy `orders` is available to this program again'];
        self::assertSame($again, array_slice($this->logger->lines, 1));
    }

    public function testAPolicyThatCannotBeReadIsAFaultOfItsOwn(): void
    {
        $this->redis = new RedisServer();
        Published::in($this->redis->client(), 1, self::ORDERS, ['name' => 'odd', 'blob' => '?'] + self::ORDERS);
        $gate = $this->gate(Gates::runner($this->redis->port));
        self::assertSame(99, $gate->policy('orders')->check('a')->remaining);
        for ($number = 0; $number < 3; $number++) {
            try {
                $gate->policy('odd')->check('a');
                self::fail('no exception');
            } catch (UnreadablePolicy $e) {
                self::assertStringStartsWith('policy: `odd` cannot be read: ', $e->getMessage());
            }
        }
        self::assertSame(['error', '', 'unreadable_policy'], $this->metric());
        self::assertCount(1, $this->logger->lines);
        self::assertStringStartsWith('warning sluicegate: policy: `odd` cannot be read: ', $this->logger->lines[0]);
        self::assertStringEndsWith('; requests under it get no decision', $this->logger->lines[0]);
        self::assertSame(HealthStatus::Degraded, $gate->health()->status);
        self::assertStringStartsWith('policy: `odd` cannot be read: ', $gate->health()->cause);
        Published::in($this->redis->client(), 2, self::ORDERS, ['name' => 'odd'] + self::ORDERS);
        $this->clock->advance(11.1);
        self::assertTrue($gate->policy('odd')->check('a')->allowed);
        self::assertTrue($gate->health()->isUp());
        $again = "notice sluicegate: policy `odd` can be read again in the Redis at 127.0.0.1:{$this->redis->port}";
        self::assertSame($again, $this->logger->lines[1]);
    }

    public function testARecordThatIsDamagedAndMendedCanBeReadAgain(): void
    {
        $this->redis = new RedisServer();
        $gate = $this->gate(Gates::runner($this->redis->port));
        $redis = $this->redis->client();
        Published::in($redis, 1, self::ORDERS);
        $record = $redis->hGet(Keys::POLICIES, 'orders');
        foreach ([$record, '?', $record] as $place => $published) {
            $redis->hMSet(Keys::POLICIES, ['orders' => $published, '#revision' => $place + 1]);
            $this->clock->advance(11.1);
            self::assertTrue($gate->policy('orders')->check('a')->allowed);
            foreach ([$gate->health(), $gate->health('orders')] as $health) {
                self::assertSame($place === 1 ? HealthStatus::Degraded : HealthStatus::Up, $health->status);
                $place !== 1 ?: self::assertStringStartsWith('policy: `orders` cannot be read: ', $health->cause);
            }
        }
        self::assertCount(2, $this->logger->lines);
        self::assertStringEndsWith('; the version before decides', $this->logger->lines[0]);
        $again = "notice sluicegate: policy `orders` can be read again in the Redis at 127.0.0.1:{$this->redis->port}";
        self::assertSame($again, $this->logger->lines[1]);
    }

    public function testHealthIsThatOfTheNamesThatItIsAskedFor(): void
    {
        $this->redis = new RedisServer();
        $gate = $this->gate(Gates::runner($this->redis->port));
        Published::in($this->redis->client(), 1, self::ORDERS, ['name' => 'later', 'record' => 2]);
        self::assertTrue($gate->policy('orders')->check('a')->allowed);
        // Requests under these two get no decision, whatever else decides.
        foreach ([['later'], ['none'], ['later', 'none']] as $names) {
            self::assertSame(HealthStatus::Down, $gate->health(...$names)->status, implode(' ', $names));
        }
        self::assertSame(HealthStatus::Degraded, $gate->health('later', 'orders')->status);
        self::assertSame(HealthStatus::Degraded, $gate->health('orders', 'none')->status);
        self::assertSame(HealthStatus::Degraded, $gate->health()->status);
    }

    /** The first of the two takes nothing from anybody, so its line must not be that of the second. */
    public function testARecordOfALaterVersionIsLoggedSoonAfterADamagedOne(): void
    {
        $this->redis = new RedisServer();
        $gate = $this->gate(Gates::runner($this->redis->port));
        $redis = $this->redis->client();
        Published::in($redis, 1, self::ORDERS);
        self::assertTrue($gate->policy('orders')->check('a')->allowed);
        $ends = ['?' => '; the version before decides', '{"record":2}' => '; requests under it get no decision'];
        foreach ($ends as $record => $end) {
            $redis->hMSet(Keys::POLICIES, ['orders' => $record, '#revision' => 1 + strlen($record)]);
            $this->clock->advance(11.1);
            try {
                $gate->policy('orders')->check('a');
            } catch (UnreadablePolicy) {
                self::assertNotSame('?', $record);
            }
            self::assertStringEndsWith($end, (string) end($this->logger->lines));
        }
        self::assertCount(2, $this->logger->lines);
    }

    /** @return iterable<string, array{callable(self): string, string, string}> */
    public static function faultsOfAServer(): iterable
    {
        foreach (['http', 'resp'] as $wire) {
            yield "away, $wire" => [
                static fn () => "$wire://127.0.0.1:" . RedisServer::freePort(), 'not_charged', '(?i:refused|connect)',
            ];
            // Over RESP the token goes first, and has no answer, so nothing was asked.
            yield "hung, $wire" => [static function (self $of) use ($wire): string {
                $of->hung = stream_socket_server('tcp://127.0.0.1:0');
                return "$wire://" . stream_socket_get_name($of->hung, false);
            }, $wire === 'http' ? 'perhaps_charged' : 'not_charged', '.+'];
        }
        foreach ([500, 502, 503] as $status) {
            yield "$status" => [static function (self $of) use ($status): string {
                $of->odd = new HttpServer(__DIR__ . '/Support/odd.php', [
                    'STATUS' => (string) $status, 'BODY' => '{"detail":"broken"}',
                ]);
                return $of->odd->url;
            }, 'server', "server: $status broken"];
        }
        yield 'a wrong token' => [static function (self $of): string {
            $of->odd = new HttpServer(__DIR__ . '/Support/odd.php', [
                'STATUS' => '401', 'BODY' => '{"detail":"invalid token"}',
            ]);
            return $of->odd->url;
        }, 'server', 'server: 401 invalid token'];
    }

    private ?HttpServer $odd = null;
    /** @var resource|null listens, and never answers */
    private $hung = null;

    /**
     * @dataProvider faultsOfAServer
     * @param callable(self): string $at
     */
    public function testAFaultOfAServer(callable $at, string $error, string $cause): void
    {
        $url = $at($this);
        $gate = Gate::remote($url, token: 's3cret', timeoutMs: 300, observer: $this->observer(), logger: $this->logger);
        for ($number = 0; $number < 3; $number++) {
            try {
                $gate->policy('orders')->check('a');
                self::fail('no exception');
            } catch (SluicegateException $e) {
                self::assertSame($error, $e->errorName, $e->getMessage());
                self::assertSame(503, Refusal::undecided($e)->status);
            }
        }
        self::assertSame(['error', '', $error], $this->metric());
        self::assertCount(1, $this->logger->lines);
        self::assertMatchesRegularExpression(
            "~^warning sluicegate: the server at $url gives no decision: .*$cause.*; requests get none$~",
            $this->logger->lines[0],
        );
        $health = $gate->health();
        self::assertSame([HealthStatus::Down, $url], [$health->status, $health->address]);
        self::assertNotSame('', $health->cause);
        self::assertStringNotContainsString('s3cret', implode('', $this->logger->lines) . $health->cause);
    }

    /** @return iterable<string, array{string}> */
    public static function wires(): iterable
    {
        yield 'HTTP' => ['http'];
        yield 'RESP' => ['resp'];
    }

    /** @dataProvider wires */
    public function testAServerThatComesBackIsSaidToBeBack(string $wire): void
    {
        Server::require();
        $port = RedisServer::freePort();
        $gate = Gates::remote("$wire://127.0.0.1:$port", observer: $this->observer(), logger: $this->logger);
        try {
            $gate->policy('orders')->check('a');
            self::fail('no exception');
        } catch (SluicegateException) {
            self::assertSame(HealthStatus::Down, $gate->health()->status);
        }
        $listen = ['http' => 'SLUICEGATE__HTTP__LISTEN', 'resp' => 'SLUICEGATE__RESP__LISTEN'][$wire];
        $env = [$listen => "127.0.0.1:$port"] + ['SLUICEGATE__HTTP__LISTEN' => '127.0.0.1:0'];
        $server = new Server([self::ORDERS], $env, listen: false);
        self::assertSame(99, $gate->policy('orders')->check('a')->remaining);
        self::assertSame(['allowed', 'store', ''], $this->metric());
        $again = "notice sluicegate: the server at $wire://127.0.0.1:$port decides again";
        self::assertSame($again, $this->logger->lines[1]);
        self::assertTrue($gate->health()->isUp());
        self::assertTrue($gate->health('orders')->isUp());
        self::assertSame(HealthStatus::Down, $gate->health('none')->status);
        $some = $gate->health('none', 'orders');
        self::assertSame([HealthStatus::Degraded, "$wire://127.0.0.1:$port"], [$some->status, $some->address]);
        self::assertStringContainsString('unknown policy `none`', $some->cause);
        $gate->require('orders');
        try {
            $gate->policy('none')->check('a');
            self::fail('no exception');
        } catch (SluicegateException $e) {
            self::assertSame('unknown_policy', $e->errorName);
        }
        $missing = "warning sluicegate: the server at $wire://127.0.0.1:$port has no policy `none` for this program";
        self::assertCount(3, $this->logger->lines);
        self::assertStringStartsWith($missing, $this->logger->lines[2]);
        unset($server);
        $server = new Server([self::ORDERS, ['name' => 'none'] + self::ORDERS], $env, listen: false);
        // The connection to the server before is gone.
        Patience::until(static fn (): bool => $gate->health('none', 'orders')->isUp(), 'the policy is back');
        $gate->policy('none')->check('a');
        self::assertCount(1, preg_grep(
            "~^notice sluicegate: the server at $wire://127.0.0.1:$port decides by policy `none` again$~",
            $this->logger->lines,
        ) ?: []);
        unset($server);
    }

    /** @dataProvider wires */
    public function testAServerThatDoesNotAcceptTheTokenIsDown(string $wire): void
    {
        Server::require();
        $file = (string) tempnam(sys_get_temp_dir(), 'sgt');
        file_put_contents($file, "a-token-of-this-test\n");
        $server = new Server([self::ORDERS], [
            'SLUICEGATE__HTTP__TOKEN_FILE' => $file, 'SLUICEGATE__RESP__PASSWORD' => 'a-token-of-this-test',
        ]);
        $url = "$wire://" . $server->address($wire);
        foreach (['a-wrong-token-s3cret', null] as $token) {
            $gate = Gates::remote($url, token: $token, observer: $this->observer(), logger: $this->logger);
            for ($number = 0; $number < 2; $number++) {
                try {
                    $gate->policy('orders')->check('a');
                    self::fail('no exception');
                } catch (SluicegateException $e) {
                    self::assertSame(503, Refusal::undecided($e)->status);
                    self::assertSame('no', $e->charged()->value);
                }
            }
            self::assertSame(['error', ''], array_slice($this->metric(), 0, 2));
            $health = $gate->health();
            self::assertSame([HealthStatus::Down, $url], [$health->status, $health->address]);
            self::assertNotSame('', $health->cause);
            self::assertStringNotContainsString('s3cret', $health->cause);
        }
        // Over RESP there are two causes: the login fails, or there is none.
        self::assertCount($wire === 'http' ? 1 : 2, $this->logger->lines, implode("\n", $this->logger->lines));
        foreach ($this->logger->lines as $line) {
            self::assertStringStartsWith("warning sluicegate: the server at $url gives no decision: ", $line);
            self::assertStringNotContainsString('s3cret', $line);
        }
        $right = Gates::remote($url, token: 'a-token-of-this-test');
        self::assertSame(99, $right->policy('orders')->check('a')->remaining);
        self::assertTrue($right->health('orders')->isUp());
        unlink($file);
    }

    private function gate(Runner $redis, int $deadlineMs = Gates::DEADLINE_MS): Gate
    {
        return Gates::direct(
            $redis,
            deadlineMs: $deadlineMs,
            clock: $this->clock,
            logger: $this->logger,
            observer: $this->observer(),
        );
    }

    private function untilStore(Gate $gate): void
    {
        Patience::until(function () use ($gate): bool {
            $this->clock->advance(0.35);
            return $gate->policy('orders')->check('other')->mode->value === 'store';
        }, 'Redis decides');
    }

    private function observer(): callable
    {
        return function (Observation $of): void {
            $this->seen[] = $of;
        };
    }

    /** @return array{string, string, string} the labels of the last request */
    private function metric(): array
    {
        $last = end($this->seen);
        self::assertInstanceOf(Observation::class, $last);
        return [$last->result(), $last->mode(), $last->errorName()];
    }
}
