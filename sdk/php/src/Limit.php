<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Redis\SealedRules;
use Sluicegate\Rules\Carry;
use Sluicegate\Rules\RuleEncoder;
use Sluicegate\Rules\RuleSet;

/**
 * A limit that is made in code. Rates and spans are texts as in policies.
 *
 * A span is a whole number and a unit, 1 us to 366 d: `us`, `ms`, `s` (`sec`, `second`), `m` (`min`, `minute`), `h`
 * (`hour`), `d` (`day`), such as `500ms`. A rate is up to 2^32 permits, a `/`, and a span or a unit: `10/min`,
 * `100/15m`, `2.5/s`, with six digits behind the point at most; permits that are bytes may have `B`, `kB`, `KiB`,
 * `MB`, `MiB`, `GB` or `GiB`: `64KiB/s`.
 */
final readonly class Limit
{
    /** @param SealedRules $sealed the rules as they are sent */
    private function __construct(
        /** @internal */
        public RuleSet $rules,
        /** @internal */
        public SealedRules $sealed,
        public OnStoreFailure $onStoreFailure,
    ) {
    }

    /**
     * Returns a token bucket: bursts of up to `$burst` permits, refilled at the rate.
     *
     * @param int|null $burst permits, 1 to 2^32; null: those of the rate, if it has no fraction
     * @param int|null $initial permits of a new key; null: the burst
     * @throws InvalidRequest if a parameter is not valid; all these functions do so
     */
    public static function tokenBucket(string $rate, ?int $burst = null, ?int $initial = null): self
    {
        return self::one('token_bucket', ['rate' => $rate, 'burst' => $burst, 'initial' => $initial]);
    }

    /** Requests one after the other at the rate; up to `$burst` wait: for `waitLeftUs()` of their decisions. */
    public static function leakyBucket(string $rate, int $burst = 0): self
    {
        return self::one('leaky_bucket', ['rate' => $rate, 'burst' => $burst]);
    }

    /**
     * Guava's SmoothBursty: any cost passes, and the next request waits for it.
     *
     * @param string $maxBurst for how long permits are saved
     */
    public static function smoothBursty(string $rate, string $maxBurst = '1s'): self
    {
        return self::one('smooth_bursty', ['rate' => $rate, 'max_burst' => $maxBurst]);
    }

    /**
     * Guava's SmoothWarmingUp: the same, and after idle times permits come slower.
     *
     * @param string $warmup how long it takes to come to the rate
     * @param float $coldFactor how many times slower they come at first; above 1, to 1,000
     */
    public static function smoothWarmup(string $rate, string $warmup, float $coldFactor = 3.0): self
    {
        return self::one('smooth_warmup', ['rate' => $rate, 'warmup' => $warmup, 'cold_factor' => $coldFactor]);
    }

    /**
     * At most `$limit` permits in each window.
     *
     * @param bool $fromFirst whether a key's first request begins its window; else the clock does
     */
    public static function fixedWindow(int $limit, string $window, bool $fromFirst = false): self
    {
        $align = $fromFirst ? 'first' : 'epoch';
        return self::one('fixed_window', ['limit' => $limit, 'window' => $window, 'align' => $align]);
    }

    /**
     * At most `$limit` permits in each day, week, month or year of a time zone.
     *
     * @param string $unit `day`, `week`, `month` or `year`
     * @param string $timeZone a name of the IANA database, such as `Europe/Berlin`
     */
    public static function calendarWindow(int $limit, string $unit, string $timeZone = 'UTC'): self
    {
        return self::one('fixed_window', ['limit' => $limit, 'calendar' => $unit, 'time_zone' => $timeZone]);
    }

    /** At most `$limit` permits in every window, by counters. */
    public static function slidingWindow(int $limit, string $window, int $buckets = 10): self
    {
        return self::one('sliding_window', ['limit' => $limit, 'window' => $window, 'buckets' => $buckets]);
    }

    /** About `$limit` permits in every window, by two counters. */
    public static function slidingCounter(int $limit, string $window): self
    {
        return self::one('sliding_counter', ['limit' => $limit, 'window' => $window]);
    }

    /** At most `$limit` permits (to 10,000) in every window, by an entry for each grant. */
    public static function slidingLog(int $limit, string $window): self
    {
        return self::one('sliding_log', ['limit' => $limit, 'window' => $window]);
    }

    /** At most `$limit` permits (to 10,000) held at once; one that is not released lapses after `$ttl`. */
    public static function concurrency(int $limit, string $ttl): self
    {
        return self::one('concurrency', ['limit' => $limit, 'ttl' => $ttl]);
    }

    /**
     * Rules that are decided together, with the parameters of `rules` of a policy.
     *
     * @param list<array<string, mixed>> $rules such as `[['name' => 'burst', 'token_bucket' => ['rate' => '10/s']]]`
     * @param string $carry the usage that a changed rule keeps: `usage`, `proportional` or `reset`
     */
    public static function rules(array $rules, string $carry = 'usage'): self
    {
        $carries = ['usage' => Carry::Usage, 'proportional' => Carry::Proportional, 'reset' => Carry::Reset];
        $wanted = '`usage`, `proportional` or `reset`';
        $carry = $carries[$carry] ?? throw InvalidRequest::rules("carry: `$carry` is unknown, expected $wanted");
        $set = RuleEncoder::set($rules, $carry);
        if ($set->isTooCostly()) {
            throw InvalidRequest::rules('one decision could take Redis longer than 0.3 ms');
        }
        return new self($set, SealedRules::ofCaller($set), OnStoreFailure::Local);
    }

    /** Returns this limit with another decision while Redis does not answer; the default is `Local`. */
    public function onStoreFailure(OnStoreFailure $decision): self
    {
        return new self($this->rules, $this->sealed, $decision);
    }

    /** @param array<string, mixed> $parameters null: the default */
    private static function one(string $algorithm, array $parameters): self
    {
        return self::rules([['name' => 'limit', $algorithm => $parameters]]);
    }
}
