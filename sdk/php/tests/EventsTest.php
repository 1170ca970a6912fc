<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Exception\StoreUnavailable;
use Sluicegate\Gate;
use Sluicegate\Http\BadRequest;
use Sluicegate\Http\Key;
use Sluicegate\Http\RequestFacts;
use Sluicegate\Limit;
use Sluicegate\Observation;
use Sluicegate\Remote\HttpGate;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Fixture;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\RecordingLogger;
use Sluicegate\Tests\Support\Published;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Server;

/**
 * The events that observers and loggers receive.
 */
final class EventsTest extends TestCase
{
    public function testAnObserverHearsOfEachRequest(): void
    {
        $redis = RedisServer::shared();
        $observations = [];
        $gate = Gates::direct($redis->port, observer: static function (Observation $of) use (&$observations): void {
            $observations[] = $of;
        });
        $mail = $gate->limit('mail', Limit::slidingLog(1, '1h'));
        $mail->check('a-secret-key');
        $mail->check('a-secret-key');
        $mail->peek('a-secret-key');
        $mail->refund('a-secret-key');
        try {
            $mail->acquire('a-secret-key');
            self::fail('no error');
        } catch (InvalidRequest) {
            self::assertSame(
                [
                    ['mail', 'check', 'allowed', 'store'], ['mail', 'check', 'refused', 'store'],
                    ['mail', 'peek', 'refused', 'store'], ['mail', 'refund', 'allowed', 'store'],
                    ['mail', 'acquire', 'error', ''],
                ],
                array_map(static fn (Observation $of): array => [
                    $of->policy, $of->verb, $of->result(), $of->mode(),
                ], $observations),
            );
            // The error has a label of its own.
            self::assertSame(['', 'unsupported_verb'], [$observations[3]->errorName(), $observations[4]->errorName()]);
        }
        self::assertGreaterThan(0, $observations[0]->tookUs);
        self::assertSame(0, $observations[1]->decision?->remaining);
        self::assertStringNotContainsString('secret', serialize(array_map(
            static fn (Observation $of): array => [$of->policy, $of->verb, $of->decision],
            $observations,
        )));
    }

    public function testAnObserverHearsOfRequestsThatAreOutOfRange(): void
    {
        $names = [];
        // Nobody is asked.
        $mail = Gates::remote('http://127.0.0.1:1', observer: static function (Observation $of) use (&$names): void {
            $names[] = $of->errorName();
        })->policy('mail');
        $calls = [
            static fn () => $mail->check(''), static fn () => $mail->check('k', 0),
            static fn () => $mail->release('k', ''), static fn () => Key::by(static fn () => null)->of(
                new RequestFacts('192.0.2.1', 'GET', '/', []),
                $mail,
            ),
            static fn () => Key::header('X-Tenant')->of(new RequestFacts('192.0.2.1', 'GET', '/', []), $mail),
        ];
        foreach ($calls as $call) {
            try {
                $call();
                self::fail('no error');
            } catch (InvalidRequest | BadRequest) {
                // The observer has its name.
            }
        }
        self::assertSame(['key_empty', 'cost_range', 'id_length', 'key_empty', 'key_empty'], $names);
    }

    public function testAnObserverThatFailsChangesNoDecision(): void
    {
        $logger = new RecordingLogger();
        $fails = static fn (Observation $of) => throw new \Error("no label for $of->policy");
        $mail = Gates::direct(RedisServer::shared()->port, logger: $logger, observer: $fails)
            ->limit('mail', Limit::slidingLog(1, '1h'));
        self::assertSame([true, false], [$mail->check('a-secret-key')->allowed, $mail->check('a-secret-key')->allowed]);
        try {
            $mail->acquire('a-secret-key');
            self::fail('no error');
        } catch (InvalidRequest $e) {
            self::assertSame('unsupported_verb', $e->errorName);
        }
        self::assertSame(['warning sluicegate: the observer throws Error: no label for mail'], $logger->lines);
        $server = Gates::remote('http://127.0.0.1:1', observer: $fails);
        $this->expectException(StoreUnavailable::class);
        $server->policy('p')->check('a');
    }

    public function testAnObserverHearsWhatAServerDecides(): void
    {
        Server::require();
        $server = new Server([['name' => 'llm', 'rules' => [['token_bucket' => ['rate' => '9/d', 'burst' => 9]]]]]);
        $observations = [];
        $observe = static function (Observation $of) use (&$observations): void {
            $observations[] = "$of->policy $of->verb {$of->result()} {$of->mode()}";
        };
        foreach (['http', 'resp'] as $way) {
            $gate = Gate::remote(
                "$way://" . $server->address($way),
                timeoutMs: Gates::DEADLINE_MS,
                observer: $observe,
            );
            $gate->policy('llm')->check('k', 5);
            if ($gate instanceof HttpGate) {
                $gate->settle('llm', 'k', 'id', 5, 4);
                $gate->explain('llm', 'k');
            }
        }
        self::assertSame([
            'llm check allowed store', 'llm settle allowed store', 'llm explain allowed store',
            'llm check allowed store',
        ], $observations);
    }

    public function testALoggerHearsOnceWhenRedisGoesAndComes(): void
    {
        $redis = new RedisServer();
        $logger = new RecordingLogger();
        $clock = new ManualClock();
        $gate = Gates::direct($redis->port, clock: $clock, logger: $logger);
        $mail = $gate->limit('mail', Limit::slidingLog(100, '1h'));
        for ($round = 0; $round < 2; $round++) {
            $mail->check('a-secret-key');
            $redis->stop();
            for ($number = 0; $number < 9; $number++) {
                $mail->check('a-secret-key');
            }
            $redis->start();
            $clock->advance(0.35);
            $mail->check('a-secret-key');
            $clock->advance(2);
        }
        // The second time is within the same minute.
        self::assertCount(2, $logger->lines);
        $address = "Redis at 127.0.0.1:$redis->port";
        self::assertMatchesRegularExpression(
            "/^warning sluicegate: $address does not answer: .+; on_store_failure of each policy decides, "
                . "`local` by this host's share$/",
            $logger->lines[0],
        );
        self::assertSame("notice sluicegate: $address decides again", $logger->lines[1]);
    }

    public function testALoggerHearsOnceAMinuteOfAPolicyThatCannotBeRead(): void
    {
        $redis = RedisServer::shared();
        Published::in($redis->client(), 1, ['name' => 'odd', 'blob' => '?'] + Fixture::record('plain'));
        $logger = new RecordingLogger();
        $clock = new ManualClock();
        $gate = Gates::direct($redis->port, clock: $clock, logger: $logger);
        for ($number = 0; $number < 5; $number++) {
            try {
                $gate->policy('odd')->check('a-secret-key');
            } catch (\Sluicegate\Exception\UnreadablePolicy) {
                $clock->advance(11.1);
            }
        }
        self::assertCount(1, $logger->lines);
        self::assertStringContainsString('policy: `odd` cannot be read: ', $logger->lines[0]);
        self::assertStringNotContainsString('secret', $logger->lines[0]);
    }
}
