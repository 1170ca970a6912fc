<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Direct\Breaker;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\Redis\Keys;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HookedClock;
use Sluicegate\Tests\Support\Patience;
use Sluicegate\Tests\Support\Processes;
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
            ['name' => 'turns', 'rules' => [['concurrency' => ['limit' => 1, 'ttl' => '1h', 'queue' => 9]]]],
        ], options: ['--store', Server::store($redis->port)]);
        $client = $redis->client();
        Patience::until(static fn (): bool => $client->hExists('sg:{policies}', '#revision'), 'the server publishes');
        $direct = Gates::direct($redis->port);
        $remote = Gates::remote('http://' . $server->address('http'));
        // Where a server did not decide in Redis, this says nothing, and another key is tried.
        for ($try = 1; !$this->areOneInTurn($direct->policy('all'), $remote->policy('all'), "k$try"); $try++) {
            self::assertLessThan(10, $try, 'the server decides without Redis');
        }
        $direct->policy('jobs')->acquire('k', 2, 'mine');
        $remote->policy('jobs')->acquire('k', 3, 'other');
        self::assertSame(3, $direct->policy('jobs')->release('k', 'other')->granted);
        self::assertSame(2, $remote->policy('jobs')->release('k', 'mine')->granted);
        // A request that waits here comes before a later one at the server, and the other way round.
        $atServer = $remote->policy('turns');
        $held = $atServer->acquire('k');
        $clock = new HookedClock(static function (int $sleep) use ($atServer, $held): void {
            if ($sleep === 2) {
                $held->release();
                self::assertFalse($atServer->acquire('k')->isHeld());
            }
        });
        $here = Gates::direct($redis->port, clock: $clock)->policy('turns')->acquire('k', maxWaitUs: 60_000_000);
        self::assertSame([true, 200_000], [$here->isHeld(), $here->decision->heldUs]);
        $length = static fn (): int => strlen((string) $client->get(Keys::state('turns', 'k')));
        $before = $length();
        $waiting = new Processes(1, static fn (): array => [
            Gates::remote('http://' . $server->address('http'))->policy('turns')
                ->acquire('k', id: 'waiting', maxWaitUs: 60_000_000)->isHeld(),
        ]);
        $turns = $direct->policy('turns');
        Patience::until(static fn (): bool => $length() > $before, 'there is a ticket');
        $here->release();
        self::assertFalse($turns->acquire('k')->isHeld());
        self::assertSame([[true]], $waiting->results());
    }

    public function testProcessesOfAHostShareABudgetWithAndWithoutRedis(): void
    {
        Processes::require();
        $redis = new RedisServer();
        $memory = new Apcu('sg-together:' . getmypid() . ':');
        $allowed = $this->inProcesses($redis->port, $memory, 'with', 100);
        self::assertSame([300, 0], $allowed);
        $redis->stop();
        [$none, $local] = $this->inProcesses($redis->port, $memory, 'without', 100);
        self::assertSame(0, $none);
        // A process that waits for another one for more than a millisecond is refused: on a busy machine many are.
        self::assertLessThanOrEqual(300, $local);
        self::assertGreaterThan(0, $local);
        $redis->start();
        $limiter = Gates::direct($redis->port, memory: $memory)->limit('l', Limit::slidingLog(300, '1h'));
        Patience::until(static fn (): bool => $limiter->peek('other')->mode === Mode::Store, 'Redis decides again');
        // The first decision of the key pays for all of them.
        $decision = $limiter->peek('without');
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

    /** @return array{int, int} requests that passed by Redis, and otherwise */
    private function inProcesses(int $port, Memory $memory, string $key, int $requests): array
    {
        $processes = new Processes(self::PROCESSES, static function () use ($port, $memory, $key, $requests): array {
            $limiter = Gates::direct($port, memory: $memory)->limit('l', Limit::slidingLog(300, '1h'));
            $passed = [0, 0];
            for ($number = 0; $number < $requests; $number++) {
                $decision = $limiter->check($key);
                $passed[$decision->mode === Mode::Store ? 0 : 1] += $decision->allowed ? 1 : 0;
            }
            return $passed;
        });
        $passed = $processes->results();
        return [array_sum(array_column($passed, 0)), array_sum(array_column($passed, 1))];
    }
}
