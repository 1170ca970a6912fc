<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Kernel\Ask;
use Sluicegate\Redis\PermitId;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\Packer;
use Sluicegate\Rules\Rate;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * The lives of `spec/vectors`, and what they say in the terms of this package.
 */
final class Vectors
{
    public const DIR = __DIR__ . '/../../../../spec';

    /** @return iterable<string, array{array<mixed>}> */
    public static function lives(): iterable
    {
        foreach (glob(self::DIR . '/vectors/*/*.json') ?: [] as $file) {
            $life = json_decode((string) file_get_contents($file), true, 64, JSON_THROW_ON_ERROR);
            yield basename(dirname($file)) . '/' . basename($file, '.json') => [$life];
        }
    }

    /**
     * The entries of a file of `spec/wire`.
     *
     * @return list<array<mixed>>
     */
    public static function wire(string $file): array
    {
        $text = (string) file_get_contents(self::DIR . "/wire/$file");
        return json_decode($text, true, 64, JSON_THROW_ON_ERROR)['entries'];
    }

    /** @param list<array<mixed>> $specs */
    public static function rules(array $specs, string $carry = 'usage'): RuleSet
    {
        $carry = ['usage' => Carry::Usage, 'proportional' => Carry::Proportional, 'reset' => Carry::Reset][$carry];
        return RuleSet::of(array_map(self::rule(...), $specs), $carry);
    }

    /** @param array<mixed> $step */
    public static function ask(array $step): ?Ask
    {
        $verb = self::verb($step['op']);
        $cost = $step['cost'] ?? 1;
        if ($cost < 1 || $cost > Ask::COST_MAX) {
            return null;
        }
        $wait = $verb === Verb::Reserve ? $step['max_wait_us'] ?? Ask::MAX_WAIT_US : null;
        return new Ask($verb, $cost, $wait, $verb->namesPermit() ? PermitId::hash($step['id']) : '');
    }

    public static function verb(string $op): Verb
    {
        foreach (Verb::cases() as $verb) {
            if ($verb->text() === $op) {
                return $verb;
            }
        }
        throw new \InvalidArgumentException($op);
    }

    /** @param array<mixed> $spec */
    private static function rule(array $spec): Rule
    {
        $p = $spec['params'];
        $name = $spec['name'];
        $rate = isset($p['rate']) ? new Rate($p['rate']['permits'], $p['rate']['period_us']) : new Rate(1, 1);
        $delay = ($p['delay'] ?? 'all') === 'all' ? 0 : $p['delay'];
        return match ($spec['algorithm']) {
            'token_bucket' => Packer::tokenBucket(
                $name,
                $rate,
                $p['burst'] ?? $rate->permits,
                $p['initial'] ?? $p['burst'] ?? $rate->permits,
                ($p['refill'] ?? '') === 'interval',
            ),
            'leaky_bucket' => Packer::leakyBucket($name, $rate, $p['burst'] ?? 0, $delay === 'none' ? null : $delay),
            'smooth_bursty' => Packer::smoothBursty($name, $rate, $p['max_burst_us'] ?? 1_000_000),
            'smooth_warmup' => Packer::smoothWarmup($name, $rate, $p['warmup_us'], (float) ($p['cold_factor'] ?? 3)),
            'fixed_window' => isset($p['calendar'])
                ? Packer::calendarWindow(
                    $name,
                    $p['limit'],
                    new Calendar($p['calendar'], $p['time_zone'] ?? 'UTC'),
                )
                : Packer::fixedWindow($name, $p['limit'], $p['window_us'], ($p['align'] ?? '') === 'first'),
            'sliding_window' => Packer::slidingWindow($name, $p['limit'], $p['window_us'], $p['buckets'] ?? 10),
            'sliding_counter' => Packer::slidingCounter($name, $p['limit'], $p['window_us']),
            'sliding_log' => Packer::slidingLog($name, $p['limit'], $p['window_us']),
            'concurrency' => Packer::concurrency($name, $p['limit'], $p['ttl_us']),
            default => throw new \InvalidArgumentException($spec['algorithm']),
        };
    }
}
