<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Tests\Support\Vectors;

final class KernelVectorsTest extends TestCase
{
    /** @return iterable<string, array{array<mixed>}> */
    public static function lives(): iterable
    {
        return Vectors::lives();
    }

    public function testAllLivesAreThere(): void
    {
        self::assertGreaterThanOrEqual(119, count(iterator_to_array(Vectors::lives())));
    }

    /**
     * @dataProvider lives
     * @param array<mixed> $life
     */
    public function testTheKernelAnswersAsTheVectorsSay(array $life): void
    {
        $specs = $life['rules'];
        $set = Vectors::rules($specs);
        $states = $set->kernel()->fresh();
        $wrote = $set;
        foreach ($life['steps'] as $number => $step) {
            $windows = $step['windows'] ?? array_fill(0, count($set->rules), null);
            if ($step['op'] === 'configure') {
                // Until the next decision time passes under the rules that wrote the states.
                $set = Vectors::rules($step['rules'], $step['carry'] ?? 'usage');
                continue;
            }
            if ($wrote !== $set) {
                $old = $wrote->kernel();
                $oldWindows = array_fill(0, count($wrote->rules), $windows[0]);
                $states = $set->kernel()->takeOver($old, $states, $step['at_us'], $windows, $oldWindows);
                $wrote = $set;
            }
            $ask = Vectors::ask($step);
            if ($ask === null) {
                $answer = ['error' => 'range'];
            } elseif (!$set->kernel()->supports($ask->verb)) {
                $answer = ['error' => 'unsupported'];
            } else {
                [$outcome, $states] = $set->kernel()->decide($states, $ask, $step['at_us'], $windows);
                $rule = $set->rules[$outcome->place];
                $answer = [
                    'allowed' => $outcome->allowed,
                    'granted' => $outcome->granted,
                    'wait_us' => $outcome->waitUs,
                    'limit' => $rule->limit,
                    'remaining' => $outcome->remaining,
                    'retry_after_us' => $outcome->retryAfterUs,
                    'reset_after_us' => $outcome->resetAfterUs,
                    'rule' => $rule->name,
                ];
            }
            $expect = $step['expect'];
            if (!isset($expect['error'])) {
                $expect += ['retry_after_us' => null];
            }
            self::assertEquals($expect, $answer, "{$life['name']}: step $number");
        }
    }
}
