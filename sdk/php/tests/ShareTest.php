<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Direct\Account;
use Sluicegate\Direct\Accounts;
use Sluicegate\Direct\Breaker;
use Sluicegate\Direct\Budget;
use Sluicegate\Direct\Denials;
use Sluicegate\Direct\UsageCache;
use Sluicegate\Direct\Share;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\Answer;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Tests\Support\HookedMemory;
use Sluicegate\Verb;

/**
 * The examples of failure.md, in each memory.
 */
final class ShareTest extends TestCase
{
    private const NOW = 1_800_000_000_000_000;

    /** @return iterable<string, array{Memory}> */
    public static function memories(): iterable
    {
        yield 'process' => [new ProcessMemory()];
        if (Apcu::isAvailable()) {
            yield 'APCu' => [new Apcu('sg-test:' . getmypid() . ':')];
        }
    }

    protected function setUp(): void
    {
        if (Apcu::isAvailable()) {
            apcu_clear_cache();
        }
    }

    /** @dataProvider memories */
    public function testTheExampleOfTheLocalShare(Memory $memory): void
    {
        $budget = self::budget(Limit::tokenBucket('100/s', burst: 50));
        $usage = new UsageCache($memory);
        $usage->record($budget, self::answer(true, 10, 50), self::NOW);
        $accounts = new Accounts($memory, 10);
        $share = new Share($accounts, $usage);
        $rows = [
            [0, 1, true, 1, 0, 440_000, 1],
            [0, 1, true, 0, 0, 480_000, 2],
            [0, 1, false, 0, 20_000, 480_000, 2],
            [0, 13, false, 0, 1_000_000, 480_000, 2],
            [0, 51, false, 0, null, 480_000, 2],
            [20_000, 1, true, 0, 0, 500_000, 3],
        ];
        foreach ($rows as $number => [$after, $cost, $allowed, $remaining, $retry, $reset, $owed]) {
            $now = self::NOW + $after;
            $d = $share->decide($budget, new KernelRequest(Verb::Check, $cost), $now, 4);
            self::assertSame(
                [$allowed, 12, $remaining, $retry, $reset],
                [$d->allowed, $d->limit, $d->remaining, $d->retryAfterUs, $d->resetAfterUs],
                "row $number",
            );
            $accounts->with($budget, $now, static function (Account $account) use ($owed, $now, $number): void {
                self::assertSame([$owed], $account->owed($now), "row $number");
            });
        }
        $atMost = $share->decide($budget, new KernelRequest(Verb::AtMost, 9), self::NOW + 110_000, 4);
        self::assertSame([true, 2, 0], [$atMost->allowed, $atMost->granted, $atMost->remaining]);
        $none = $share->decide($budget, new KernelRequest(Verb::AtMost, 9), self::NOW + 120_000, 4);
        self::assertSame([false, 0, 1_000_000], [$none->allowed, $none->granted, $none->retryAfterUs]);
    }

    /** @dataProvider memories */
    public function testTheExampleOfRememberedRefusals(Memory $memory): void
    {
        $budget = self::budget(Limit::tokenBucket('10/s', burst: 20));
        $denials = new Denials($memory);
        $denials->record($budget, 1, self::NOW, self::answer(false, 0, 20, 100_000, 2_000_000));
        $found = $denials->find($budget, 1, self::NOW + 40_000);
        self::assertSame([60_000, 1_960_000], [$found?->outcome->retryAfterUs, $found?->outcome->resetAfterUs]);
        self::assertNull($denials->find($budget, 2, self::NOW + 40_000));
        self::assertNull($denials->find($budget, 1, self::NOW + 100_000));
        self::assertNull($denials->find($budget, 1, self::NOW - 1));
        $denials->record($budget, 1, self::NOW, self::answer(false, 0, 20, null, 2_000_000));
        self::assertNotNull($denials->find($budget, 1, self::NOW + 999_999));
        self::assertNull($denials->find($budget, 1, self::NOW + 1_000_000));
        self::assertNotNull($denials->find($budget, 1, self::NOW + 1_049_999));
        self::assertNull($denials->find($budget, 1, self::NOW + 1_050_000));
        $denials->forget($budget);
        self::assertNull($denials->find($budget, 1, self::NOW));
    }

    /** @dataProvider memories */
    public function testTheBreakerOpensByHalfAndClosesWithASuccess(Memory $memory): void
    {
        $breaker = new Breaker($memory);
        $breaker->failed(self::NOW);
        for ($number = 0; $number < 2; $number++) {
            $breaker->succeeded(self::NOW);
            $breaker->failed(self::NOW);
        }
        self::assertFalse($breaker->allows(self::NOW + 99_999));
        self::assertTrue($breaker->allows(self::NOW + 300_000));
        self::assertFalse($breaker->allows(self::NOW + 300_001));
        $breaker->failed(self::NOW + 300_001);
        self::assertTrue($breaker->allows(self::NOW + 600_001));
        $breaker->succeeded(self::NOW + 600_001);
        self::assertTrue($breaker->allows(self::NOW + 600_002));
        for ($number = 0; $number < 4; $number++) {
            $breaker->succeeded(self::NOW + 2_000_000);
            $breaker->failed(self::NOW + 2_000_000 + ($number === 3 ? -1_500_000 : 0));
        }
        self::assertTrue($breaker->allows(self::NOW + 2_000_001));
    }

    /** @dataProvider memories */
    public function testPermitsOfTheShareAreReleasedHere(Memory $memory): void
    {
        $budget = self::budget(Limit::concurrency(4, '1m'));
        $share = new Share(new Accounts($memory, 10), new UsageCache($memory));
        $one = new KernelRequest(Verb::Acquire, 1, null, str_repeat('1', 16));
        $two = new KernelRequest(Verb::Acquire, 1, null, str_repeat('2', 16));
        self::assertTrue($share->decide($budget, $one, self::NOW, 2)->allowed);
        self::assertTrue($share->decide($budget, $two, self::NOW, 2)->allowed);
        $three = new KernelRequest(Verb::Acquire, 1, null, 'x');
        self::assertFalse($share->decide($budget, $three, self::NOW, 2)->allowed);
        self::assertSame(1_000_000, $share->decide($budget, $one, self::NOW, 2)->retryAfterUs);
        $release = new KernelRequest(Verb::Release, 1, null, str_repeat('1', 16));
        self::assertSame(2, $share->onPermit($budget, $release, self::NOW)?->granted);
        self::assertNull($share->onPermit($budget, $release, self::NOW));
    }

    /** @dataProvider memories */
    public function testWithoutAPlaceARequestIsRefused(Memory $memory): void
    {
        $share = new Share(new Accounts($memory, 1), new UsageCache($memory));
        $limit = Limit::slidingLog(9, '1h');
        $check = new KernelRequest(Verb::Check);
        self::assertTrue($share->decide(self::budget($limit, 'a'), $check, self::NOW, 1)->allowed);
        self::assertFalse($share->decide(self::budget($limit, 'b'), $check, self::NOW, 1)->allowed);
        self::assertTrue($share->decide(self::budget($limit, 'a'), $check, self::NOW, 1)->allowed);
    }

    /** @dataProvider memories */
    public function testWhatCountsFromTheWindowBeforeHidesNoReport(Memory $memory): void
    {
        $hour = 3_600_000_000;
        $cases = [[Limit::fixedWindow(40, '1h'), $hour], [Limit::calendarWindow(40, 'day'), 24 * $hour]];
        foreach ($cases as $number => [$limit, $window]) {
            $budget = self::budget($limit, "sg:{k$number}");
            $usage = new UsageCache($memory);
            $accounts = new Accounts($memory, 10);
            $share = new Share($accounts, $usage);
            $begin = self::NOW - self::NOW % $window;
            $passed = static function (int $now) use ($share, $budget): int {
                $check = new KernelRequest(Verb::Check);
                $ask = static fn (): bool => $share->decide($budget, $check, $now, 1)->allowed;
                return count(array_filter(array_map($ask, range(1, 50))));
            };
            self::assertSame(40, $passed($begin));
            // Others had the rest: 25 are charged, and 15 stay owed.
            $paid = $begin + intdiv($window, 10) * 9;
            $accounts->with($budget, $paid, static function (Account $account) use ($paid): void {
                $account->paid($account->bill($paid)[0] ?? '', [25], $paid);
            });
            $next = $begin + $window + intdiv($window, 20);
            $answer = self::answer(true, 25, 40);
            $usage->record($budget, $answer, $next);
            $accounts->with($budget, $next, static fn (Account $account) => $account->raise($answer->inUse, $next));
            self::assertSame(0, $passed($next), 'what the share admitted counts');
            self::assertSame(25, $passed($begin + $window + intdiv($window, 5)), 'Redis has 15 of 40 in use');
        }
    }

    public function testTwoProcessesRecordOneAfterTheOther(): void
    {
        $budget = self::budget(Limit::fixedWindow(10, '1h'));
        $slot = 'known:' . crc32($budget->stateKey) % 20_000;
        $memory = new HookedMemory();
        $other = new ProcessMemory();
        (new UsageCache($other))->record($budget, self::answer(true, 3, 10), self::NOW);
        $memory->add("lock:$slot", 1, 1);
        $memory->before("lock:$slot", static function () use ($memory, $other, $slot): void {
            $memory->set($slot, $other->get($slot), 0);
            $memory->delete("lock:$slot");
        });
        $usage = new UsageCache($memory);
        $usage->record($budget, self::answer(true, 4, 10), self::NOW);
        self::assertSame([7], $budget->rules->set->kernel()->used($usage->states($budget, self::NOW), self::NOW));
        self::assertNull($memory->get("lock:$slot"));
    }

    /** On a busy machine, a process that decides may stand still while others wait for the account. */
    public function testAProcessThatStandsStillForTenMillisecondsLetsNoOtherRefuse(): void
    {
        $budget = self::budget(Limit::fixedWindow(10, '1h'));
        $lock = "lock:$budget->stateKey";
        $memory = new HookedMemory();
        $memory->add($lock, 1, 1);
        $tries = 0;
        $standing = static function () use ($memory, $lock, &$tries, &$standing): void {
            $tries += 1;
            $tries < 200 ? $memory->before($lock, $standing) : $memory->delete($lock);
        };
        $memory->before($lock, $standing);
        $share = new Share(new Accounts($memory, 10), new UsageCache($memory));
        $decision = $share->decide($budget, new KernelRequest(Verb::Check, 1), self::NOW, 1);
        self::assertSame([true, 9, 200], [$decision->allowed, $decision->remaining, $tries]);
    }

    /** @return iterable<string, array{array, string, bool, list<int>}> */
    public static function edits(): iterable
    {
        [$a, $b] = [self::day('a', 4000), self::day('b', 9000)];
        yield 'swapped' => [[$b, $a], 'usage', false, [100, 100]];
        yield 'renamed' => [[$a, self::day('c', 9000)], 'usage', false, [100, 0]];
        yield 'one less' => [[$b], 'usage', false, [100]];
        yield 'raised' => [[self::day('a', 8000), $b], 'usage', true, [100, 100]];
        yield 'proportional' => [[self::day('a', 8000), $b], 'proportional', false, [200, 100]];
        yield 'the same' => [[$a, $b], 'usage', true, [100, 100]];
    }

    /**
     * A bill that Redis perhaps charged has one number for each rule, by its place and in permits of then.
     *
     * @dataProvider edits
     */
    public function testABillDoesNotSurviveAnEditByWhichItsNumbersMeanSomethingElse(
        array $rules,
        string $carry,
        bool $isKept,
        array $owed,
    ): void {
        foreach (self::memories() as [$memory]) {
            $accounts = new Accounts($memory, 10);
            $before = self::budget(Limit::rules([self::day('a', 4000), self::day('b', 9000)]));
            $edited = self::budget(Limit::rules($rules, $carry));
            $share = new Share($accounts, new UsageCache($memory));
            self::assertTrue($share->decide($before, new KernelRequest(Verb::Check, 100), self::NOW, 1)->allowed);
            $bill = static fn (Account $account): ?array => $account->bill(self::NOW);
            $first = $accounts->with($before, self::NOW, $bill);
            $next = $accounts->with($edited, self::NOW, $bill);
            self::assertSame([$isKept, $owed], [$next[0] === $first[0], $next[1]]);
            $accounts->with($edited, self::NOW, static function (Account $account) use ($next): void {
                $account->paid($next[0], $next[1], self::NOW);
                self::assertSame($account->used, $account->stored);
                self::assertFalse($account->owes(self::NOW));
            });
        }
    }

    private static function day(string $name, int $limit): array
    {
        return ['name' => $name, 'fixed_window' => ['limit' => $limit, 'window' => '1d']];
    }

    private static function budget(Limit $limit, string $key = 'sg:{k}'): Budget
    {
        $rules = SealedRules::ofCaller($limit->rules);
        return new Budget('p', $key, $rules, new Overflow(OverflowKind::Reject), OnStoreFailure::Local);
    }

    private static function answer(
        bool $allowed,
        int $remaining,
        int $limit,
        ?int $retry = 0,
        int $reset = 0,
    ): Answer {
        $outcome = new Outcome($allowed, 0, $allowed ? 1 : 0, 0, $retry, $remaining, $reset);
        return new Answer($outcome, $limit, [$limit - $remaining], []);
    }
}
