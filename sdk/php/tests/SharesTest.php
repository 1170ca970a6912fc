<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Limit;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleEncoder;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Rules\Unreadable;
use Sluicegate\Tests\Support\RandomRules;
use Sluicegate\Tests\Support\Vectors;
use Sluicegate\Verb;

/**
 * The three primitives, which decide without Redis: `spec/failure.md`.
 */
final class SharesTest extends TestCase
{
    private const NOW_US = 1_774_745_000_000_000;
    private const LIVES = 300;

    /** @return iterable<string, array{array<mixed>}> */
    public static function shares(): iterable
    {
        foreach (Vectors::wire('shares.json') as $place => $entry) {
            yield "$entry[algorithm]/$place" => [$entry];
        }
    }

    public function testAllSharesAreThere(): void
    {
        self::assertCount(47, iterator_to_array(self::shares()));
    }

    /**
     * @dataProvider shares
     * @param array<mixed> $entry
     */
    public function testAShareIsAsTheWireSays(array $entry): void
    {
        $set = Vectors::rules([['name' => 'rule', 'algorithm' => $entry['algorithm'], 'params' => $entry['params']]]);
        $kernel = $set->kernel();
        $states = $kernel->fresh();
        foreach ($entry['steps'] as $number => $step) {
            $now = $step['at_us'];
            if ($step['op'] === 'said') {
                $states = $kernel->withUsed($states, [0 => $step['cost']], $now);
                continue;
            }
            [$outcome, $states] = $kernel->decide($states, Vectors::request($step), $now);
            self::assertEquals($step['expect'], [
                'allowed' => $outcome->allowed,
                'granted' => $outcome->granted,
                'wait_us' => $outcome->waitUs,
                'remaining' => $outcome->remaining,
                'retry_after_us' => $outcome->retryAfterUs,
                'reset_after_us' => $outcome->resetAfterUs,
            ], "step $number: " . json_encode($step));
        }
    }

    public function testNoIntervalHasMoreThanTheShare(): void
    {
        $seed = (int) (getenv('SEED') ?: random_int(1, 1_000_000));
        mt_srand($seed);
        for ($life = 0; $life < self::LIVES; $life++) {
            do {
                $rules = RandomRules::rules();
                $text = (string) json_encode($rules);
                $set = RuleEncoder::set($rules, Carry::Usage);
            } while ($set->holdsPermits() || array_filter($set->windowsAround(0)) !== []);
            [$states, $now, $passed, $largest] = [$set->kernel()->fresh(), self::NOW_US, [], 0];
            $unit = 1 << mt_rand(0, 36);
            for ($step = 0; $step < 60; $step++) {
                $now += mt_rand(0, $unit);
                $cost = mt_rand(0, 9) === 0 ? mt_rand(1, KernelRequest::COST_MAX) : mt_rand(1, 3);
                $kernelRequest = new KernelRequest(mt_rand(0, 1) ? Verb::Check : Verb::AtMost, $cost);
                [$outcome, $states] = $set->kernel()->decide($states, $kernelRequest, $now);
                if ($outcome->allowed) {
                    $passed[] = [$now, $outcome->granted];
                    $largest = max($largest, $outcome->granted);
                }
            }
            foreach ($passed as $first => [$from]) {
                $total = 0;
                foreach (array_slice($passed, $first) as [$till, $granted]) {
                    $total += $granted;
                    foreach ($set->rules as $rule) {
                        $most = self::most($rule, $till - $from, $largest);
                        self::assertLessThanOrEqual($most, $total, "$seed:$life $text: " . ($till - $from) . ' us');
                    }
                }
            }
        }
    }

    /** The most that an algorithm lets pass in an interval of so many µs, by the numbers of its rule. */
    private static function most(Rule $rule, int $span, int $largest): float
    {
        $n = $rule->numbers;
        return match ($rule->code) {
            1, 4 => ($n[3] + (floor($span / $n[0]) + 1) * $n[1]) / $n[2] + 1,
            2 => $n[2] + $span * $n[0] / $n[1] + 2 + $largest, // the last one is paid afterwards
            3 => $span / $n[0] + 2 + $largest,
            5 => (floor($span / $n[2]) + 1) * $n[0],
            default => (floor($span / $n[1]) + 1) * $n[0],
        };
    }

    public function testAReportOfACalendarWindowEndsWithIt(): void
    {
        $kernel = self::set(['fixed_window' => ['limit' => 10, 'calendar' => 'day']])->kernel();
        $hour = 3_600_000_000;
        $states = $kernel->withUsed($kernel->fresh(), [0 => 10], 23 * $hour);
        $passes = static function (int $cost, int $now) use ($kernel, &$states): bool {
            [$outcome, $states] = $kernel->decide($states, new KernelRequest(Verb::Check, $cost), $now);
            return $outcome->allowed;
        };
        self::assertFalse($passes(1, 24 * $hour - 1));
        self::assertTrue($passes(10, 24 * $hour), 'what Redis reported of yesterday does not count today');
        // What passed here counts for the longest day, which has 25 hours, and a tenth of it at most.
        self::assertFalse($passes(1, 49 * $hour - 1));
        self::assertTrue($passes(10, 52 * $hour));
    }

    public function testGuavasTwoBeginWithNothingStoredUnderOtherRules(): void
    {
        $bursty = self::set(['smooth_bursty' => ['rate' => '10/s']]);
        $larger = self::set(['smooth_bursty' => ['rate' => '10/s', 'max_burst' => '10s']]);
        $cases = [
            'a larger store' => [$bursty, $larger, 500_000],
            'a warm-up' => [$bursty, self::set(['smooth_warmup' => ['rate' => '10/s', 'warmup' => '3s']]), 500_000],
            'another one was' => [self::set(['token_bucket' => ['rate' => '5/s']]), $bursty, 0],
        ];
        $reserve = new KernelRequest(Verb::Reserve, 1, KernelRequest::MAX_WAIT_US);
        foreach ($cases as $name => [$before, $later, $wait]) {
            $states = $before->kernel()->fresh();
            for ($each = 0; $each < 5; $each++) {
                [, $states] = $before->kernel()->decide($states, $reserve, self::NOW_US);
            }
            $states = $later->kernel()->takeOver($before->kernel(), $states, self::NOW_US);
            [$outcome] = $later->kernel()->decide($states, $reserve, self::NOW_US);
            self::assertSame($wait, $outcome->waitUs, $name);
        }
    }

    public function testNumbersThatNoRuleHasAreNoRules(): void
    {
        $bytes = Limit::fixedWindow(1, '1m')->rules->bytes;
        self::assertSame($bytes, RuleSet::read($bytes)->bytes);
        $wrong = [
            [5, [1, 0, 0, 0, 0]], [5, [1, 3, 9, 0, 0]], [5, [1, 2, 0, 4, 0]], [8, [1, 0]], [8, [1, NAN]], [8, [-1, 1]],
            [1, [0, 1, 1, 1, 1, 0, 0, 1, 1]], [3, [0, 1, 2, 1, 1]], [2, [1, 0, 1]],
        ];
        foreach ($wrong as [$code, $numbers]) {
            $bytes = pack('CCCCCC', 2, 0, 1, $code, count($numbers), 1) . str_repeat('n', 8) . pack('e*', ...$numbers);
            try {
                RuleSet::read($bytes);
                self::fail("read: $code: " . implode(' ', $numbers));
            } catch (Unreadable $e) {
                self::assertFalse($e->isLater);
            }
        }
    }

    /** @param array<string, mixed> $rule */
    private static function set(array $rule): RuleSet
    {
        return RuleEncoder::set([['name' => 'r'] + $rule], Carry::Usage);
    }
}
