<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Kernel\Ask;
use Sluicegate\Policy\Document;
use Sluicegate\Redis\PhpRedis;
use Sluicegate\Redis\Reply;
use Sluicegate\Redis\Request;
use Sluicegate\Redis\Script;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Redis\WhoseTime;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Tests\Support\RandomRules;
use Sluicegate\Tests\Support\Gates;
use Sluicegate\Tests\Support\RedisServer;
use Sluicegate\Verb;

/**
 * Random lives: the kernel of this package and the script give the same answers, also when rules change.
 */
final class RandomTest extends TestCase
{
    private const LIVES = 250;
    private const STEPS = 80;

    public function testTheKernelAndTheScriptAgree(): void
    {
        $runner = Gates::runner(RedisServer::shared()->port);
        $runner->run('', ['SCRIPT', 'LOAD', Script::text()], 10_000_000);
        $seed = (int) (getenv('SEED') ?: random_int(1, 1_000_000));
        mt_srand($seed);
        for ($life = 0; $life < self::LIVES; $life++) {
            $this->live($runner, "$seed:$life");
        }
    }

    private function live(PhpRedis $runner, string $name): void
    {
        $set = self::set();
        $wrote = $set;
        $states = $set->kernel()->fresh();
        $now = 1_800_000_000_000_000 + mt_rand(0, 1_000_000_000);
        for ($step = 0; $step < self::STEPS; $step++) {
            $now += self::pause($set);
            if (mt_rand(0, 24) === 0) {
                $set = self::set();
            }
            $ask = self::ask($set);
            $windows = $set->windowsAround($now);
            $isNew = array_filter($states, static fn (?array $state): bool => $state !== null) === [];
            $before = $wrote === $set || $isNew ? '' : "\1" . SealedRules::ofPolicy('p', $wrote, 0)->blob;
            $taken = $states;
            if ($wrote !== $set) {
                $old = $wrote->kernel();
                $taken = $set->kernel()->takeOver($old, $states, $now, $windows, $wrote->windowsAround($now));
            }
            [$outcome, $after] = $set->kernel()->decide($taken, $ask, $now, $windows);
            if ($ask->verb !== Verb::Peek) {
                // Redis keeps no state that is full, if it writes it and no rule of the set tells full from new.
                $fresh = array_filter($set->rules, static fn (Rule $rule): bool => ($rule->flags & 1) === 0) === [];
                $isGone = $fresh && $after !== $states && $set->kernel()->isFull($after, $now, $windows);
                [$states, $wrote] = [$isGone ? $set->kernel()->fresh() : $after, $set];
            }
            $request = Request::encode($ask, WhoseTime::Given, $now, $windows, $before);
            $blob = SealedRules::ofPolicy('p', $set, 0)->blob;
            $bytes = $runner->run('', ['EVALSHA', Script::SHA1, 1, "life:$name", $blob, $request], 10_000_000);
            self::assertIsString($bytes, "$name:$step");
            $reply = Reply::decode($bytes, count($set->rules));
            self::assertEquals($outcome, $reply?->outcome, "$name:$step {$ask->verb->text()} $reply?->text");
        }
    }

    private static function set(): RuleSet
    {
        do {
            $carry = RandomRules::one(['usage', 'proportional', 'reset']);
            $document = ['name' => 'p', 'rules' => RandomRules::rules(), 'carry' => $carry];
            $set = Document::parse((string) json_encode($document, JSON_PRESERVE_ZERO_FRACTION))->rules;
        } while ($set->isTooCostly());
        return $set;
    }

    private static function ask(RuleSet $set): Ask
    {
        do {
            $verb = RandomRules::one(Verb::cases());
            $verb = mt_rand(0, 2) ? $verb : Verb::Check;
        } while (!$set->kernel()->supports($verb));
        $limit = min(array_column($set->rules, 'limit'));
        $cost = RandomRules::one([1, 1, 2, mt_rand(1, max($limit, 1)), intdiv($limit, 3), $limit, $limit + 1]);
        $cost = min(max($cost, 1), Ask::COST_MAX);
        if (in_array($verb, [Verb::Reset, Verb::Release, Verb::Renew], true)) {
            $cost = 1;
        }
        $wait = RandomRules::one([0, 1000, 10_000_000, Ask::MAX_WAIT_US]);
        $permit = $verb->namesPermit() ? str_repeat((string) mt_rand(0, 5), 16) : '';
        return new Ask($verb, $cost, $verb === Verb::Reserve ? $wait : null, $permit);
    }

    private static function pause(RuleSet $set): int
    {
        $life = 1000 * min($set->lifeMs, 86_400_000);
        // Time that goes back is in the vectors: beyond the moment at which a budget was full, Redis has forgotten it.
        return RandomRules::one([0, 0, 1, mt_rand(0, 1000), intdiv($life, 50), intdiv($life, 7), $life]);
    }
}
