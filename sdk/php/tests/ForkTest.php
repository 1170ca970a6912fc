<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Redis;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Mode;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Runner;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Processes;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * A program that forks after it asked: children never read the connection of their parent.
 */
final class ForkTest extends TestCase
{
    private const CHILDREN = 4;
    private const CALLS = 50;

    protected function setUp(): void
    {
        Processes::require();
    }

    /** @return iterable<string, array{callable(int): Runner}> */
    public static function runners(): iterable
    {
        yield 'phpredis' => [static fn (int $port): Runner => Gates::runner($port)];
        yield 'phpredis, persistent' => [static fn (int $port): Runner =>
            PhpRedis::persistent('127.0.0.1', $port, null, 10.0)];
        yield 'phpredis of the program' => [static function (int $port): Runner {
            $client = new Redis();
            $client->connect('127.0.0.1', $port);
            return PhpRedis::of($client);
        }];
        yield 'Predis' => [static fn (int $port): Runner => new Predis(new Client(['port' => $port]))];
    }

    /**
     * @dataProvider runners
     * @param callable(int): Runner $runner
     */
    public function testEachProcessReadsItsOwnReplies(callable $runner): void
    {
        $redis = RedisServer::shared();
        $this->assertEachProcessReadsItsOwnReplies(Gates::direct($runner($redis->port)));
        self::assertSame(10_000, Gates::direct($redis->port)->limit('other', self::limit())->peek('a')->limit);
    }

    public function testEachProcessReadsItsOwnRepliesOfACluster(): void
    {
        $redis = new RedisServer('--cluster-enabled', 'yes');
        $redis->client()->rawCommand('CLUSTER', 'ADDSLOTS', ...range(0, 16383));
        Patience::until(static fn (): bool => str_contains(
            (string) $redis->client()->rawCommand('CLUSTER', 'INFO'),
            'cluster_state:ok',
        ), 'the cluster is ready');
        $cluster = new PhpRedisCluster(["127.0.0.1:$redis->port"], timeout: 10.0);
        $this->assertEachProcessReadsItsOwnReplies(Gates::direct($cluster));
        $cluster = new Predis(new Client(["tcp://127.0.0.1:$redis->port"], ['cluster' => 'redis']));
        $this->assertEachProcessReadsItsOwnReplies(Gates::direct($cluster), 'b');
    }

    /** @return iterable<string, array{string}> */
    public static function wires(): iterable
    {
        yield 'HTTP' => ['http'];
        yield 'RESP' => ['resp'];
    }

    /** @dataProvider wires */
    public function testEachProcessReadsItsOwnAnswersOfAServer(string $wire): void
    {
        Server::require();
        $rules = [['fixed_window' => ['limit' => 10_000, 'window' => '1h', 'align' => 'first']]];
        $server = new Server([['name' => 'fork', 'rules' => $rules]]);
        $gate = Gates::remote("$wire://" . $server->address($wire));
        $this->assertEachProcessReadsItsOwnReplies($gate, limiter: $gate->policy('fork'));
    }

    private function assertEachProcessReadsItsOwnReplies(
        Gate $gate,
        string $key = 'a',
        ?Limiter $limiter = null,
    ): void {
        $limiter ??= $gate->limit('fork', self::limit());
        self::assertSame(9_999, $limiter->check($key)->remaining);
        $processes = new Processes(self::CHILDREN, static function (int $number) use ($limiter, $key): array {
            $remaining = [];
            for ($call = 0; $call < self::CALLS; $call++) {
                // Each cost is only of this process: the reply of another one would show.
                $decision = $limiter->check($key, 2 + $number);
                $remaining[] = [$decision->mode->value, $decision->granted, $decision->remaining];
            }
            return $remaining;
        });
        $own = [];
        for ($call = 0; $call < self::CALLS; $call++) {
            $decision = $limiter->check($key);
            self::assertSame([Mode::Store, 1], [$decision->mode, $decision->granted]);
            $own[] = $decision->remaining;
        }
        $taken = 1 + self::CALLS;
        $all = $own;
        foreach ($processes->results() as $number => $calls) {
            foreach ($calls as [$mode, $granted, $remaining]) {
                self::assertSame(['store', 2 + $number], [$mode, $granted]);
                $all[] = $remaining;
            }
            $taken += self::CALLS * (2 + $number);
        }
        self::assertSame(count($all), count(array_unique($all)), 'a reply was read twice');
        self::assertSame(10_000 - $taken, $limiter->peek($key)->remaining);
    }

    private static function limit(): Limit
    {
        return Limit::fixedWindow(10_000, '1h', fromFirst: true);
    }
}
