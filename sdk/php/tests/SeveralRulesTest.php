<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Direct\Account;
use Sluicegate\Direct\Budget;
use Sluicegate\Direct\UsageCache;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\Answer;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\Runner;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;

/**
 * Budgets of several rules: an outage gives none of them again.
 */
final class SeveralRulesTest extends TestCase
{
    /** An instant in the middle of a day. */
    private const NOW = 1_800_000_000_000_000;

    private ManualClock $clock;

    protected function setUp(): void
    {
        $this->clock = new ManualClock(self::NOW);
    }

    public function testTheExampleOfADayAndABucket(): void
    {
        $this->publish(1, self::quota(1000, '200/s', 50));
        [$limiter, $runner] = $this->limiter(1);
        $limiter->check('a', 3);
        for ($times = 0; $times < 17; $times++) {
            $this->clock->advance(1);
            self::assertTrue($limiter->check('a', 50)->allowed);
        }
        $this->clock->advance(1);
        $last = $limiter->check('a', 47);
        self::assertSame(['burst', 3, Mode::Store], [$last->rule, $last->remaining, $last->mode]);
        $runner->isAway = true;
        self::assertSame(3, self::passed($limiter, 60));
        $second = 0;
        for ($times = 0; $times < 200; $times++) {
            $this->clock->advance(0.005);
            $second += self::passed($limiter, 1);
        }
        self::assertSame(97, $second, 'the day has 100 left');
        $this->clock->advance(3600);
        self::assertSame(0, self::passed($limiter, 60));
        self::assertSame('day', $limiter->check('a')->rule);
    }

    /**
     * @testWith [1]
     *           [2]
     */
    public function testOfTwoLimitsAnOutageGivesNeitherAgain(int $nodes): void
    {
        $this->publish(1, self::quota(100, '20/s', 6));
        $all = array_map(fn (): array => $this->limiter($nodes), range(1, $nodes));
        $tick = function () use ($all): int {
            $this->clock->advance(0.3);
            return array_sum(array_map(static fn (array $node): int => self::passed($node[0], 3), $all));
        };
        // The bucket is what decides, as of it the least is left.
        for ($passed = 0; $passed < 90;) {
            $passed += $tick();
        }
        foreach ($all as [$limiter, $runner]) {
            // Each gets to know the permits that the other took last.
            self::assertSame(Mode::Store, $limiter->peek('a')->mode);
            $runner->isAway = true;
        }
        for ($ticks = 0; $ticks < 100; $ticks++) {
            $passed += $tick();
        }
        self::assertSame(100, $passed);
        foreach ($all as [$limiter, $runner]) {
            $runner->isAway = false;
        }
        $this->clock->advance(60);
        foreach ($all as [$limiter]) {
            $limiter->peek('a');
        }
        $day = $all[0][0]->check('a');
        self::assertSame([false, 'day', 0, Mode::Store], [$day->allowed, $day->rule, $day->remaining, $day->mode]);
    }

    public function testWhatLaterRulesSayIsSaidOfTheRuleOfTheSameName(): void
    {
        $this->publish(1, self::quota(100, '20/s', 6));
        [$limiter, $runner] = $this->limiter(1);
        $limiter->check('a');
        $this->clock->advance(1);
        $later = self::quota(100, '20/s', 6);
        array_unshift($later['rules'], ['name' => 'hour', 'sliding_log' => ['limit' => 99, 'window' => '1h']]);
        $later['rules'] = array_reverse($later['rules']);
        $this->publish(2, $later);
        [$knowing] = $this->limiter(1);
        for ($times = 0; $times < 15; $times++) {
            $this->clock->advance(0.5);
            self::assertSame(6, self::passed($knowing, 6));
        }
        // This one has not heard of the later rules yet, and asks by its own.
        $last = $limiter->peek('a');
        self::assertSame(Mode::Store, $last->mode);
        $runner->isAway = true;
        $passed = 0;
        for ($times = 0; $times < 20; $times++) {
            $this->clock->advance(0.4);
            $passed += self::passed($limiter, 6);
        }
        self::assertSame(100 - 91, $passed);
    }

    public function testWhatLaterRulesOfOtherNamesSayIsSaidOfTheFirst(): void
    {
        $rule = static fn (string $name): array => ['name' => 'quota', 'rules' => [
            ['name' => $name, 'fixed_window' => ['limit' => 100, 'window' => '1d']],
        ]];
        $this->publish(1, $rule('day'));
        [$limiter, $runner] = $this->limiter(1);
        $limiter->check('a');
        $this->clock->advance(1);
        $this->publish(2, $rule('other'));
        [$knowing] = $this->limiter(1);
        self::assertSame(95, $knowing->check('a', 5)->remaining);
        self::assertSame(95, $limiter->peek('a')->remaining);
        $runner->isAway = true;
        self::assertSame(95, self::passed($limiter, 100));
    }

    public function testOfEachRuleItIsKnownWhenItWasLastSaidToHaveMoreInUse(): void
    {
        $budget = self::budget(self::quota(100, '1/h', 50));
        $usage = new UsageCache(new ProcessMemory());
        $report = static function (int $burst, int $day, float $after) use ($usage, $budget): array {
            $now = self::NOW + (int) (1e6 * $after);
            $outcome = new Outcome(true, 0, 1, 0, 0, 50 - $burst, 0);
            $usage->record($budget, new Answer($outcome, 50, [$burst, $day], []), $now);
            $set = $budget->rules->set;
            return $set->kernel()->used($usage->states($budget, $now), $now);
        };
        self::assertSame([10, 60], $report(10, 60, 0));
        self::assertSame([11, 60], $report(11, 59, 1.5), 'an older answer takes nothing back of the day');
        self::assertSame([11, 59], $report(10, 59, 2), 'of the day two seconds have passed, of the bucket half a one');
        self::assertSame([10, 59], $report(10, 59, 3.5));
        self::assertSame([12, 59], $report(12, 59, 3.6));
        self::assertSame([12, 59], $report(10, 59, 3.0), 'a request that read the clock earlier is an older one, too');
    }

    public function testLaterRulesTakeOverWhatIsKnown(): void
    {
        $usage = new UsageCache(new ProcessMemory());
        $answer = new Answer(new Outcome(true, 0, 1, 0, 0, 40, 0), 50, [10, 60], []);
        $usage->record(self::budget(self::quota(100, '1/h', 50)), $answer, self::NOW);
        $later = self::budget(self::quota(90, '1/h', 40));
        self::assertSame([10, 60], $later->rules->set->kernel()->used($usage->states($later, self::NOW), self::NOW));
    }

    public function testACalendarIsKnownAlsoIfItsRulesWereReadWithoutItBefore(): void
    {
        $month = ['name' => 'p', 'rules' => [['fixed_window' => ['limit' => 4321, 'calendar' => 'month']]]];
        $set = self::budget($month)->rules->set;
        RuleSet::read($set->bytes)->kernel();
        $kernel = $set->kernel();
        $states = $kernel->withUsed($kernel->fresh(), [9], self::NOW);
        $till = $set->windowsAround(self::NOW)[0][1] ?? 0;
        self::assertSame([[9], [0]], [$kernel->used($states, $till - 1), $kernel->used($states, $till)]);
    }

    public function testAMonthIsKnownForAMonthTogetherWithItsRules(): void
    {
        $memory = $this->createMock(Memory::class);
        $memory->method('slots')->willReturn(10);
        $kept = [];
        $memory->method('set')->willReturnCallback(function (string $key, mixed $value, int $ttlS) use (&$kept): bool {
            $kept[strtok($key, ':')] = [$value, $ttlS];
            return true;
        });
        $month = ['name' => 'p', 'rules' => [['fixed_window' => ['limit' => 9, 'calendar' => 'month']]]];
        $answer = new Answer(new Outcome(true, 0, 1, 0, 0, 5, 0), 9, [4], []);
        $budget = self::budget($month);
        (new UsageCache($memory))->record($budget, $answer, self::NOW);
        self::assertGreaterThanOrEqual(31 * 86_400, $kept['known'][1]);
        self::assertContains($budget->rules->set->bytes, $kept['known'][0], 'later rules take its usage over');
        (new UsageCache($memory))->record(self::budget(self::quota(100, '20/s', 6)), $answer, self::NOW);
        self::assertSame(86_401, $kept['known'][1]);
    }

    public function testWhatOthersTookIsBesideWhatIsOwed(): void
    {
        $budget = self::budget(self::quota(100, '1/h', 50));
        $kernel = $budget->rules->set->kernel();
        $states = static fn (int ...$used): array => $kernel->withUsed($kernel->fresh(), $used, self::NOW);
        $account = new Account($budget, 1, $states(5, 20), $states(15, 30), self::NOW);
        $id = $account->bill(self::NOW)[0] ?? '';
        $account->used = $states(17, 32);
        $account->raise([8, 20], self::NOW);
        self::assertSame([12, 12], $account->owed(self::NOW), 'others took 3 of the bucket');
        self::assertSame([20, 32], $kernel->used($account->used, self::NOW));
        $account->paid($id, [10, 9], self::NOW);
        self::assertSame([2, 3], $account->owed(self::NOW), 'what passed since, and what was not there');
        $account->raise([60, 20], self::NOW);
        self::assertSame([2, 3], $account->owed(self::NOW));
    }

    /** @return iterable<string, array{list<array<string, mixed>>, list<array<string, mixed>>}> */
    public static function lowered(): iterable
    {
        $day = static fn (int $limit): array =>
            ['name' => 'day', 'fixed_window' => ['limit' => $limit, 'window' => '1d']];
        $fast = ['name' => 'fast', 'token_bucket' => ['rate' => '10000/s', 'burst' => 10_000]];
        yield 'one rule' => [[$day(4000)], [$day(50)]];
        yield 'several rules' => [[$fast, $day(4000)], [$day(50), $fast]];
        yield 'another rule' =>
            [[$day(4000)], [['name' => 'day', 'sliding_log' => ['limit' => 50, 'window' => '1d']]]];
    }

    /**
     * Usage of 3,000 of 4,000 a day is there when the limit is lowered to 50 for an hour, by an override. Two programs
     * see the key in that hour only, one of them by rules of a later version, and the hour ends while Redis is away.
     *
     * @dataProvider lowered
     * @param list<array<string, mixed>> $rules
     * @param list<array<string, mixed>> $lowered
     */
    public function testALimitThatWasLoweredGivesNothingAgainInAnOutage(array $rules, array $lowered): void
    {
        $policy = ['name' => 'quota', 'rules' => $rules, 'since_ms' => intdiv(self::NOW, 1000)];
        $this->publish(1, $policy);
        [$first] = $this->limiter(1);
        $old = $this->limiter(1);
        self::assertTrue($first->check('a', 3000)->allowed);
        $this->clock->advance(60);
        $nowMs = intdiv(self::NOW, 1000) + 60_000;
        $override = ['key' => 'a', 'until_ms' => $nowMs + 3_600_000] + Published::rules(Limit::rules($lowered)->rules);
        // The revision stays, so that programs that have read it do not read it again.
        $record = Published::record(['version' => 2, 'since_ms' => $nowMs, 'overrides' => [$override]] + $policy);
        RedisServer::shared(false)->client()->hSet('sg:{policies}', 'quota', $record);
        $all = ['new' => $this->limiter(1), 'old' => $old];
        foreach ($all as $name => [$limiter, $runner]) {
            $refused = $limiter->check('a');
            $is = [$refused->allowed, $refused->limit, $refused->remaining, $refused->mode];
            self::assertSame([false, 50, 0, Mode::Store], $is, $name);
            $runner->isAway = true;
        }
        $this->clock->advance(3600);
        foreach ($all as $name => [$limiter]) {
            $passed = 0;
            for ($times = 0; $times < 40; $times++) {
                $decision = $limiter->check('a', 100);
                self::assertSame([Mode::Local, 4000], [$decision->mode, $decision->limit], $name);
                $passed += $decision->granted;
            }
            self::assertSame(1000, $passed, $name);
        }
    }

    public function testAnAccountTakesOverWhatIsInUseAboveALoweredLimit(): void
    {
        $full = self::budget(self::quota(4000, '1/h', 4000));
        $lowered = self::budget(self::quota(50, '1/h', 4000));
        $kernel = $full->rules->set->kernel();
        $states = static fn (int ...$used): array => $kernel->withUsed($kernel->fresh(), $used, self::NOW);
        $account = new Account($full, 1, $states(5, 5), $states(15, 15), self::NOW);
        $account->takeOver($lowered, self::NOW);
        $id = $account->bill(self::NOW)[0] ?? '';
        foreach ([1, 2] as $times) {
            $account->raise([3000, 3000], self::NOW);
            self::assertSame([10, 10], $account->owed(self::NOW), "raised $times");
        }
        $account->paid($id, [10, 10], self::NOW);
        self::assertSame([0, 0], $account->owed(self::NOW));
        $account->takeOver($full, self::NOW);
        self::assertSame([3010, 3010], $kernel->used($account->used, self::NOW));
    }

    public function testABillOfWhichNothingWasChargedKeepsItsId(): void
    {
        $budget = self::budget(self::quota(100, '1/h', 50));
        $kernel = $budget->rules->set->kernel();
        $used = $kernel->withUsed($kernel->fresh(), [15, 30], self::NOW);
        $account = new Account($budget, 1, $kernel->fresh(), $used, self::NOW);
        $id = $account->bill(self::NOW)[0] ?? '';
        $account->paid($id, [0, 0], self::NOW);
        self::assertSame([15, 30], $account->owed(self::NOW));
        self::assertSame($id, $account->bill(self::NOW)[0] ?? null);
        $account->paid($id, [10, 10], self::NOW);
        self::assertNotSame($id, $account->bill(self::NOW)[0] ?? null);
        self::assertSame([5, 20], $account->owed(self::NOW));
    }

    /** @return array<string, mixed> */
    private static function quota(int $day, string $rate, int $burst): array
    {
        return ['name' => 'quota', 'rules' => [
            ['name' => 'burst', 'token_bucket' => ['rate' => $rate, 'burst' => $burst]],
            ['name' => 'day', 'fixed_window' => ['limit' => $day, 'window' => '1d']],
        ]];
    }

    /** @param array<string, mixed> $policy */
    private static function budget(array $policy): Budget
    {
        $rules = Limit::rules($policy['rules'])->sealed;
        return new Budget('p', 'sg:{k}', $rules, new Overflow(OverflowKind::Reject), OnStoreFailure::Local);
    }

    /**
     * Publishes a policy that is decided by the clock of this test.
     *
     * @param array<string, mixed> $policy
     */
    private function publish(int $revision, array $policy): void
    {
        $client = RedisServer::shared($revision === 1)->client();
        Published::in($client, $revision, $policy);
        $client->hSet('sg:{policies}', '#clock', 'client');
    }

    /** @return array{Limiter, Runner&object{isAway: bool}} a program that has read the policy, and its line to Redis */
    private function limiter(int $nodes): array
    {
        $runner = new class (Gates::runner(RedisServer::shared(false)->port)) implements Runner {
            public bool $isAway = false;

            public function __construct(private readonly Runner $redis)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                return $this->isAway
                    ? throw new ConnectionFailure('away', false)
                    : $this->redis->run($key, $command, $leftUs);
            }

            public function endpoint(): string
            {
                return $this->redis->endpoint();
            }
        };
        $limiter = Gates::direct($runner, nodes: $nodes, clock: $this->clock)->policy('quota');
        $limiter->keyAttributes();
        return [$limiter, $runner];
    }

    /** Returns the number of `$checks` checks of one permit that pass. */
    private static function passed(Limiter $limiter, int $checks): int
    {
        $passed = 0;
        for ($number = 0; $number < $checks; $number++) {
            $passed += $limiter->check('a')->allowed ? 1 : 0;
        }
        return $passed;
    }
}
