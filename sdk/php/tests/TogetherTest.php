<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Direct\Breaker;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * Several programs share budgets: processes of a host, and a server.
 */
final class TogetherTest extends TestCase
{
    private const PROCESSES = 6;

    public function testAServerAndThisProgramAreOneInTurn(): void
    {
        Server::require();
        $redis = RedisServer::shared();
        $server = new Server([
            ['name' => 'all', 'rules' => [
                ['name' => 'log', 'sliding_log' => ['limit' => 60, 'window' => '1h']],
                ['name' => 'day', 'fixed_window' => ['limit' => 50, 'calendar' => 'day', 'time_zone' => 'Asia/Tokyo']],
                ['name' => 'bucket', 'token_bucket' => ['rate' => '7/3h', 'burst' => 90]],
            ]],
            ['name' => 'jobs', 'rules' => [['concurrency' => ['limit' => 9, 'ttl' => '1h']]]],
        ], ['SLUICEGATE__STORE__PUBLISH' => 'files'], ['--store', "redis://127.0.0.1:$redis->port"]);
        $client = $redis->client();
        for ($try = 0; $try < 200 && !$client->hExists('sg:{policies}', '#revision'); $try++) {
            usleep(50_000);
        }
        $direct = $this->gate($redis->port, new ProcessMemory());
        $remote = Gate::remote('http://' . $server->address('http'), timeoutMs: 2000);
        // A server on a busy machine may miss its deadline: then this says nothing, and another key is tried.
        for ($try = 1; !$this->areOneInTurn($direct->policy('all'), $remote->policy('all'), "k$try"); $try++) {
            self::assertLessThan(10, $try, 'the server decides without Redis');
        }
        $direct->policy('jobs')->acquire('k', 2, 'mine');
        $remote->policy('jobs')->acquire('k', 3, 'other');
        self::assertSame(3, $direct->policy('jobs')->release('k', 'other')->granted);
        self::assertSame(2, $remote->policy('jobs')->release('k', 'mine')->granted);
    }

    public function testProcessesOfAHostShareABudgetWithAndWithoutRedis(): void
    {
        if (!Apcu::isAvailable() || !function_exists('pcntl_fork')) {
            self::markTestSkipped('needs APCu on command lines (apc.enable_cli=1) and pcntl');
        }
        $redis = new RedisServer();
        $memory = new Apcu('sg-together:' . getmypid() . ':');
        $allowed = $this->inProcesses($redis->port, $memory, 'with', 100);
        self::assertSame([300, 0], $allowed);
        $redis->stop();
        [$none, $local] = $this->inProcesses($redis->port, $memory, 'without', 100);
        self::assertSame(0, $none);
        // A process that waits for another one for more than a millisecond is refused.
        self::assertLessThanOrEqual(300, $local);
        self::assertGreaterThan(100, $local);
        $redis->start();
        usleep(400_000);
        $gate = $this->gate($redis->port, $memory);
        // The first decision of the key pays for all of them.
        $decision = $gate->limit('l', Limit::slidingLog(300, '1h'))->peek('without');
        self::assertSame([300 - $local, Mode::Store], [$decision->remaining, $decision->mode]);
    }

    public function testTheMemoryOfAProcessDoesNotGrowWithTime(): void
    {
        $memory = new ProcessMemory();
        for ($number = 0; $number < 25_000; $number++) {
            $memory->set("ended:$number", 1, $number < 20_000 ? -1 : 60);
        }
        $values = (new \ReflectionProperty($memory, 'values'))->getValue($memory);
        self::assertCount(5_000, $values);
        (new Breaker($memory))->succeeded(1);
        self::assertTrue((new Breaker($memory))->allows(2));
    }

    /** Asks both in turn; false if one did not decide in Redis. */
    private function areOneInTurn(Limiter $direct, Limiter $remote, string $key): bool
    {
        for ($left = 50; $left > 0; $left -= 2) {
            $own = $direct->check($key);
            $other = $remote->check($key);
            if ([$own->mode, $other->mode] !== [Mode::Store, Mode::Store]) {
                return false;
            }
            self::assertSame([$left - 1, 'day', $left - 2, 'day'], [
                $own->remaining, $own->rule, $other->remaining, $other->rule,
            ]);
        }
        self::assertFalse($direct->check($key)->allowed);
        self::assertFalse($remote->check($key)->allowed);
        return true;
    }

    /** A deadline that a busy machine keeps, too. */
    private function gate(int $port, Memory $memory): Gate
    {
        return Gate::direct(PhpRedis::connect('127.0.0.1', $port, timeout: 2.0), memory: $memory, deadlineMs: 2000);
    }

    /** @return array{int, int} requests that passed by Redis, and otherwise */
    private function inProcesses(int $port, Memory $memory, string $key, int $requests): array
    {
        $children = [];
        for ($process = 0; $process < self::PROCESSES; $process++) {
            [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) ?: [null, null];
            $pid = pcntl_fork();
            if ($pid === 0) {
                $gate = $this->gate($port, $memory);
                $limiter = $gate->limit('l', Limit::slidingLog(300, '1h'));
                $passed = [0, 0];
                for ($number = 0; $number < $requests; $number++) {
                    $decision = $limiter->check($key);
                    $passed[$decision->mode === Mode::Store ? 0 : 1] += $decision->allowed ? 1 : 0;
                }
                fwrite($theirs, json_encode($passed) . "\n");
                // The parent's servers are not this process' to stop.
                posix_kill((int) getmypid(), SIGKILL);
            }
            $children[$pid] = $ours;
            fclose($theirs);
        }
        [$byRedis, $without] = [0, 0];
        foreach ($children as $pid => $stream) {
            $passed = json_decode((string) fgets($stream), true);
            pcntl_waitpid($pid, $status);
            $byRedis += $passed[0];
            $without += $passed[1];
        }
        return [$byRedis, $without];
    }
}
