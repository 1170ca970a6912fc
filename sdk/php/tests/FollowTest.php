<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Policy\Policies;
use Sluicegate\Redis\Store;
use Sluicegate\Redis\WhoseTime;
use Sluicegate\Testing\ManualClock;
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
     * What is published is put there as the vectors say; messages are not heard, and nothing depends on them.
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
                    $versions[$name] = $policies->get($name)->version;
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
        self::assertSame([WhoseTime::Server, null], [$policies->whoseTime(), $policies->nodes()]);
        self::put($redis, ['#format' => '1', '#revision' => '4', '#clock' => 'client', '#nodes' => '3']);
        $policies->look();
        self::assertSame([WhoseTime::Caller, 3], [$policies->whoseTime(), $policies->nodes()]);
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
        $limit = static fn (): int => $policies->get('p')->rulesOf('k')->set->rules[0]->limit;
        Published::in($redis->client(), 1, $policy(3));
        self::assertSame(3, $limit());
        $before = $policies->get('p')->takenOverMs;
        Published::in($redis->client(), 2, $policy(5));
        $clock->advance(8.9);
        self::assertSame(3, $limit());
        $clock->advance(2.2);
        self::assertSame(5, $limit());
        self::assertGreaterThan($before, $policies->get('p')->takenOverMs);
        // What cannot be read leaves the version that is held; so does a Redis that does not answer.
        Published::in($redis->client(), 3, ['name' => 'p', 'rules' => [['gcar' => ['limit' => 1]]]]);
        $clock->advance(11.1);
        self::assertSame(5, $limit());
        $redis->client()->flushAll();
        $clock->advance(11.1);
        self::assertSame(5, $limit());
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
