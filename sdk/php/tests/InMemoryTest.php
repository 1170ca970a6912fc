<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\Charged;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\HealthStatus;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Mode;
use Sluicegate\OnStoreFailure;
use Sluicegate\OverflowKind;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Testing\InMemoryDecider;
use Sluicegate\Testing\InMemoryGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Testing\Script;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;

final class InMemoryTest extends TestCase
{
    public function testMemoryDoesNotGrowWithDecisions(): void
    {
        // Redis is away, so a host decides by its share, too.
        $gates = [
            InMemoryGate::with(new ManualClock()),
            Gates::direct(PhpRedis::connect('127.0.0.1', 1), memory: new ProcessMemory(1000), clock: new ManualClock()),
        ];
        $count = getenv('SLUICEGATE_LONG') === '1' ? 1_000_000 : 100_000;
        foreach ($gates as $number => $gate) {
            $limiter = $gate->limit('many', Limit::tokenBucket('1000/s', burst: 5));
            $decide = static function (int $count) use ($limiter): int {
                for ($decision = 0; $decision < $count; $decision++) {
                    $limiter->check('k' . $decision % 1000);
                }
                return memory_get_usage();
            };
            $before = $decide(20_000);
            self::assertLessThan(1_048_576, $decide($count) - $before, "gate $number");
        }
    }

    public function testBeyondTheMostKeysANewOneIsRefusedAndNoneIsForgottenBeforeItIsFull(): void
    {
        $clock = new ManualClock();
        $gate = Gate::of(new InMemoryDecider([], $clock, 3));
        $limit = Limit::tokenBucket('1/s', burst: 2);
        $limiter = $gate->limit('l', $limit);
        foreach (['a', 'b', 'c'] as $key) {
            self::assertSame(0, $limiter->check($key, 2)->remaining);
        }
        $refused = $limiter->check('d');
        self::assertSame(
            [false, 0, Mode::Deny, 1_000_000],
            [$refused->allowed, $refused->granted, $refused->mode, $refused->retryAfterUs],
        );
        self::assertSame([true, Mode::Store], [$limiter->peek('d')->allowed, $limiter->peek('d')->mode]);
        self::assertFalse($limiter->check('a')->allowed, 'it is remembered');
        $allow = $gate->limit('allow', $limit->onStoreFailure(OnStoreFailure::Allow))->check('d', 2);
        self::assertSame([true, 2, Mode::Allow], [$allow->allowed, $allow->granted, $allow->mode]);
        $clock->advance(1.5);
        self::assertFalse($limiter->check('d')->allowed);
        $limiter->check('b');
        $clock->advance(1);
        self::assertSame([true, Mode::Store], [$limiter->check('d')->allowed, $limiter->check('e')->mode]);
        self::assertSame(1, $limiter->peek('b')->remaining, 'it was not full, so it was not forgotten');
        self::assertSame(Mode::Deny, $limiter->check('f')->mode);
    }

    public function testTimeFlowsAsTheClockSays(): void
    {
        $clock = new ManualClock();
        $gate = InMemoryGate::with($clock, ['a' => Limit::tokenBucket('10/s', burst: 2)]);
        $a = $gate->policy('a');
        self::assertSame(1, $a->check('k')->remaining);
        self::assertSame(0, $a->check('k')->remaining);
        self::assertSame(100_000, $a->check('k')->retryAfterUs);
        $clock->advance(0.1);
        self::assertTrue($a->check('k')->allowed);
        self::assertSame(50_000, $a->reserve('k')->waitUs - 50_000);
        self::assertSame(1, $a->refund('k')->granted);
        $this->expectException(InvalidRequest::class);
        $gate->policy('b')->check('k');
    }

    /** @return iterable<string, array{callable(int): Limit}> */
    public static function windows(): iterable
    {
        yield 'sliding_counter' => [static fn (int $limit): Limit => Limit::slidingCounter($limit, '1day')];
        yield 'fixed_window' => [static fn (int $limit): Limit => Limit::fixedWindow($limit, '1day')];
        yield 'sliding_window' => [static fn (int $limit): Limit => Limit::slidingWindow($limit, '1day', 24)];
        yield 'sliding_log' => [static fn (int $limit): Limit => Limit::slidingLog($limit, '1day')];
    }

    /**
     * A sliding counter once cut what it had counted to a lower limit: 100 to 37 and back let 63 more pass each time.
     *
     * @dataProvider windows
     * @param callable(int): Limit $made
     */
    public function testALimitThatIsLoweredAndRaisedAgainGivesNothingBack(callable $made): void
    {
        $gate = InMemoryGate::with(new ManualClock());
        $passed = static function (string $name, int $limit) use ($gate, $made): int {
            $limiter = $gate->limit($name, $made($limit));
            return count(array_filter(range(1, 200), static fn (): bool => $limiter->check('k')->allowed));
        };
        $all = [];
        foreach ([100, 37, 100, 37, 100, 37, 100] as $limit) {
            $all[] = $passed('quota', $limit);
        }
        self::assertSame([100, 0, 0, 0, 0, 0, 0], $all);
        $all = [];
        foreach ([10, 20, 10, 20] as $limit) {
            $all[] = $passed('boost', $limit);
        }
        self::assertSame([10, 10, 0, 0], $all);
    }

    /** Usage above a lower limit is capped at the most that is counted exactly, which is more than the limit. */
    public function testWhatWasCountedUnderAMuchHigherLimitFillsASmallOne(): void
    {
        [$most, $cost] = [2 ** 32 - 1, 2 ** 31];
        $clock = new ManualClock();
        $gate = InMemoryGate::with($clock);
        $counter = static fn (int $limit): Limiter => $gate->limit('quota', Limit::slidingCounter($limit, '366day'));
        self::assertTrue($counter($most)->check('k', $cost)->allowed);
        self::assertFalse($counter(1)->check('k')->allowed);
        self::assertSame($most - $cost - 1, $counter($most)->check('k')->remaining, 'it was kept');
        $clock->advance(366 * 86_400);
        self::assertFalse($counter(1)->check('k')->allowed);
    }

    public function testOverflowMeansForAcquireWhatItMeansForCheck(): void
    {
        $gate = InMemoryGate::with(new ManualClock(), Fixture::text());
        $seen = $gate->policy('jobs-seen');
        $held = $seen->acquire('k');
        $over = $seen->acquire('k', id: 'over');
        self::assertSame([null, OverflowKind::Shadow], [$held->decision->overflow, $over->decision->overflow?->kind]);
        self::assertTrue($over->isHeld() && $over->renew());
        $over->release();
        self::assertSame([false, 0], [$over->isHeld(), $seen->peek('k')->remaining]);
        self::assertTrue($seen->renew('k', 'over')->allowed && $seen->release('k', 'over')->allowed);
        $held->release();
        self::assertSame(1, $seen->peek('k')->remaining);
        $later = $gate->policy('jobs-tagged');
        $later->acquire('k');
        $refused = $later->acquire('k');
        self::assertSame([false, 'queue'], [$refused->isHeld(), $refused->decision->overflow?->tag]);
        self::assertFalse($later->renew('k', $refused->id)->allowed);
    }

    public function testAnAcquireWaitsForPermitsThatLapse(): void
    {
        $clock = new ManualClock();
        $jobs = InMemoryGate::with($clock, ['jobs' => Limit::concurrency(1, '1m')])->policy('jobs');
        $first = $jobs->acquire('k');
        $begin = $clock->nowUs();
        $refused = $jobs->acquire('k', maxWaitUs: 20_000_000);
        self::assertSame([false, 20_000_000], [$refused->isHeld(), $refused->decision->heldUs]);
        $waited = $jobs->acquire('k', maxWaitUs: 50_000_000);
        self::assertSame([true, 40_000_000], [$waited->isHeld(), $waited->decision->heldUs]);
        self::assertSame(60_000_000, $clock->nowUs() - $begin);
        self::assertFalse($jobs->release('k', $first->id)->allowed);
        $queued = InMemoryGate::with($clock, Fixture::text())->policy('jobs-waiting');
        $queued->acquire('k');
        self::assertSame(20_000_000, $queued->acquire('k')->decision->heldUs, 'by its overflow');
        self::assertSame(5_000_000, $queued->acquire('k', maxWaitUs: 5_000_000)->decision->heldUs);
        // What never passes does not wait.
        self::assertSame(0, $jobs->acquire('k', 2, maxWaitUs: 50_000_000)->decision->heldUs);
    }

    public function testQueuesOverridesAndCalendarsWork(): void
    {
        $clock = new ManualClock();
        $gate = InMemoryGate::with($clock, Fixture::text());
        $q = $gate->policy('queue');
        self::assertSame([0, 50_000], [$q->check('k')->heldUs, $q->check('k')->heldUs]);
        self::assertFalse($q->check('k', 2)->allowed);
        $d = $gate->policy('day');
        // The longest day has 25 hours, and a tenth of it is a bucket.
        self::assertEqualsWithDelta(25 * 3_600_000_000, $d->check('k')->resetAfterUs, 9_000_000_000);
        self::assertSame(OverflowKind::Shadow, $d->check('k')->overflow?->kind);
        self::assertSame(2, $d->check('7')->remaining);
        self::assertSame(4, $gate->limit('l', Limit::slidingCounter(5, '1m'))->check('k')->remaining);
    }

    public function testWhatAQueueWaitedIsNotWaitedAgain(): void
    {
        $gate = InMemoryGate::with(new ManualClock(), Fixture::text());
        $queue = $gate->policy('queue');
        self::assertSame(0, $queue->check('k')->waitLeftUs());
        $held = $queue->check('k');
        self::assertSame([50_000, 50_000, 0], [$held->waitUs, $held->heldUs, $held->waitLeftUs()]);
        $paced = $gate->limit('paced', Limit::leakyBucket('1/s', 1));
        $paced->check('k');
        $next = $paced->check('k');
        self::assertSame([true, 1_000_000], [$next->allowed, $next->waitLeftUs()]);
    }

    public function testSecondsUntilARetryAreNullForNeverAlone(): void
    {
        $seen = InMemoryGate::with(new ManualClock(), Fixture::text())->policy('seen');
        self::assertSame([true, 0], [($over = $seen->check('k', 100))->allowed, $over->retryAfterSeconds()]);
        $bucket = InMemoryGate::with(new ManualClock())->limit('l', Limit::tokenBucket('2/m', 1));
        self::assertSame([0, 30, null], [
            $bucket->check('k')->retryAfterSeconds(), $bucket->check('k')->retryAfterSeconds(),
            $bucket->check('k', 2)->retryAfterSeconds(),
        ]);
    }

    public function testAnOverrideEndsByTheClock(): void
    {
        $clock = new ManualClock(1_000_000 * (int) strtotime('2026-12-31T17:59:59Z'));
        $vip = InMemoryGate::with($clock, Fixture::text())->policy('until');
        self::assertSame(9, $vip->peek('vip')->limit);
        $clock->advance(1);
        self::assertSame(1, $vip->peek('vip')->limit);
    }

    public function testAPolicyThatIsGivenLaterReplacesOneOfTheSameName(): void
    {
        $with = static fn (mixed ...$policies): int =>
            InMemoryGate::with(new ManualClock(), ...$policies)->policy('plain')->peek('k')->limit;
        self::assertSame(7, $with(Fixture::text(), ['plain' => Limit::slidingLog(7, '1m')]));
        self::assertSame(1, $with(['plain' => Limit::slidingLog(7, '1m')], Fixture::text()));
    }

    /** @return iterable<string, array{mixed, string}> */
    public static function mistakes(): iterable
    {
        $file = 'rules: expected the text that `sluicegate policies compile` writes, of `#format` 1';
        yield 'a path' => ['policies.json', $file];
        yield 'another format' => ['{"#format":2}', $file];
        yield 'the format as text' => ['{"#format":"1"}', $file];
        yield 'a list' => ['[]', $file];
        $with = static fn (string $name, array $changed): string => (string) json_encode([
            '#format' => 1, $name => ['version' => 1] + Fixture::record($name, $changed),
        ]);
        yield 'a later record' => [
            $with('plain', ['record' => 2]),
            'rules: policy `plain`: record: `2` is of a later version; this program reads 1',
        ];
        yield 'a word of a later version' => [
            $with('queue', ['overflow' => ['kind' => 'slow']]),
            'rules: policy `queue`: overflow.kind: `slow` is unknown to this program',
        ];
        yield 'a damaged member' => [
            $with('day', ['overrides' => [['key' => '7', 'blob' => 5]]]),
            'rules: policy `day`: overrides[0].blob: expected a text',
        ];
        yield 'a document' => [
            ['name' => 'a', 'rules' => [['token_bucket' => ['rate' => '1/s']]]],
            'rules: policy `name`: expected a `Sluicegate\\Limit`',
        ];
        yield 'no name' => [
            ['A b' => Limit::slidingLog(1, '1m')],
            'rules: name: `A b` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`',
        ];
    }

    /**
     * @dataProvider mistakes
     * @param string|array<mixed> $policies
     */
    public function testAPolicyThatCannotBeReadIsAnErrorThatNamesIt(string|array $policies, string $message): void
    {
        try {
            InMemoryGate::with(new ManualClock(), ['first' => Limit::slidingLog(1, '1m')], $policies);
            self::fail('no error');
        } catch (InvalidRequest $e) {
            self::assertSame(['rules', $message], [$e->errorName, $e->getMessage()]);
        }
    }

    public function testAScriptAnswersInItsOrder(): void
    {
        $script = (new Script())->allow(10, 9)->refuse(1.5)->fail(new StoreUnavailable('gone', true))
            ->refuse(null)->allow(1, 0);
        $orders = $script->gate()->policy('orders');
        $allowed = $orders->check('alice', 3);
        self::assertSame(
            [true, 3, 10, 9, 'orders'],
            [$allowed->allowed, $allowed->granted, $allowed->limit, $allowed->remaining, $allowed->policy],
        );
        self::assertSame([false, 2], [($refused = $orders->check('alice'))->allowed, $refused->retryAfterSeconds()]);
        try {
            $orders->refund('alice');
            self::fail('no exception');
        } catch (StoreUnavailable $e) {
            self::assertSame(Charged::Unknown, $e->charged());
        }
        self::assertNull($orders->check('alice')->retryAfterUs);
        self::assertSame(1, $script->left());
        self::assertTrue($script->gate()->limit('mail', Limit::slidingLog(1, '1m'))->check('a')->allowed);
        $this->expectException(\LogicException::class);
        $orders->check('alice');
    }

    public function testItsHealthIsThatOfItsPolicies(): void
    {
        $gate = InMemoryGate::with(new ManualClock(), ['orders' => Limit::slidingLog(1, '1m')]);
        self::assertTrue($gate->health()->isUp());
        self::assertTrue($gate->health('orders')->isUp());
        $some = $gate->health('orders', 'none');
        self::assertSame([HealthStatus::Degraded, 'policy: unknown policy `none`'], [$some->status, $some->cause]);
        self::assertSame(HealthStatus::Down, $gate->health('none')->status);
        $gate->warmUp();
        $gate->require('orders');
        self::assertSame(0, $gate->policy('orders')->check(null)->remaining);
        $this->expectExceptionMessage('unknown policy `none`');
        $gate->require('none');
    }
}
