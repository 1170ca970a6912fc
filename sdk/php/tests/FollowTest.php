<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Limit;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Policy\Policies;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\Runner;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Redis\Store;
use Sluicegate\Redis\TimeSource;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Vectors;

final class FollowTest extends TestCase
{
    /** @return iterable<string, array{array<mixed>}> */
    public static function lives(): iterable
    {
        $text = (string) file_get_contents(Vectors::DIR . '/vectors/redis-policies.json');
        foreach (json_decode($text, true, 64, JSON_THROW_ON_ERROR) as $life) {
            yield $life['name'] => [$life];
        }
    }

    /**
     * Publishes what the vectors list; messages are not received, and nothing depends on them.
     *
     * @dataProvider lives
     * @param array<mixed> $life
     */
    public function testLooksHoldWhatTheVectorsSay(array $life): void
    {
        $redis = RedisServer::shared();
        $memory = new ProcessMemory();
        $store = new Store(Gates::runner($redis->port), $memory, 10_000_000);
        $policies = new Policies($store, $memory, new ManualClock(), null);
        $names = self::names($life);
        array_map($policies->use(...), $names);
        foreach ($life['steps'] as $number => $step) {
            if (isset($step['hash'])) {
                self::put($redis, $step['hash']);
            }
            if ($step['op'] !== 'look') {
                continue;
            }
            $policies->look();
            $held = $memory->get('policies');
            self::assertSame($step['holds']['revision'] ?? null, $held['revision'], "step $number");
            $versions = [];
            foreach ($names as $name) {
                try {
                    $versions[$name] = $policies->get($name)->version->number;
                } catch (SluicegateException) {
                    // It is not held.
                }
            }
            self::assertEquals($step['holds']['policies'], $versions, "step $number");
        }
        self::assertTrue(true);
    }

    public function testTheClockAndTheNodesAreTakenOverAtEveryLook(): void
    {
        $redis = RedisServer::shared();
        $memory = new ProcessMemory();
        $store = new Store(Gates::runner($redis->port), $memory, 10_000_000);
        $policies = new Policies($store, $memory, new ManualClock(), null);
        self::put($redis, ['#format' => '1', '#revision' => '4']);
        $policies->look();
        self::assertSame([TimeSource::Server, null], [$policies->timeSource(), $policies->nodes()]);
        self::put($redis, ['#format' => '1', '#revision' => '4', '#clock' => 'client', '#nodes' => '3']);
        $policies->look();
        self::assertSame([TimeSource::Caller, 3], [$policies->timeSource(), $policies->nodes()]);
    }

    public function testAPolicyIsFoundWhileAnotherProcessLooksForIt(): void
    {
        $redis = RedisServer::shared();
        $rules = ['rules' => [['fixed_window' => ['limit' => 2, 'window' => '1m']]]];
        Published::in($redis->client(), 1, ['name' => 'first'] + $rules, ['name' => 'late'] + $rules);
        $memory = new ProcessMemory();
        $other = Gates::direct($redis->port, memory: $memory);
        $other->policy('first')->check('k');
        $runner = new class (Gates::runner($redis->port), $other) implements Runner {
            public ?bool $otherPassed = null;

            public function __construct(private readonly Runner $runner, private readonly Gate $other)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                if ($command[0] === 'HMGET' && $this->otherPassed === null) {
                    $this->otherPassed = $this->other->policy('late')->check('k')->allowed;
                }
                return $this->runner->run($key, $command, $leftUs);
            }

            public function endpoint(): string
            {
                return $this->runner->endpoint();
            }
        };
        self::assertTrue(Gates::direct($runner, memory: $memory)->policy('late')->check('k')->allowed);
        self::assertTrue($runner->otherPassed);
    }

    public function testAnOverrideEndsAndThenThePolicysRulesAreInForceSinceThatInstant(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, Fixture::record('until'));
        $memory = new ProcessMemory();
        $store = new Store(Gates::runner($redis->port), $memory, 10_000_000);
        $policy = (new Policies($store, $memory, new ManualClock(), null))->get('until');
        $end = 1_798_740_000_000;
        self::assertSame(9, $policy->rulesOf('vip', $end - 1)->set->rules[0]->limit);
        self::assertSame(1, $policy->rulesOf('vip', $end)->set->rules[0]->limit);
        self::assertSame($policy->rulesOf('other', $end)->head, $policy->rulesOf('other', 0)->head);
        $since = substr($policy->rulesOf('vip', $end)->head, 6);
        self::assertSame(substr(pack('P', max($policy->version->takenOverMs, $end) - 1_767_225_600_000), 0, 5), $since);
    }

    public function testAnEditHoldsAtTheNextLook(): void
    {
        $redis = RedisServer::shared();
        $memory = new ProcessMemory();
        $clock = new ManualClock();
        $store = new Store(Gates::runner($redis->port), $memory, 10_000_000);
        $policies = new Policies($store, $memory, $clock, null);
        $policy = static fn (int $limit): array => ['name' => 'p', 'rules' => [
            ['sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]];
        $limit = static fn (): int => $policies->get('p')->rulesOf('k', 0)->set->rules[0]->limit;
        Published::in($redis->client(), 1, $policy(3));
        self::assertSame(3, $limit());
        $before = $policies->get('p')->version->takenOverMs;
        Published::in($redis->client(), 2, $policy(5));
        $clock->advance(8.9);
        self::assertSame(3, $limit());
        $clock->advance(2.2);
        self::assertSame(5, $limit());
        self::assertGreaterThan($before, $policies->get('p')->version->takenOverMs);
        // A record that is damaged leaves the version that is held; so does a Redis that is empty.
        Published::in($redis->client(), 3, ['blob' => '?'] + $policy(7));
        $clock->advance(11.1);
        self::assertSame(5, $limit());
        $redis->client()->flushAll();
        $clock->advance(11.1);
        self::assertSame(5, $limit());
    }

    public function testAnEarlierVersionNeverLooksLaterToWhomeverStartsLateOrWithAFastClock(): void
    {
        $redis = RedisServer::shared();
        $since = 1_790_000_000_000;
        $version = static fn (int $number, int $limit): array => [
            'name' => 'p', 'rules' => [['sliding_log' => ['limit' => $limit, 'window' => '1h']]],
            'since_ms' => $since + 2000 * $number,
        ];
        Published::in($redis->client(), 2, $version(2, 5));
        $first = Gates::direct($redis->port)->policy('p');
        self::assertSame([5, 4], [($decision = $first->check('a'))->limit, $decision->remaining]);
        // A program that starts later, with a clock that is ahead, and still finds the version before.
        Published::in($redis->client(), 1, $version(1, 9));
        $late = Gates::direct($redis->port, clock: new ManualClock(4_000_000_000_000_000))->policy('p');
        self::assertSame([5, 3], [($decision = $late->check('a'))->limit, $decision->remaining]);
        self::assertSame([5, 2], [($decision = $first->check('a'))->limit, $decision->remaining]);
    }

    /** @return iterable<string, array{int, mixed, int, mixed, int}> */
    public static function instants(): iterable
    {
        // Versions and their `since_ms`, and the instant of the second, where this host's clock says 500,000.
        yield 'the server says it' => [1, 7000, 2, 9000, 9000];
        yield 'a version is never older than the one before it' => [1, 7000, 2, 6000, 7001];
        yield 'nor as old as that' => [1, 7000, 2, 7000, 7001];
        yield 'an earlier version is put back' => [2, 9000, 1, 7000, 9001];
        yield 'the same version goes back' => [2, 9000, 2, 7000, 9000];
        yield 'the same version goes on' => [2, 7000, 2, 9000, 7000];
        yield 'the same version says nothing more' => [2, 9000, 2, null, 9000];
        yield 'zero' => [2, 0, 2, 0, 0];
        yield 'the latest' => [1, 7000, 2, 9_007_199_254_740_991, 9_007_199_254_740_991];
        foreach ([-1, 9_007_199_254_740_992, 7000.5, '7000', null, true, 1e300] as $none) {
            yield 'no instant: ' . json_encode($none) => [1, 7000, 2, $none, 500_000];
        }
        yield 'no instant, and the clock is behind' => [1, 700_000, 2, null, 700_001];
    }

    /** @dataProvider instants */
    public function testAVersionDecidesFromWhenAServerTookItOver(
        int $before,
        mixed $sinceBefore,
        int $version,
        mixed $since,
        int $expected,
    ): void {
        $text = static fn (int $version, mixed $since): string => Published::record([
            'version' => $version, 'since_ms' => $since,
            'rules' => [['sliding_log' => ['limit' => $version, 'window' => '1h']]],
        ]);
        $held = Policy::read('p', $text($before, $sinceBefore), 500_000);
        self::assertSame($expected, Policy::read('p', $text($version, $since), 500_000, $held)->version->takenOverMs);
    }

    public function testTheInstantIsInTheHead(): void
    {
        $set = Limit::slidingLog(1, '1h')->rules;
        $head = static fn (int $ms): string => bin2hex(substr(SealedRules::ofPolicy('p', $set, $ms)->head, 6));
        self::assertSame('0000000000', $head(0));
        self::assertSame('0200000000', $head(1_767_225_600_002));
        self::assertSame('ffffffffff', $head(9_007_199_254_740_991));
    }

    /**
     * @param array<mixed> $life
     * @return list<string>
     */
    private static function names(array $life): array
    {
        $names = [];
        foreach ($life['steps'] as $step) {
            $names += $step['policies'] ?? [];
            $names += $step['hash'] ?? [];
        }
        return array_values(array_filter(array_keys($names), static fn (string $name): bool => $name[0] !== '#'));
    }

    /** @param array<string, mixed> $hash */
    private static function put(RedisServer $redis, array $hash): void
    {
        $client = $redis->client();
        $client->del('sg:{policies}');
        foreach ($hash as $name => $value) {
            $client->hSet('sg:{policies}', $name, is_string($value) ? $value : (string) json_encode($value));
        }
    }
}
