<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\UnreadablePolicy;
use Sluicegate\Limit;
use Sluicegate\Limiter;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\Policy\Policy;
use Sluicegate\Policy\Record;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Rules\Unreadable;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Vectors;

/**
 * Records of policies: `spec/record.md`.
 */
final class RecordTest extends TestCase
{
    public function testRecordsComeToTheirBlobs(): void
    {
        [$read, $costly] = [0, 0];
        foreach (Vectors::wire('records.json') as $entry) {
            if (isset($entry['later'])) {
                continue;
            }
            $record = json_decode($entry['record'], true);
            try {
                $policy = Policy::read($entry['name'], $entry['record'], 0);
            } catch (Unreadable $e) {
                // Servers with another store than Redis may have such rules.
                self::assertSame('blob: one decision could take Redis longer than 0.3 ms', $e->getMessage());
                $costly++;
                continue;
            }
            $rules = $policy->rulesOf('', 0);
            self::assertSame($entry['blob_hex'], bin2hex($rules->blob), $entry['record']);
            self::assertSame($entry['generation'], bin2hex($rules->set->generation), $entry['record']);
            self::assertRules($record, $rules->set);
            foreach ($record['overrides'] ?? [] as $override) {
                self::assertRules($override, $policy->rulesOf($override['key'], 0)->set);
            }
            $read++;
        }
        self::assertGreaterThan(400, $read);
        self::assertLessThan(50, $costly);
    }

    public function testRecordsThatAreNotReadAreLaterOrDamaged(): void
    {
        $refused = [0, 0];
        foreach (Vectors::wire('records.json') as $entry) {
            if (isset($entry['later'])) {
                try {
                    Policy::read($entry['name'], $entry['record'], 0);
                    self::fail("read: $entry[record]");
                } catch (Unreadable $e) {
                    self::assertSame($entry['later'], $e->isLater, "{$e->getMessage()}: $entry[record]");
                    $refused[(int) $e->isLater]++;
                }
            }
        }
        self::assertGreaterThan(8, min($refused));
    }

    /** @return iterable<string, array{array<string, mixed>, string, bool}> */
    public static function refused(): iterable
    {
        $plain = Published::rules(Limit::rules([['name' => 'tries', 'sliding_log' => [
            'limit' => 1, 'window' => '1m',
        ]]])->rules);
        $day = Published::rules(Limit::rules([['fixed_window' => ['limit' => 1, 'calendar' => 'day']]])->rules);
        $costly = pack('C6', 2, 0, 1, 8, 2, 1) . substr(hash('sha256', 'tries', true), 0, 8) . pack('e*', 10_000, 1);
        $zone = static fn (array $calendar): array => ['each' => [['calendar' => $calendar] + $day['each'][0]]] + $day;
        yield 'too costly' => [
            ['blob' => base64_encode($costly)], 'blob: one decision could take Redis longer than 0.3 ms', false,
        ];
        yield 'another name' => [
            ['each' => [['name' => 'other'] + $plain['each'][0]]],
            'each[0].name: is not that of the rule in the blob', false,
        ];
        yield 'a zone' => [
            $zone(['unit' => 'day', 'zone' => 'Mars/Olympus']),
            'each[0].calendar.zone: `Mars/Olympus` is unknown to this program', true,
        ];
        yield 'a unit' => [
            $zone(['unit' => 'decade', 'zone' => 'UTC']),
            'each[0].calendar.unit: `decade` is unknown to this program', true,
        ];
        yield 'another unit' => [
            $zone(['unit' => 'week', 'zone' => 'UTC']),
            'each[0].calendar.unit: is not that of the rule in the blob', false,
        ];
        yield 'no unit' => [$zone(['zone' => 'UTC']), 'each[0].calendar.unit: expected a text', false];
        yield 'an integer of more than 64 bits' => [
            ['record' => 1e25], 'record: `1.0E+25` is of a later version; this program reads 1', true,
        ];
        $bytes = (string) base64_decode(strtr(Fixture::record('plain')['blob'], '-_', '+/'), true);
        $bytes[4] = chr(ord($bytes[4]) + 1);
        yield 'a number more than the rules have' => [
            ['blob' => rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=')],
            'blob: numbers that no rule of algorithm ' . ord($bytes[3]) . ' has', false,
        ];
        yield 'no integer' => [['record' => '2'], 'record: expected an integer', false];
        yield 'what degrade comes to' => [
            ['overflow' => ['kind' => 'degrade', 'page' => 'x']],
            'overflow: `degrade` has neither `tag` nor `response`', true,
        ];
        $degrade = static fn (int $status, mixed $headers): array => ['overflow' => [
            'kind' => 'degrade', 'response' => ['status' => $status, 'body' => '', 'headers' => $headers],
        ]];
        yield 'a status' => [
            $degrade(600, new \stdClass()), 'overflow.response.status: expected an integer from 200 to 599', false,
        ];
        yield 'a list of headers' => [
            $degrade(200, []), 'overflow.response.headers: expected an object', false,
        ];
    }

    /**
     * @dataProvider refused
     * @param array<string, mixed> $changed
     */
    public function testTheReasonNamesTheMember(array $changed, string $reason, bool $isLater): void
    {
        try {
            Policy::read('plain', Published::record(Fixture::record('plain', $changed)), 0);
            self::fail('it is read');
        } catch (Unreadable $e) {
            self::assertSame([$reason, $isLater], [$e->getMessage(), $e->isLater]);
        }
    }

    public function testOtherMembersAreSkipped(): void
    {
        $record = Published::record(Fixture::record('plain', ['document' => 7, 'state' => [], 'more' => 'x']));
        self::assertSame(['remote_ip'], Policy::read('plain', $record, 0)->key);
    }

    /** @return iterable<string, array{Memory}> */
    public static function memories(): iterable
    {
        yield 'process' => [new ProcessMemory()];
        if (Apcu::isAvailable()) {
            yield 'APCu' => [new Apcu('sg-record:' . getmypid() . ':')];
        }
    }

    /** @dataProvider memories */
    public function testALaterRecordIsRefusedByNameAndACurrentOneIsFollowedEachTime(Memory $memory): void
    {
        $redis = RedisServer::shared();
        $clock = new ManualClock();
        $p = Gates::direct($redis->port, memory: $memory, clock: $clock)->policy('p');
        $look = function (int $revision, array $record) use ($redis, $clock): void {
            Published::in($redis->client(), $revision, $record + ['name' => 'p']);
            $clock->advance(11.1);
        };
        $later = ['record' => 2, 'shape' => 'another'];
        $current = static fn (int $limit): array => ['rules' => [
            ['sliding_log' => ['limit' => $limit, 'window' => '1h']],
        ]];
        for ($round = 0; $round < 2; $round++) {
            $look(10 * $round + 1, $later);
            self::assertRefused($p, 'record: `2` is of a later version; this program reads 1');
            $look(10 * $round + 2, $current(5 + $round));
            self::assertSame(5 + $round, $p->peek('a')->limit);
        }
        // Of later rules, too, the version that was held decides nothing.
        $look(30, ['on_store_failure' => 'ask'] + $current(9));
        self::assertRefused($p, 'on_store_failure: `ask` is unknown to this program');
        // With nothing held, a damaged record is an error as well.
        $look(31, ['apps' => 7] + $current(9));
        self::assertRefused($p, 'apps: expected a list of texts');
    }

    public function testADamagedRecordAndAHugeOneChangeNothing(): void
    {
        $redis = RedisServer::shared();
        $clock = new ManualClock();
        $p = Gates::direct($redis->port, clock: $clock)->policy('p');
        $record = ['name' => 'p', 'rules' => [['sliding_log' => ['limit' => 3, 'window' => '1h']]]];
        Published::in($redis->client(), 1, $record);
        self::assertSame(2, $p->check('a')->remaining);
        $changed = ['rules' => [['sliding_log' => ['limit' => 9, 'window' => '1h']]]] + $record;
        $bad = [['apps' => []] + $changed, ['more' => str_repeat('x', Record::BYTES_MAX)] + $changed];
        foreach ($bad as $place => $damaged) {
            Published::in($redis->client(), 2 + $place, $damaged);
            $clock->advance(11.1);
            self::assertSame(3, $p->peek('a')->limit);
        }
        Published::in($redis->client(), 9, $changed);
        $clock->advance(11.1);
        self::assertSame(9, $p->peek('a')->limit);
    }

    private static function assertRefused(Limiter $limiter, string $reason): void
    {
        try {
            $limiter->peek('a');
            self::fail('it decides');
        } catch (UnreadablePolicy $e) {
            self::assertSame("policy: `p` cannot be read: $reason", $e->getMessage());
        }
    }

    /** @param array<string, mixed> $record */
    private static function assertRules(array $record, RuleSet $set): void
    {
        $made = json_decode((string) json_encode(Published::rules($set)), true);
        self::assertEquals(array_intersect_key($record, $made), $made);
    }
}
