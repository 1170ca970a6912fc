<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\Primitive;
use Sluicegate\Ranges;

/**
 * Encodes rules that are made in code: the numbers of each algorithm, as the script gets them (`spec/redis.md`, Rules).
 *
 * @internal
 */
final class RuleEncoder
{
    /** The algorithms in the order of their codes, from 1 on. */
    private const ALGORITHMS = [
        'token_bucket', 'smooth_bursty', 'smooth_warmup', 'leaky_bucket', 'fixed_window', 'sliding_window',
        'sliding_counter', 'sliding_log', 'concurrency',
    ];

    /** The most entries of a log, holders of permits, and requests that wait for one: their states grow with each. */
    private const ENTRIES_MAX = 10_000;

    private const PERMITS_MAX = Parameters::PERMITS_MAX;

    /**
     * The set of 1 to 8 rules. Each is an array with its algorithm and, unless it is alone, its `name`.
     *
     * @throws InvalidRequest if one is not valid; the message names the path of the error
     */
    public static function set(array $rules, Carry $carry): RuleSet
    {
        if ($rules === [] || count($rules) > RuleSet::RULES_MAX) {
            throw InvalidRequest::rules('`' . count($rules) . '` rules are outside 1..=' . RuleSet::RULES_MAX);
        }
        $encoded = [];
        foreach (array_values($rules) as $place => $rule) {
            $made = self::rule("rules[$place]", $rule, count($rules) === 1);
            if (isset($encoded[$made->name])) {
                throw InvalidRequest::rules("rules[$place].name: another rule is named `$made->name`");
            }
            $encoded[$made->name] = $made;
        }
        return RuleSet::of(array_values($encoded), $carry);
    }

    private static function rule(string $path, mixed $rule, bool $isAlone): Rule
    {
        $given = is_array($rule) ? array_diff_key($rule, ['name' => null]) : [];
        $algorithm = array_key_first($given);
        if (count($given) !== 1 || !is_array($given[$algorithm])) {
            throw InvalidRequest::rules("$path: expected one algorithm with its parameters");
        }
        $code = array_search($algorithm, self::ALGORITHMS, true);
        if ($code === false) {
            throw InvalidRequest::rules("$path: unknown algorithm `$algorithm`");
        }
        $code++;
        $name = $rule['name'] ?? ($isAlone ? $algorithm : null);
        if (!is_string($name)) {
            throw InvalidRequest::rules("$path.name: expected a name");
        }
        Ranges::name($name, "$path.name");
        $p = new Parameters("$path.$algorithm", $given[$algorithm]);
        $calendar = $code === 5 ? self::calendar($p) : null;
        $numbers = array_map(floatval(...), match ($code) {
            1 => self::tokenBucket($p),
            2 => self::smoothBursty($p),
            3 => self::smoothWarmup($p),
            4 => self::leakyBucket($p),
            5 => self::fixedWindow($p, $calendar),
            6 => self::slidingWindow($p),
            7 => self::twoCounters($p),
            8 => [$p->wholeNumber('limit', 1, self::ENTRIES_MAX), $p->span('window')],
            9 => [
                $p->wholeNumber('limit', 1, self::ENTRIES_MAX),
                $p->span('ttl'),
                $p->wholeNumber('queue', 0, self::ENTRIES_MAX, 0),
            ],
        });
        $p->end();
        $limit = Rule::limitOf($code, $numbers);
        $windowUs = self::windowUs($code, $numbers, $limit);
        $flags = self::flags($code, $numbers);
        return new Rule($code, $flags, Rule::hashOf($name), $numbers, $name, $limit, $windowUs, $calendar);
    }

    /** @return list<int> */
    private static function tokenBucket(Parameters $p): array
    {
        [$permits, $periodUs, $writtenUs] = $p->rate('rate');
        // The permits of a period that is not written: `2.53/s` is `253/100s`, and nobody means a burst of 253.
        $burst = $p->wholeNumber('burst', 1, self::PERMITS_MAX, $periodUs === $writtenUs ? $permits : null);
        $initial = $p->wholeNumber('initial', 0, $burst, $burst);
        $byInterval = $p->word('refill', ['smooth', 'interval'], 'smooth') === 'interval';
        $flow = $byInterval ? [$periodUs, $permits, 1] : self::flow($permits, $periodUs, $burst);
        $used = ($burst - $initial) * $flow[2];
        return [...$flow, $burst * $flow[2], $burst, $used, (int) $byInterval, $permits, $periodUs];
    }

    /** @return list<float> */
    private static function smoothBursty(Parameters $p): array
    {
        [$permits, $period] = array_map(floatval(...), $p->rate('rate'));
        $stored = min($permits * $p->span('max_burst', '1s') / $period, Rule::PERMITS_STORED_MAX);
        return [$permits, $period, $stored];
    }

    /** @return list<float> */
    private static function smoothWarmup(Parameters $p): array
    {
        [$permits, $periodUs] = $p->rate('rate');
        $warmup = $p->span('warmup');
        $stable = (float) $periodUs / (float) $permits;
        $cold = $stable * $p->factor('cold_factor', 1.0, 1000.0, 3.0);
        $threshold = 0.5 * $warmup / $stable;
        $maxStored = $threshold + 2.0 * $warmup / ($stable + $cold);
        $slope = ($cold - $stable) / ($maxStored - $threshold);
        return [$stable, $threshold, $maxStored, $slope, $warmup / $maxStored];
    }

    /** @return list<int> */
    private static function leakyBucket(Parameters $p): array
    {
        [$permits, $periodUs] = $p->rate('rate');
        $burst = $p->wholeNumber('burst', 0, self::PERMITS_MAX, 0);
        // All requests wait, or none, or those above so many in use.
        $delay = $p->isNumber('delay')
            ? $p->wholeNumber('delay', 0, $burst)
            : $p->word('delay', ['all', 'none'], 'all');
        $flow = self::flow($permits, $periodUs, $burst + 1);
        $free = is_int($delay) ? $delay * $flow[2] : 0;
        $waits = (int) ($delay !== 'none');
        return [...$flow, ($burst + 1) * $flow[2], $burst + 1, $waits, 0, $free, $permits, $periodUs];
    }

    private static function calendar(Parameters $p): ?Calendar
    {
        if (!$p->has('calendar')) {
            return $p->has('time_zone') ? throw $p->error('time_zone', 'does not go without `calendar`') : null;
        }
        foreach (['window', 'align'] as $other) {
            if ($p->has($other)) {
                throw $p->error($other, 'does not go with `calendar`');
            }
        }
        return new Calendar($p->word('calendar', Calendar::UNITS), $p->timeZone('time_zone'));
    }

    /** @return list<int> */
    private static function fixedWindow(Parameters $p, ?Calendar $calendar): array
    {
        $limit = $p->wholeNumber('limit', 1, self::PERMITS_MAX);
        if ($calendar !== null) {
            $unit = (int) array_search($calendar->unit, Calendar::UNITS, true);
            return [$limit, 2, 0, $unit, Calendar::zoneHash($calendar->zone)];
        }
        $window = $p->span('window');
        return [$limit, (int) ($p->word('align', ['epoch', 'first'], 'epoch') === 'first'), $window, 0, 0];
    }

    /** @return list<int> */
    private static function slidingWindow(Parameters $p): array
    {
        $limit = $p->wholeNumber('limit', 1, self::PERMITS_MAX);
        $buckets = $p->wholeNumber('buckets', 1, 1000, 10);
        $window = $p->span('window');
        if ($window < $buckets) {
            throw $p->error('window', "has fewer us than there are buckets, `$buckets`");
        }
        return [$limit, $window, Primitive::divCeil($window, $buckets), $buckets];
    }

    /** @return list<int> */
    private static function twoCounters(Parameters $p): array
    {
        $limit = $p->wholeNumber('limit', 1, self::PERMITS_MAX - 1);
        $window = $p->span('window');
        $step = Primitive::divCeil($window, intdiv(1 << 51, $limit));
        return [$limit, $window, $step, intdiv($window, $step)];
    }

    /**
     * Returns the tick in µs, the units per tick and the units per permit of a bucket that holds `$depth` permits.
     *
     * @return array{int, int, int}
     */
    private static function flow(int $permits, int $periodUs, int $depth): array
    {
        [$g, $rest] = [$permits, $periodUs];
        while ($rest > 0) {
            [$g, $rest] = [$rest, $g % $rest];
        }
        [$tick, $perTick, $perPermit] = [1, intdiv($permits, $g), intdiv($periodUs, $g)];
        $heaviest = intdiv(1 << 52, $depth);
        foreach ([2, 3, 5, 7] as $factor) {
            while ($perPermit > $heaviest && $perPermit % $factor === 0) {
                $perPermit = intdiv($perPermit, $factor);
                $tick *= $factor;
            }
        }
        if ($perPermit > $heaviest) {
            $tick *= $perPermit;
            $perPermit = 1;
        }
        return [$tick, $perTick, $perPermit];
    }

    /** @param list<float> $n */
    private static function flags(int $code, array $n): int
    {
        return match (true) {
            $code === 2, $code === 1 && $n[5] > 0 => 0,
            $code === 5 && $n[1] === 2.0 => Rule::FULL_IS_FRESH + Rule::HAS_CALENDAR,
            $code === 9 => Rule::FULL_IS_FRESH + Rule::HOLDS_PERMITS,
            default => Rule::FULL_IS_FRESH,
        };
    }

    /**
     * The time that header fields report, in which the whole limit comes back; null if that depends on when it began.
     *
     * @param list<float> $n
     */
    private static function windowUs(int $code, array $n, int $limit): ?int
    {
        $us = match ($code) {
            1, 4 => Primitive::divCeil((int) $n[3], (int) $n[1]) * (int) $n[0],
            2 => ceil($limit * $n[1] / $n[0]),
            5 => $n[2],
            7, 8 => $n[1],
            default => 0,
        };
        return $us > 0 ? (int) min($us, Primitive::SPAN_MAX_US) : null;
    }
}
