<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\Packer;
use Sluicegate\Rules\Rate;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use stdClass;

/**
 * Reads the rules of a document.
 */
final class RuleReader
{
    private const PARAMETERS = [
        'token_bucket' => ['rate', 'burst', 'initial', 'refill'],
        'leaky_bucket' => ['rate', 'burst', 'delay'],
        'smooth_bursty' => ['rate', 'max_burst'],
        'smooth_warmup' => ['rate', 'warmup', 'cold_factor'],
        'fixed_window' => ['limit', 'window', 'align', 'calendar', 'time_zone'],
        'sliding_window' => ['limit', 'window', 'buckets'],
        'sliding_counter' => ['limit', 'window'],
        'sliding_log' => ['limit', 'window'],
        'concurrency' => ['limit', 'ttl', 'queue'],
    ];

    /** The most permits of a burst or limit: 2^32. */
    private const PERMITS_MAX = Rate::PERMITS_MAX;

    /** The most entries of a log and holders of permits: their states grow with each. */
    private const ENTRIES_MAX = 10_000;

    /**
     * 1 to 8 rules with names of their own.
     *
     * @return non-empty-list<Rule>
     */
    public static function rules(Node $node): array
    {
        $rules = [];
        $items = $node->items(1, RuleSet::RULES_MAX);
        foreach ($items as $item) {
            $rule = self::rule($item, count($items) === 1);
            if (isset($rules[$rule->name])) {
                throw (new Node(null, "$item->path.name"))->error("another rule is named `$rule->name`");
            }
            $rules[$rule->name] = $rule;
        }
        return array_values($rules);
    }

    private static function rule(Node $node, bool $isAlone): Rule
    {
        foreach ($node->value instanceof stdClass ? array_keys(get_object_vars($node->value)) : [] as $field) {
            if ($field !== 'name' && !isset(self::PARAMETERS[$field])) {
                throw $node->error("unknown algorithm `$field`");
            }
        }
        $fields = $node->fields(['name', ...array_keys(self::PARAMETERS)]);
        $name = isset($fields['name']) ? $fields['name']->name() : null;
        unset($fields['name']);
        if (count($fields) !== 1) {
            throw $node->error('expected one algorithm');
        }
        $algorithm = (string) array_key_first($fields);
        if ($name === null && !$isAlone) {
            throw $node->missing('name');
        }
        $at = $fields[$algorithm];
        $p = $at->fields(self::PARAMETERS[$algorithm]);
        $need = static fn (string $field): Node => $p[$field] ?? throw $at->missing($field);
        $name ??= $algorithm;
        return match ($algorithm) {
            'token_bucket' => self::tokenBucket($name, $need('rate')->rate(), $p),
            'leaky_bucket' => self::leakyBucket($name, $need('rate')->rate(), $p),
            'smooth_bursty' => Packer::smoothBursty(
                $name,
                $need('rate')->rate(),
                isset($p['max_burst']) ? $p['max_burst']->duration() : 1_000_000,
            ),
            'smooth_warmup' => Packer::smoothWarmup(
                $name,
                $need('rate')->rate(),
                $need('warmup')->duration(),
                isset($p['cold_factor']) ? $p['cold_factor']->factor(1.0, 1000.0) : 3.0,
            ),
            'fixed_window' => self::fixedWindow($name, $need('limit')->wholeNumber(1, self::PERMITS_MAX), $at, $p),
            'sliding_window' => self::slidingWindow($name, $need('limit'), $need('window'), $p),
            'sliding_counter' => Packer::slidingCounter(
                $name,
                $need('limit')->wholeNumber(1, self::PERMITS_MAX - 1),
                $need('window')->duration(),
            ),
            'sliding_log' => Packer::slidingLog(
                $name,
                $need('limit')->wholeNumber(1, self::ENTRIES_MAX),
                $need('window')->duration(),
            ),
            'concurrency' => self::concurrency($name, $need('limit'), $need('ttl'), $p),
        };
    }

    /** @param array<string, Node> $p */
    private static function tokenBucket(string $name, Rate $rate, array $p): Rule
    {
        $burst = isset($p['burst']) ? $p['burst']->wholeNumber(1, self::PERMITS_MAX) : $rate->permits;
        $initial = isset($p['initial']) ? $p['initial']->wholeNumber(0, $burst) : $burst;
        $refill = isset($p['refill']) ? $p['refill']->word(['smooth', 'interval']) : 'smooth';
        return Packer::tokenBucket($name, $rate, $burst, $initial, $refill === 'interval');
    }

    /** @param array<string, Node> $p */
    private static function leakyBucket(string $name, Rate $rate, array $p): Rule
    {
        $burst = isset($p['burst']) ? $p['burst']->wholeNumber(0, self::PERMITS_MAX) : 0;
        $delay = 0;
        if (isset($p['delay'])) {
            $delay = is_string($p['delay']->value)
                ? ['all' => 0, 'none' => null][$p['delay']->word(['all', 'none'])]
                : $p['delay']->wholeNumber(0, $burst);
        }
        return Packer::leakyBucket($name, $rate, $burst, $delay);
    }

    /** @param array<string, Node> $p */
    private static function fixedWindow(string $name, int $limit, Node $at, array $p): Rule
    {
        if (isset($p['calendar'])) {
            foreach (['window', 'align'] as $field) {
                if (isset($p[$field])) {
                    throw $p[$field]->error('does not go with `calendar`');
                }
            }
            $unit = $p['calendar']->word(Calendar::UNITS);
            $zone = isset($p['time_zone']) ? $p['time_zone']->timeZone() : 'UTC';
            return Packer::calendarWindow($name, $limit, new Calendar($unit, $zone));
        }
        if (isset($p['time_zone'])) {
            throw $p['time_zone']->error('does not go without `calendar`');
        }
        $window = ($p['window'] ?? throw $at->missing('window'))->duration();
        $align = isset($p['align']) ? $p['align']->word(['epoch', 'first']) : 'epoch';
        return Packer::fixedWindow($name, $limit, $window, $align === 'first');
    }

    /** @param array<string, Node> $p */
    private static function slidingWindow(string $name, Node $limit, Node $window, array $p): Rule
    {
        $buckets = isset($p['buckets']) ? $p['buckets']->wholeNumber(1, 1000) : 10;
        $span = $window->duration();
        if ($span < $buckets) {
            throw $window->error("has fewer us than there are buckets, `$buckets`");
        }
        return Packer::slidingWindow($name, $limit->wholeNumber(1, self::PERMITS_MAX), $span, $buckets);
    }

    /** @param array<string, Node> $p */
    private static function concurrency(string $name, Node $limit, Node $ttl, array $p): Rule
    {
        if (isset($p['queue'])) {
            $p['queue']->wholeNumber(0, 0);
        }
        return Packer::concurrency($name, $limit->wholeNumber(1, self::ENTRIES_MAX), $ttl->duration());
    }
}
