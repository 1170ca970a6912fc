<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Predis\Client;
use Redis;
use Sluicegate\Redis\Keys;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Predis;
use Sluicegate\Redis\Reply;
use Sluicegate\Redis\Request;
use Sluicegate\Redis\Runner;
use Sluicegate\Redis\Script;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Redis\TimeSource;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Vectors;

/**
 * The lives through Redis by given time. Windows come from the vectors, so requests are made here.
 */
final class RedisVectorsTest extends TestCase
{
    /** @return iterable<string, array{array<mixed>}> */
    public static function lives(): iterable
    {
        return Vectors::lives();
    }

    public function testTheScriptIsThatOfTheSpec(): void
    {
        self::assertSame((string) file_get_contents(Vectors::DIR . '/redis/decide.lua'), Script::text());
        self::assertSame(trim((string) file_get_contents(Vectors::DIR . '/redis/decide.sha1')), Script::SHA1);
        self::assertSame(sha1(Script::text()), Script::SHA1);
    }

    /**
     * @dataProvider lives
     * @param array<mixed> $life
     */
    public function testPhpRedisAnswersAsTheVectorsSay(array $life): void
    {
        $client = new Redis();
        $client->connect('127.0.0.1', RedisServer::shared()->port);
        $client->setOption(Redis::OPT_PREFIX, 'app:');
        $client->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
        $this->live(PhpRedis::of($client), $life);
    }

    /**
     * @dataProvider lives
     * @param array<mixed> $life
     */
    public function testPredisAnswersAsTheVectorsSay(array $life): void
    {
        if (!class_exists(Client::class)) {
            @include_once 'Predis/autoload.php';
        }
        $client = new Client(['host' => '127.0.0.1', 'port' => RedisServer::shared()->port], ['prefix' => 'app:']);
        $this->live(new Predis($client), $life);
    }

    /** @param array<mixed> $life */
    private function live(Runner $runner, array $life): void
    {
        $runner->run('', ['SCRIPT', 'LOAD', Script::text()], 1_000_000);
        $key = Keys::state('vector', $life['name']);
        $rules = SealedRules::ofPolicy('vector', Vectors::rules($life['rules']), 1_800_000_000_000);
        $before = null;
        foreach ($life['steps'] as $number => $step) {
            if ($step['op'] === 'configure') {
                $before ??= $rules;
                $set = Vectors::rules($step['rules'], $step['carry'] ?? 'usage');
                $rules = SealedRules::ofPolicy('vector', $set, 1_800_000_000_000 + $number);
                continue;
            }
            $kernelRequest = Vectors::request($step);
            $windows = $step['windows'] ?? [];
            if ($kernelRequest === null) {
                self::assertSame(['error' => 'range'], $step['expect']);
                continue;
            }
            $reply = null;
            foreach ($before === null ? [''] : ['', "\1" . $before->blob] as $of) {
                $request = Request::encode($kernelRequest, TimeSource::Given, $step['at_us'], $windows, $of);
                $bytes = $runner->run($key, ['EVALSHA', Script::SHA1, 1, $key, $rules->blob, $request], 1_000_000);
                self::assertIsString($bytes);
                $isSupported = $rules->set->kernel()->supports($kernelRequest->verb);
                $reply = Reply::decode($bytes, count($rules->set->rules), isSupported: $isSupported);
                if ($reply?->kind !== Reply::UNKNOWN_RULES) {
                    break;
                }
            }
            self::assertNotNull($reply);
            if ($reply->kind === Reply::UNSUPPORTED) {
                self::assertSame(['error' => 'unsupported'], $step['expect']);
                continue;
            }
            self::assertNotNull($reply->outcome, "step $number: $reply->text");
            if ($step['op'] !== 'peek') {
                $before = null;
            }
            $outcome = $reply->outcome;
            $rule = $rules->set->rules[$outcome->place];
            self::assertEquals($step['expect'] + ['retry_after_us' => null], [
                'allowed' => $outcome->allowed,
                'granted' => $outcome->granted,
                'wait_us' => $outcome->waitUs,
                'limit' => $rule->limit,
                'remaining' => $outcome->remaining,
                'retry_after_us' => $outcome->retryAfterUs,
                'reset_after_us' => $outcome->resetAfterUs,
                'rule' => $rule->name,
            ], "{$life['name']}: step $number");
        }
        self::assertTrue(true);
    }
}
