<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Kernel\Level;
use Sluicegate\Kernel\Num;
use Sluicegate\Kernel\Primitive;

/**
 * Makes rules of parameters: the numbers of each algorithm, as the script gets them.
 *
 * Parameters are in their ranges when they come here; `Policy\RuleReader` sees to that.
 */
final class Packer
{
    private const PERMITS_STORED_MAX = 4503599627370496.0;

    public static function tokenBucket(string $name, Rate $rate, int $burst, int $initial, bool $byInterval): Rule
    {
        [$tick, $perTick, $perPermit] = $byInterval
            ? [$rate->periodUs, $rate->permits, 1]
            : self::flow($rate, $burst);
        $depth = $burst * $perPermit;
        $flags = $initial < $burst ? 0 : Rule::FULL_IS_FRESH;
        $used = ($burst - $initial) * $perPermit;
        $stepped = $byInterval ? 1 : 0;
        $window = (new Level($tick, $perTick, $perPermit, $depth, 1))->lengthUs();
        $numbers = [$tick, $perTick, $perPermit, $depth, $burst, $used, $stepped, $rate->permits, $rate->periodUs];
        return self::rule($name, 1, $flags, $numbers, $burst, $window);
    }

    /** @param int|null $delay null for `none` */
    public static function leakyBucket(string $name, Rate $rate, int $burst, ?int $delay): Rule
    {
        [$tick, $perTick, $perPermit] = self::flow($rate, $burst + 1);
        $depth = ($burst + 1) * $perPermit;
        $window = (new Level($tick, $perTick, $perPermit, $depth, 1))->lengthUs();
        $numbers = [
            $tick, $perTick, $perPermit, $depth, $burst + 1, $delay === null ? 0 : 1, 0,
            ($delay ?? 0) * $perPermit, $rate->permits, $rate->periodUs,
        ];
        return self::rule($name, 4, Rule::FULL_IS_FRESH, $numbers, $burst + 1, $window);
    }

    public static function smoothBursty(string $name, Rate $rate, int $maxBurstUs): Rule
    {
        $permits = (float) $rate->permits;
        $period = (float) $rate->periodUs;
        $stored = min($permits * $maxBurstUs / $period, self::PERMITS_STORED_MAX);
        $limit = max((int) floor($stored), 1);
        $window = (int) min(ceil($limit * $period / $permits), Primitive::SPAN_MAX_US);
        return self::rule($name, 2, 0, [$permits, $period, $stored], $limit, $window);
    }

    public static function smoothWarmup(string $name, Rate $rate, int $warmupUs, float $coldFactor): Rule
    {
        $stable = (float) $rate->periodUs / (float) $rate->permits;
        $cold = $stable * $coldFactor;
        $threshold = 0.5 * $warmupUs / $stable;
        $maxStored = $threshold + 2.0 * $warmupUs / ($stable + $cold);
        $slope = ($cold - $stable) / ($maxStored - $threshold);
        $cooldown = $warmupUs / $maxStored;
        $limit = max((int) floor(min($maxStored, self::PERMITS_STORED_MAX)), 1);
        $numbers = [$stable, $threshold, $maxStored, $slope, $cooldown];
        return self::rule($name, 3, Rule::FULL_IS_FRESH, $numbers, $limit, null);
    }

    public static function fixedWindow(string $name, int $limit, int $windowUs, bool $fromFirst): Rule
    {
        $numbers = [$limit, $fromFirst ? 1 : 0, $windowUs, 0, 0];
        return self::rule($name, 5, Rule::FULL_IS_FRESH, $numbers, $limit, $windowUs);
    }

    public static function calendarWindow(string $name, int $limit, Calendar $calendar): Rule
    {
        $unit = (int) array_search($calendar->unit, Calendar::UNITS, true);
        $numbers = [$limit, 2, 0, $unit, Calendar::zoneHash($calendar->zone)];
        return self::rule($name, 5, Rule::FULL_IS_FRESH + Rule::HAS_CALENDAR, $numbers, $limit, null, $calendar);
    }

    public static function slidingWindow(string $name, int $limit, int $windowUs, int $buckets): Rule
    {
        $bucket = intdiv($windowUs + $buckets - 1, $buckets);
        return self::rule($name, 6, Rule::FULL_IS_FRESH, [$limit, $windowUs, $bucket, $buckets], $limit, null);
    }

    public static function slidingCounter(string $name, int $limit, int $windowUs): Rule
    {
        $perStep = intdiv(1 << 51, $limit);
        $step = intdiv($windowUs + $perStep - 1, $perStep);
        $numbers = [$limit, $windowUs, $step, intdiv($windowUs, $step)];
        return self::rule($name, 7, Rule::FULL_IS_FRESH, $numbers, $limit, $windowUs);
    }

    public static function slidingLog(string $name, int $limit, int $windowUs): Rule
    {
        return self::rule($name, 8, Rule::FULL_IS_FRESH, [$limit, $windowUs], $limit, $windowUs);
    }

    public static function concurrency(string $name, int $limit, int $ttlUs): Rule
    {
        $flags = Rule::FULL_IS_FRESH + Rule::HOLDS_PERMITS;
        return self::rule($name, 9, $flags, [$limit, $ttlUs, 0], $limit, null);
    }

    /**
     * How long a state of the rule is of use, in µs: from an empty to a full budget.
     */
    public static function lifeUs(Rule $rule): float
    {
        $n = $rule->numbers;
        return match ($rule->code) {
            1, 4 => (float) Num::divCeil((int) $n[3], (int) $n[1]) * $n[0],
            2 => ceil($n[2] * $n[1] / $n[0]),
            3 => ceil($n[2] * $n[4]),
            5 => $n[1] === 2.0 ? (float) Duration::MAX_US : $n[2],
            6 => $n[1] + $n[2],
            7 => 2.0 * $n[1],
            default => $n[1],
        };
    }

    /**
     * Tick in µs, units a tick, units a permit of a bucket that holds `$depth` permits.
     *
     * @return array{int, int, int}
     */
    private static function flow(Rate $rate, int $depth): array
    {
        [$g, $rest] = [$rate->permits, $rate->periodUs];
        while ($rest > 0) {
            [$g, $rest] = [$rest, $g % $rest];
        }
        [$tick, $perTick, $perPermit] = [1, intdiv($rate->permits, $g), intdiv($rate->periodUs, $g)];
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

    /** @param list<int|float> $numbers */
    private static function rule(
        string $name,
        int $code,
        int $flags,
        array $numbers,
        int $limit,
        ?int $windowUs,
        ?Calendar $calendar = null,
    ): Rule {
        $nameHash = substr(hash('sha256', $name, true), 0, 8);
        $numbers = array_map(floatval(...), $numbers);
        return new Rule($code, $flags, $nameHash, $numbers, $name, $limit, $windowUs, $calendar);
    }
}
