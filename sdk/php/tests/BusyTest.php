<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Sluicegate\Direct\Breaker;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\Nodes;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\PhpRedisCluster;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Runner;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RecordingLogger;
use Sluicegate\Tests\Support\RedisServer;

/**
 * A Redis that is only busy is not one that is gone, and the first seconds of a host are busy.
 */
final class BusyTest extends TestCase
{
    private const DEADLINE_MS = 100;

    public function testTheFirstSecondsOfAHostHaveALongerDeadline(): void
    {
        $runner = self::runner();
        $memory = new ProcessMemory();
        $check = static fn (int $deadlineMs): Mode => Gate::direct($runner, memory: $memory, deadlineMs: $deadlineMs)
            ->limit('l', Limit::slidingLog(9, '1h'))->check('a')->mode;
        $check(20);
        self::assertGreaterThan(400_000, $runner->leftUs);
        // All processes of the host started with it.
        $check(20);
        self::assertGreaterThan(400_000, $runner->leftUs);
        $check(2000);
        self::assertGreaterThan(1_500_000, $runner->leftUs);
        $memory->set('started', hrtime(true) - 5_000_000_001, 0);
        $check(20);
        self::assertLessThanOrEqual(20_000, $runner->leftUs);
        // A host that began before stays what it is.
        self::assertNotNull($memory->get('started'));
    }

    public function testALateReplyIsShedWhileOthersGetReplies(): void
    {
        $memory = new ProcessMemory();
        $runner = self::runner(static function (int $leftUs) use ($memory): never {
            usleep(intdiv($leftUs, 2));
            // Another process of the host gets a reply.
            $memory->set('replied', hrtime(true), 60);
            usleep(intdiv($leftUs, 2) + 500);
            throw new ConnectionFailure('read error', true);
        });
        $logger = new RecordingLogger();
        $limit = Gates::direct($runner, memory: $memory, deadlineMs: self::DEADLINE_MS, logger: $logger)
            ->limit('l', Limit::slidingLog(9, '1h'));
        $decision = $limit->check('a');
        self::assertSame([Mode::Shed, false, 100_000], [$decision->mode, $decision->allowed, $decision->retryAfterUs]);
        try {
            $limit->refund('a');
            self::fail('no exception');
        } catch (StoreUnavailable $e) {
            self::assertSame('perhaps_charged', $e->errorName);
        }
        self::assertNull((new Breaker($memory))->failing());
        self::assertStringContainsString('is busy; requests are shed: read error', $logger->lines[0]);
        self::assertCount(1, $logger->lines);
        // One whose own connection is silent three times on end does not wait for others for ever.
        self::assertSame(Mode::Local, $limit->check('a')->mode);
    }

    public function testOnOverloadOfAPolicyIsForServers(): void
    {
        $wait = ['wait' => '5s'];
        $record = Published::record(['on_overload' => $wait, 'document' => ['on_overload' => $wait], 'rules' => [
            ['name' => 'log', 'sliding_log' => ['limit' => 9, 'window' => '1h']],
        ]]);
        [$memory, $asked] = [new ProcessMemory(), 0];
        $runner = self::runner(static function (int $leftUs) use ($memory, $record, &$asked): mixed {
            if ($asked++ === 0) {
                return ['1', '1', 'server', null, $record];
            }
            $memory->set('replied', hrtime(true), 60);
            usleep($leftUs + 500);
            $memory->set('replied', hrtime(true), 60);
            throw new ConnectionFailure('read error', false);
        });
        $decision = Gates::direct($runner, memory: $memory, deadlineMs: self::DEADLINE_MS)->policy('l')->check('a');
        self::assertSame([Mode::Shed, false, 100_000], [$decision->mode, $decision->allowed, $decision->retryAfterUs]);
        self::assertSame(2, $asked);
    }

    public function testASilentRedisIsNoAnswerAsSoonAsTheTimeIsOver(): void
    {
        $memory = new ProcessMemory();
        $runner = self::runner(static function (int $leftUs): never {
            usleep($leftUs + 200);
            throw new ConnectionFailure('read error', true);
        });
        $limit = Gates::direct($runner, memory: $memory, deadlineMs: 200)->limit('l', Limit::slidingLog(9, '1h'));
        // The last reply was before this call began.
        $memory->set('replied', hrtime(true), 60);
        self::assertSame(Mode::Local, $limit->check('a')->mode);
        self::assertSame(['read error', ''], (new Breaker($memory))->failing());
    }

    public function testAProcessThatStoodStillShedsIfRedisRepliedLately(): void
    {
        $memory = new ProcessMemory();
        $runner = self::runner(static function (int $leftUs): never {
            // The machine lets it run far too late.
            usleep($leftUs + 40_000);
            throw new ConnectionFailure('read error', true);
        });
        $limit = static fn (): Mode => Gates::direct($runner, memory: $memory, deadlineMs: self::DEADLINE_MS)
            ->limit('l', Limit::slidingLog(9, '1h'))->check('a')->mode;
        $memory->set('replied', hrtime(true), 60);
        self::assertSame(Mode::Shed, $limit());
        // Ten deadlines after the last reply it is silent.
        $memory->set('replied', hrtime(true) - 1_200_000_000, 60);
        self::assertSame(Mode::Local, $limit());
    }

    public function testRepliesOfOtherNodesOfAClusterSayNothing(): void
    {
        $memory = new ProcessMemory();
        $node = '';
        $runner = new class ($memory, $node) implements Runner, Nodes {
            public function __construct(private readonly Memory $memory, private string &$node)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                // Meanwhile another process gets replies of both nodes, or of one.
                usleep(intdiv($leftUs, 2));
                $this->memory->set('replied:10.0.0.1:6379', hrtime(true), 60);
                usleep(intdiv($leftUs, 2) + 500);
                throw new ConnectionFailure('read error', true);
            }

            public function endpoint(): string
            {
                return 'cluster@10.0.0.1:6379';
            }

            public function lastNode(): string
            {
                return $this->node;
            }
        };
        $mode = static fn (): Mode => Gates::direct($runner, memory: $memory, deadlineMs: self::DEADLINE_MS)
            ->limit('l', Limit::slidingLog(9, '1h'))->check('a')->mode;
        $node = '10.0.0.1:6379';
        self::assertSame(Mode::Shed, $mode());
        $node = '10.0.0.2:6379';
        self::assertSame(Mode::Local, $mode());
    }

    public function testAClusterNamesTheNodeThatItAsked(): void
    {
        $redis = new RedisServer('--cluster-enabled', 'yes');
        $redis->client()->rawCommand('CLUSTER', 'ADDSLOTS', ...range(0, 16383));
        $at = "127.0.0.1:$redis->port";
        $clients = [
            new PhpRedisCluster([$at], timeout: 10.0), new Predis(new Client(["tcp://$at"], ['cluster' => 'redis'])),
        ];
        foreach ($clients as $cluster) {
            $cluster->run('a', ['GET', 'a'], 10_000_000);
            self::assertStringEndsWith($at, $cluster->lastNode());
            $redis->signal(SIGSTOP);
            try {
                $cluster->run('a', ['GET', 'a'], 20_000);
                self::fail('no exception');
            } catch (ConnectionFailure) {
                self::assertStringEndsWith($at, $cluster->lastNode());
            }
            $redis->signal(SIGCONT);
        }
    }

    public function testARefusedConnectionIsNoAnswerAtOnce(): void
    {
        $memory = new ProcessMemory();
        $memory->set('replied', PHP_INT_MAX, 60);
        $runner = self::runner(static fn (): never => throw new ConnectionFailure('Connection refused', false));
        $limit = Gates::direct($runner, memory: $memory)->limit('l', Limit::slidingLog(9, '1h'));
        self::assertSame(Mode::Local, $limit->check('a')->mode);
    }

    public function testWarmingUpLeavesNothingForTheFirstRequestButItsQuestion(): void
    {
        $redis = RedisServer::shared();
        $redis->client()->script('flush');
        $gate = Gates::direct($redis->port, clock: new ManualClock());
        $gate->warmUp();
        $redis->client()->rawCommand('CONFIG', 'RESETSTAT');
        $gate->limit('l', Limit::slidingLog(9, '1h'))->check('a');
        $stats = $redis->client()->info('commandstats');
        self::assertArrayHasKey('cmdstat_evalsha', $stats);
        self::assertArrayNotHasKey('cmdstat_script|load', $stats);
        // It took no permits, and a Redis that is away is left to the requests.
        self::assertSame(8, $gate->limit('l', Limit::slidingLog(9, '1h'))->peek('a')->remaining);
        Gates::direct(PhpRedis::connect('127.0.0.1', 1))->warmUp();
    }

    /**
     * @param (callable(int): mixed)|null $reply gets the time that is left, in µs
     * @return Runner&object{leftUs: int}
     */
    private static function runner(?callable $reply = null): Runner
    {
        return new class ($reply ?? static fn (): string => 'odd') implements Runner {
            public int $leftUs = 0;

            /** @param callable(int): mixed $reply */
            public function __construct(private $reply)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                $this->leftUs = $leftUs;
                return ($this->reply)($leftUs);
            }

            public function endpoint(): string
            {
                return 'busy:6379/0';
            }
        };
    }
}
