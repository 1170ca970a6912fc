<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Decision;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\Runner;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\HookedMemory;

/**
 * A host of which one process reaches Redis and others do not, as at its start: what Redis may grant, no share grants
 * as well.
 */
final class UnderWayTest extends TestCase
{
    /** @return iterable<string, array{Memory}> */
    public static function memories(): iterable
    {
        yield 'process' => [new ProcessMemory()];
        if (Apcu::isAvailable()) {
            yield 'APCu' => [new Apcu('under-way:')];
        }
    }

    /** @dataProvider memories */
    public function testWhatIsUnderWayIsNoReasonForAShare(Memory $memory): void
    {
        $limit = Limit::slidingLog(20, '1h');
        $refused = self::gate($memory, static fn (): never => throw new ConnectionFailure('Connection refused', false));
        $others = $refused->limit('l', $limit);
        $admitted = [];
        $late = self::gate($memory, static function () use ($others, &$admitted): string {
            // Redis has not answered yet, and other processes of the host have no connection.
            for ($number = count($admitted); $number < 25; $number++) { // Later calls charge what is owed.
                $admitted[] = $others->check('a');
            }
            return "\x01" . str_repeat("\0", 26);
        })->limit('l', $limit)->check('a', 3);
        self::assertSame([true, Mode::Store], [$late->allowed, $late->mode]);
        $passed = array_filter($admitted, static fn (Decision $of): bool => $of->allowed);
        self::assertSame([25, 17], [count($admitted), count($passed)]);
        foreach ($admitted as $decision) {
            self::assertSame(Mode::Local, $decision->mode);
            self::assertSame($decision->allowed ? 0 : 100_000, $decision->retryAfterUs);
        }
        // The reply had all in use, so the share has nothing left.
        $after = $others->check('a');
        self::assertSame([false, Mode::Local], [$after->allowed, $after->mode]);
        self::assertGreaterThan(100_000, $after->retryAfterUs);
    }

    public function testAReportWaitsForAProcessThatHasTheAccount(): void
    {
        $memory = new HookedMemory();
        $limit = Limit::slidingLog(20, '1h');
        $refused = self::gate($memory, static fn (): never => throw new ConnectionFailure('Connection refused', false));
        $others = $refused->limit('l', $limit);
        $asked = 0;
        $answered = self::gate($memory, static function (string $key) use ($others, $memory, &$asked): string {
            if (++$asked > 1) {
                throw new ConnectionFailure('Connection refused', false);
            }
            self::assertTrue($others->check('a')->allowed);
            $memory->add("lock:$key", 1, 1);
            $tries = 0;
            $goesOn = static function () use ($memory, $key, &$tries, &$goesOn): void {
                ++$tries < 50 ? $memory->before("lock:$key", $goesOn) : $memory->delete("lock:$key");
            };
            $memory->before("lock:$key", $goesOn);
            return "\x01\0" . pack('V', 1) . str_repeat("\0", 7) . substr(pack('P', 5), 0, 7) . str_repeat("\0", 7);
        });
        self::assertSame(Mode::Store, $answered->limit('l', $limit)->check('a')->mode);
        for ($passed = 0; $passed < 20 && $others->check('a')->allowed; $passed++) {
            continue;
        }
        self::assertSame(4, $passed, 'Redis has 15 of 20 in use, and the share one more');
    }

    /** @dataProvider memories */
    public function testAPaymentIsKnownInTheNextOutage(Memory $memory): void
    {
        [$isAway, $inUse] = [false, []];
        $clock = new ManualClock();
        $script = static function (string $key, string $request) use (&$isAway, &$inUse): string {
            if ($isAway) {
                throw new ConnectionFailure('Connection refused', false);
            }
            // A request after a debt begins with 12; the permits are 9 bytes behind that. All are charged.
            $isAfterDebt = ord($request[0]) === 12;
            $charged = $isAfterDebt ? ord($request[9]) : 0;
            $inUse[$key] = ($inUse[$key] ?? 0) + ($isAfterDebt ? $charged : 8);
            $reply = "\x01\0" . pack('V', 1) . str_repeat("\0", 7) . substr(pack('P', 40 - $inUse[$key]), 0, 7);
            return $reply . str_repeat("\0", 7) . ($isAfterDebt ? pack('V', $charged) : '');
        };
        $limiter = self::gate($memory, $script, $clock)->limit('paid', Limit::slidingLog(40, '1h'));
        self::assertSame(Mode::Store, $limiter->check('a')->mode);
        $isAway = true;
        for ($number = 0; $number < 12; $number++) {
            self::assertSame([true, Mode::Local], [($of = $limiter->check('a'))->allowed, $of->mode]);
        }
        $isAway = false;
        $clock->advance(1);
        self::assertSame(Mode::Store, $limiter->check('b')->mode);
        self::assertContains(20, $inUse, 'the debt of the other key is charged beside');
        $isAway = true;
        for ($passed = 0; $passed < 41 && $limiter->check('a')->allowed; $passed++) {
            continue;
        }
        self::assertSame(20, $passed);
    }

    /** @dataProvider memories */
    public function testRedisIsNotAskedWithoutADebtThatAnotherProcessHas(Memory $memory): void
    {
        [$isAway, $asked] = [true, 0];
        $script = static function () use (&$isAway, &$asked): string {
            $asked += (int) !$isAway;
            return $isAway
                ? throw new ConnectionFailure('Connection refused', false)
                : "\x01" . str_repeat("\0", 26);
        };
        $clock = new ManualClock();
        $clock->advance(60);
        $limiter = self::gate($memory, $script, $clock)->limit('locked', Limit::slidingLog(20, '1h'));
        self::assertSame(Mode::Local, $limiter->check('a')->mode);
        $isAway = false;
        $clock->advance(1); // The breaker, which other tests may have opened in this memory, lets a probe through.
        $lock = 'lock:' . Keys::state('limit:locked', 'a');
        self::assertTrue($memory->add($lock, 1, 1));
        $shed = $limiter->check('a');
        self::assertSame([false, Mode::Shed, 100_000, 0], [$shed->allowed, $shed->mode, $shed->retryAfterUs, $asked]);
        $memory->delete($lock);
    }

    /** @param callable(string, string): string $script answers calls of the script: a key, and a request */
    private static function gate(Memory $memory, callable $script, ?ManualClock $clock = null): Gate
    {
        return Gates::direct(new class ($script) implements Runner {
            /** @param callable(string, string): string $script */
            public function __construct(private $script)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                return $command[0] === 'EVALSHA' ? ($this->script)($key, (string) end($command)) : '';
            }

            public function endpoint(): string
            {
                return 'under-way:6379/0';
            }
        }, memory: $memory, clock: $clock);
    }
}
