<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Direct\DirectDecider;
use Sluicegate\Direct\Options;
use Sluicegate\Exception\SluicegateException;
use Sluicegate\Gate;
use Sluicegate\Kernel\Primitive;
use Sluicegate\Memory\Apcu;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;
use Sluicegate\OverflowKind;
use Sluicegate\Policy\Policies;
use Sluicegate\Policy\Policy;
use Sluicegate\Redis\ConnectionFailure;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Runner;
use Sluicegate\Redis\Script;
use Sluicegate\Redis\Store;
use Sluicegate\Testing\ManualClock;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Tests\Support\Vectors;

/**
 * The lives of `spec/wire/failure.json`: what a process answers with and without Redis.
 */
final class FailureTest extends TestCase
{
    /** @return iterable<string, array{\stdClass, bool}> */
    public static function lives(): iterable
    {
        foreach (self::entries() as $number => $life) {
            $rule = json_decode($life->record)->each[0]->name;
            yield "$number $rule, nodes $life->nodes, process" => [$life, false];
            if (Apcu::isAvailable()) {
                yield "$number $rule, nodes $life->nodes, APCu" => [$life, true];
            }
        }
    }

    /**
     * Lives that a server decides alike, and those of windows, of which a program counts more than a server.
     *
     * @return iterable<string, \stdClass>
     */
    private static function entries(): iterable
    {
        foreach (['failure', 'windows'] as $file) {
            $text = (string) file_get_contents(Vectors::DIR . "/wire/$file.json");
            foreach (json_decode($text, false, 64, JSON_THROW_ON_ERROR)->entries as $number => $life) {
                $codes = array_column(Policy::read('p', $life->record, 0)->rulesOf('', 0)->set->rules, 'code');
                $isOfWindows = array_intersect($codes, [6, 7, 8]) !== [] || $codes[0] === 5;
                if ($isOfWindows === ($file === 'windows')) {
                    yield "$file $number" => $life;
                }
            }
        }
    }

    /**
     * @testWith [262143, 17592186044421, 262144, 17592118935556]
     *           [840863445, 15182484143009, 920081938, 13875281529706]
     */
    public function testADrainedTimeIsRoundedDownIfItsDoubleIsNot(int $used, int $tickUs, int $perTick, int $us): void
    {
        self::assertSame($us + 1, (int) ($used * $tickUs / $perTick));
        self::assertSame($us, Primitive::mulDiv($used, $tickUs, $perTick));
    }

    public function testAllLivesAreThere(): void
    {
        self::assertCount(39, iterator_to_array(self::entries()));
    }

    /** @dataProvider lives */
    public function testALifeIsAsTheVectorsSay(\stdClass $life, bool $inApcu): void
    {
        $redis = RedisServer::shared();
        $client = $redis->client();
        $client->hMSet('sg:{policies}', [
            '#format' => '1', '#revision' => '1', '#clock' => 'client', 'p' => $life->record,
        ]);
        $client->script('load', Script::text());
        if ($inApcu) {
            apcu_clear_cache();
        }
        $runner = self::runner($redis->port);
        $clock = new ManualClock($life->steps[0]->at_us - 1000);
        $gate = self::gate($runner, $inApcu ? new Apcu() : new ProcessMemory(), $clock, $life->nodes);
        $gate->policy('p')->keyAttributes();
        foreach ($life->steps as $number => $step) {
            $clock->setTo($step->at_us);
            $runner->isAway = $step->redis === 'away';
            $runner->calls = 0;
            $answer = self::answer($gate, $step);
            self::assertEquals((array) $step->expect, $answer, "step $number: " . json_encode($step));
            self::assertSame($step->asked, $runner->calls, "step $number: " . json_encode($step));
        }
    }

    /** @return array<string, mixed> */
    private static function answer(Gate $gate, \stdClass $step): array
    {
        $p = $gate->policy('p');
        try {
            $d = match ($step->op) {
                'check' => $p->check($step->key, $step->cost),
                'reserve' => $p->reserve($step->key, $step->cost, $step->max_wait_us),
                'at_most' => $p->atMost($step->key, $step->cost),
                'peek' => $p->peek($step->key, $step->cost),
                'refund' => $p->refund($step->key, $step->cost),
                'reset' => $p->reset($step->key),
                'acquire' => $p->acquire($step->key, $step->cost, $step->id)->decision,
                'release' => $p->release($step->key, $step->id),
                'renew' => $p->renew($step->key, $step->id),
            };
        } catch (SluicegateException $e) {
            return ['error' => $e->errorName];
        }
        $answer = [
            'allowed' => $d->allowed && $d->overflow === null,
            'granted' => $d->granted,
            'wait_us' => $d->waitUs,
            'limit' => $d->limit,
            'remaining' => $d->remaining,
            'retry_after_us' => $d->retryAfterUs,
            'reset_after_us' => $d->resetAfterUs,
            'rule' => $d->rule,
            'mode' => $d->mode->value,
        ];
        $way = match ($d->overflow?->kind) {
            OverflowKind::Shadow => 'shadowed',
            OverflowKind::Degrade => 'degraded',
            OverflowKind::Divert => 'diverted',
            default => null,
        };
        return $way === null ? $answer : $answer + ['way' => $way];
    }

    private static function gate(Runner $runner, Memory $memory, ManualClock $clock, int $nodes): Gate
    {
        $store = new Store($runner, $memory, 10_000_000);
        $policies = new Policies($store, $memory, $clock, null);
        return Gate::of(new DirectDecider(
            $policies,
            $store,
            $memory,
            $clock,
            new Options('shop', $nodes, maxHoldUs: 1_000_000, payMax: 0, accountsMax: 100, hasShare: true),
        ));
    }

    /** @return Runner&object{isAway: bool, calls: int} */
    private static function runner(int $port): Runner
    {
        return new class (Gates::runner($port)) implements Runner {
            public bool $isAway = false;
            public int $calls = 0;

            public function __construct(private readonly PhpRedis $redis)
            {
            }

            public function run(string $key, array $command, int $leftUs): mixed
            {
                $this->calls += $command[0] === 'EVALSHA' ? 1 : 0;
                return $this->isAway
                    ? throw new ConnectionFailure('away', false)
                    : $this->redis->run($key, $command, $leftUs);
            }

            public function endpoint(): string
            {
                return $this->redis->endpoint();
            }
        };
    }
}
