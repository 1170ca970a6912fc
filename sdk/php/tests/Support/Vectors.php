<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\RuleEncoder;
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

    /**
     * The record of the first entry of `records.json` with a name, as text.
     */
    public static function record(string $name): string
    {
        foreach (self::wire('records.json') as $entry) {
            if ($entry['name'] === $name) {
                return $entry['record'];
            }
        }
        throw new \InvalidArgumentException($name);
    }

    /** @param list<array<mixed>> $specs */
    public static function rules(array $specs, string $carry = 'usage'): RuleSet
    {
        $carry = ['usage' => Carry::Usage, 'proportional' => Carry::Proportional, 'reset' => Carry::Reset][$carry];
        return RuleEncoder::set(array_map(self::rule(...), $specs), $carry);
    }

    /** @param array<mixed> $step */
    public static function request(array $step): ?KernelRequest
    {
        $verb = self::verb($step['op']);
        $cost = $step['cost'] ?? 1;
        if ($cost < 1 || $cost > KernelRequest::COST_MAX) {
            return null;
        }
        $wait = $verb === Verb::Reserve ? $step['max_wait_us'] ?? KernelRequest::MAX_WAIT_US : null;
        return new KernelRequest($verb, $cost, $wait, $step['id'] ?? '');
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

    /**
     * A rule of the vectors as `Limit::rules` takes it: times in µs are texts there.
     *
     * @param array<mixed> $spec
     * @return array<string, mixed>
     */
    private static function rule(array $spec): array
    {
        $parameters = [];
        foreach ($spec['params'] as $name => $value) {
            if ($name === 'rate') {
                $value = "{$value['permits']}/{$value['period_us']}us";
            } elseif (str_ends_with($name, '_us')) {
                [$name, $value] = [substr($name, 0, -3), "{$value}us"];
            }
            $parameters[$name] = $value;
        }
        return ['name' => $spec['name'], $spec['algorithm'] => $parameters];
    }
}
