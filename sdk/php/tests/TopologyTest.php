<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Redis;
use Sluicegate\Limit;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Redis\Keys;
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
 * A Redis that moves: failover by Sentinel, and slots of a cluster that go to another node.
 */
final class TopologyTest extends TestCase
{
    private const NODES = 3;

    /** The number of times that the slot moves. */
    private const MOVES = 6;

    protected function setUp(): void
    {
        RedisServer::require();
        !function_exists('apcu_clear_cache') || apcu_clear_cache();
    }

    public function testAfterAFailoverTheNewMasterDecides(): void
    {
        $master = new RedisServer();
        $replica = new RedisServer('--replicaof', '127.0.0.1', (string) $master->port);
        $sentinels = [];
        for ($number = 0; $number < 3; $number++) {
            $sentinels[] = new RedisServer('--sentinel');
            $sentinel = end($sentinels)->client();
            $sentinel->rawCommand('SENTINEL', 'MONITOR', 'orders', '127.0.0.1', (string) $master->port, '2');
            $sentinel->rawCommand('SENTINEL', 'SET', 'orders', 'down-after-milliseconds', '500');
            $sentinel->rawCommand('SENTINEL', 'SET', 'orders', 'failover-timeout', '1000');
        }
        $addresses = array_map(static fn (RedisServer $of): string => "127.0.0.1:$of->port", $sentinels);
        Patience::until(static function () use ($sentinels): bool {
            foreach ($sentinels as $sentinel) {
                $flat = $sentinel->client()->rawCommand('SENTINEL', 'MASTER', 'orders');
                $about = array_combine(...self::halves($flat));
                if ($about['num-other-sentinels'] !== '2' || $about['num-slaves'] !== '1') {
                    return false;
                }
            }
            return true;
        }, 'the Sentinels know each other', 60);
        Patience::until(
            static fn (): bool => $replica->client()->info('replication')['master_link_status'] === 'up',
            'the replica follows',
            60,
        );
        $limit = Limit::slidingLog(100, '1h')->onStoreFailure(OnStoreFailure::Deny);
        $limiters = array_map(static fn (Runner $runner) => Gates::direct($runner)->limit('f', $limit), [
            'phpredis' => PhpRedis::sentinel($addresses, 'orders', timeout: 10.0),
            'Predis' => new Predis(new Client(
                array_map(static fn (string $at): string => "tcp://$at", $addresses),
                ['replication' => 'sentinel', 'service' => 'orders'],
            )),
        ]);
        foreach ($limiters as $name => $limiter) {
            self::assertSame([Mode::Store, 90], [($first = $limiter->check($name, 10))->mode, $first->remaining]);
        }
        $master->client()->wait(1, 10_000);
        $begin = hrtime(true);
        $master->stop();
        foreach ($limiters as $name => $limiter) {
            $decision = Patience::until(static function () use ($limiter, $name) {
                usleep(20_000);
                $decision = $limiter->check($name);
                return $decision->mode === Mode::Store ? $decision : null;
            }, "$name decides again", 100);
            self::assertSame(89, $decision->remaining, $name);
        }
        fwrite(STDERR, sprintf("\nfailover: decided by the new master in %.1f s\n", (hrtime(true) - $begin) / 1e9));
        self::assertSame('master', $replica->client()->info('replication')['role']);
    }

    /** @return iterable<string, array{callable(string): Runner}> */
    public static function clusters(): iterable
    {
        yield 'phpredis' => [static fn (string $seed): Runner =>
            new PhpRedisCluster([$seed], timeout: 10.0)];
        yield 'Predis' => [static fn (string $seed): Runner =>
            new Predis(new Client(["tcp://$seed"], ['cluster' => 'redis']))];
    }

    /**
     * @dataProvider clusters
     * @param callable(string): Runner $runner
     */
    public function testASlotThatMovesIsChargedOnce(callable $runner): void
    {
        Processes::require();
        $nodes = self::cluster();
        $limit = Limit::fixedWindow(1_000_000, '1h', fromFirst: true)->onStoreFailure(OnStoreFailure::Deny);
        $key = Keys::state('limit:moving', 'a');
        $clients = array_map(static fn (RedisServer $node): Redis => $node->client(), $nodes);
        $seed = "127.0.0.1:{$nodes[0]->port}";
        $ends = hrtime(true) + 3_000_000_000;
        $processes = new Processes(2, static function () use ($runner, $seed, $limit, $ends): array {
            $limiter = Gates::direct($runner($seed))->limit('moving', $limit);
            $passed = ['store' => 0, 'deny' => 0];
            while (hrtime(true) < $ends) {
                $passed[$limiter->check('a')->mode->value]++;
                usleep(1_000);
            }
            return $passed;
        });
        $slot = $clients[0]->rawCommand('CLUSTER', 'KEYSLOT', $key);
        $at = intdiv($slot * self::NODES, 16384);
        for ($move = 0; $move < self::MOVES; $move++) {
            usleep(300_000);
            $to = ($at + 1) % self::NODES;
            self::move($slot, $clients, $nodes, $at, $to);
            $at = $to;
        }
        $passed = $processes->results();
        $last = Gates::direct($runner($seed))->limit('moving', $limit)->peek('a');
        $sum = array_sum(array_column($passed, 'store'));
        fwrite(STDERR, sprintf("\nmoving slot: %d decided, %d not\n", $sum, array_sum(array_column($passed, 'deny'))));
        self::assertSame([Mode::Store, 1_000_000 - $sum], [$last->mode, $last->remaining]);
        self::assertSame(0, array_sum(array_column($passed, 'deny')));
    }

    /**
     * @dataProvider clusters
     * @param callable(string): Runner $runner
     */
    public function testTheScriptIsLoadedAtTheNodeThatASlotIsMovingTo(callable $runner): void
    {
        $nodes = self::cluster();
        $clients = array_map(static fn (RedisServer $node): Redis => $node->client(), $nodes);
        $limit = Limit::slidingLog(9, '1h')->onStoreFailure(OnStoreFailure::Deny);
        $limiter = Gates::direct($runner("127.0.0.1:{$nodes[0]->port}"))->limit('asked', $limit);
        self::assertSame([Mode::Store, 8], [($first = $limiter->check('a'))->mode, $first->remaining]);
        $slot = $clients[0]->rawCommand('CLUSTER', 'KEYSLOT', Keys::state('limit:asked', 'a'));
        $from = intdiv($slot * self::NODES, 16384);
        $to = ($from + 1) % self::NODES;
        self::beginMove($slot, $clients, $nodes, $from, $to);
        for ($left = 7; $left > 4; $left--) {
            $decision = $limiter->check('a');
            self::assertSame([Mode::Store, $left], [$decision->mode, $decision->remaining]);
            // Whoever restarts it loses the script again.
            $clients[$to]->script('flush');
        }
    }

    public function testAUserWhoMayNotReadTheMapFindsSlotsByRedirection(): void
    {
        $nodes = self::cluster();
        preg_match('/^user sluicegate-program (.*)$/m', Server::run('redis-acl'), $line);
        $rights = explode(' ', str_replace('>PASSWORD', '>secret', $line[1]));
        foreach ($nodes as $node) {
            $node->client()->rawCommand('ACL', 'SETUSER', 'sluicegate-program', ...$rights);
        }
        $cluster = new PhpRedisCluster(["127.0.0.1:{$nodes[0]->port}"], ['sluicegate-program', 'secret'], 10.0);
        $limiter = Gates::direct($cluster)->limit('found', Limit::slidingLog(9, '1h'));
        for ($left = 8; $left > 5; $left--) {
            for ($number = 0; $number < 20; $number++) {
                $decision = $limiter->check("key-$number");
                self::assertSame([Mode::Store, $left], [$decision->mode, $decision->remaining]);
            }
        }
    }

    /**
     * Moves a slot, with a pause at each step, so that it is asked for in between.
     *
     * @param list<Redis> $clients
     * @param list<RedisServer> $nodes
     */
    private static function move(int $slot, array $clients, array $nodes, int $from, int $to): void
    {
        self::beginMove($slot, $clients, $nodes, $from, $to);
        usleep(30_000);
        $id = (string) $clients[$to]->rawCommand('CLUSTER', 'MYID');
        foreach ([$to, $from] as $node) {
            $clients[$node]->rawCommand('CLUSTER', 'SETSLOT', (string) $slot, 'NODE', $id);
        }
    }

    /**
     * Moves the keys of a slot, but not the slot.
     *
     * @param list<Redis> $clients
     * @param list<RedisServer> $nodes
     */
    private static function beginMove(int $slot, array $clients, array $nodes, int $from, int $to): void
    {
        $id = static fn (int $node): string => $clients[$node]->rawCommand('CLUSTER', 'MYID');
        $clients[$to]->rawCommand('CLUSTER', 'SETSLOT', (string) $slot, 'IMPORTING', $id($from));
        $clients[$from]->rawCommand('CLUSTER', 'SETSLOT', (string) $slot, 'MIGRATING', $id($to));
        usleep(30_000);
        foreach ($clients[$from]->rawCommand('CLUSTER', 'GETKEYSINSLOT', (string) $slot, '100') as $key) {
            $clients[$from]->migrate('127.0.0.1', $nodes[$to]->port, $key, 0, 10_000);
        }
    }

    /** @return list<RedisServer> masters, each with its share of the slots */
    private static function cluster(): array
    {
        $nodes = [];
        for ($number = 0; $number < self::NODES; $number++) {
            $nodes[] = new RedisServer('--cluster-enabled', 'yes', '--cluster-node-timeout', '20000');
        }
        foreach ($nodes as $number => $node) {
            $client = $node->client();
            $first = (int) ceil($number * 16384 / self::NODES);
            $last = (int) ceil(($number + 1) * 16384 / self::NODES) - 1;
            $client->rawCommand('CLUSTER', 'ADDSLOTS', ...range($first, $last));
            $client->rawCommand('CLUSTER', 'SET-CONFIG-EPOCH', (string) ($number + 1));
            $client->rawCommand('CLUSTER', 'MEET', '127.0.0.1', (string) $nodes[0]->port);
        }
        Patience::until(static function () use ($nodes): bool {
            foreach ($nodes as $node) {
                $info = (string) $node->client()->rawCommand('CLUSTER', 'INFO');
                $known = count($node->client()->rawCommand('CLUSTER', 'SLOTS'));
                if ($known < self::NODES || !str_contains($info, 'cluster_state:ok')) {
                    return false;
                }
            }
            return true;
        }, 'the cluster is ready', 60);
        return $nodes;
    }

    /**
     * The names and the values of a flat list.
     *
     * @param list<string> $flat
     * @return array{list<string>, list<string>}
     */
    private static function halves(array $flat): array
    {
        $pairs = array_chunk($flat, 2);
        return [array_column($pairs, 0), array_column($pairs, 1)];
    }
}
