<?php

declare(strict_types=1);

namespace Sluicegate\Tests;

use PHPUnit\Framework\TestCase;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Limit;

/**
 * Parameters of limits that are made in code.
 */
final class LimitTest extends TestCase
{
    private const RATE = 'is not a rate; expected up to 2^32 permits per time, such as `10/s` or `2.5/s`';
    private const SPAN = 'is not a duration from 1us to 366d, such as `10s`';

    /** @return iterable<string, array{callable(): Limit, string}> */
    public static function builders(): iterable
    {
        $rates = [
            '10', '0/s', '4294967297/s', '10/367d', '10/é', '01/s', '10/ s',
            '1.5/1.5s', '.5/s', '1./s', '0.0/s', '1.0000001/s', '4294967296.5/s', '2.5/366d',
        ];
        foreach ($rates as $rate) {
            yield "the rate $rate" => [
                static fn (): Limit => Limit::tokenBucket($rate), "token_bucket.rate: `$rate` " . self::RATE,
            ];
        }
        foreach (['', '0s', '10', '367d', '1w', '9223372036854775807h', '-1s'] as $span) {
            yield "the span $span" => [
                static fn (): Limit => Limit::fixedWindow(1, $span), "fixed_window.window: `$span` " . self::SPAN,
            ];
        }
        $outside = [
            'token_bucket.burst: `0` is outside 1..=4294967296' => static fn () => Limit::tokenBucket('1/s', 0),
            'token_bucket.burst: is missing' => static fn () => Limit::tokenBucket('2.5/s'),
            'token_bucket.initial: `6` is outside 0..=5' => static fn () => Limit::tokenBucket('1/s', 5, 6),
            'leaky_bucket.burst: `-1` is outside 0..=4294967296' => static fn () => Limit::leakyBucket('1/s', -1),
            'fixed_window.limit: `0` is outside 1..=4294967296' => static fn () => Limit::fixedWindow(0, '1s'),
            'sliding_window.buckets: `1001` is outside 1..=1000' => static fn () => Limit::slidingWindow(1, '1s', 1001),
            'sliding_window.window: has fewer us than there are buckets, `10`' =>
                static fn () => Limit::slidingWindow(1, '9us'),
            'sliding_counter.limit: `4294967296` is outside 1..=4294967295' =>
                static fn () => Limit::slidingCounter(4294967296, '1s'),
            'sliding_log.limit: `10001` is outside 1..=10000' => static fn () => Limit::slidingLog(10_001, '1s'),
            'concurrency.limit: `0` is outside 1..=10000' => static fn () => Limit::concurrency(0, '1s'),
            'concurrency.ttl: `1` ' . self::SPAN => static fn () => Limit::concurrency(1, '1'),
            'smooth_bursty.max_burst: `1` ' . self::SPAN => static fn () => Limit::smoothBursty('1/s', '1'),
            'smooth_warmup.warmup: `1` ' . self::SPAN => static fn () => Limit::smoothWarmup('1/s', '1'),
            'smooth_warmup.cold_factor: `1.0` is not a number above 1 and at most 1000' =>
                static fn () => Limit::smoothWarmup('1/s', '1s', 1.0),
            'fixed_window.calendar: `hour` is none of `day`, `week`, `month`, `year`' =>
                static fn () => Limit::calendarWindow(1, 'hour'),
            'fixed_window.time_zone: `Mars` is not a time zone' =>
                static fn () => Limit::calendarWindow(1, 'day', 'Mars'),
        ];
        foreach ($outside as $problem => $make) {
            yield $problem => [$make, $problem];
        }
    }

    /**
     * @dataProvider builders
     * @param callable(): Limit $make
     */
    public function testAnErrorNamesTheParameterAndItsRange(callable $make, string $problem): void
    {
        self::assertProblem("rules[0].$problem", $make);
    }

    /** @return iterable<string, array{array<mixed>, string}> */
    public static function rules(): iterable
    {
        $bucket = ['token_bucket' => ['rate' => '1/s']];
        yield 'none' => [[], '`0` rules are outside 1..=8'];
        yield 'too many' => [array_fill(0, 9, $bucket), '`9` rules are outside 1..=8'];
        yield 'no rule' => [['token_bucket'], 'rules[0]: expected one algorithm with its parameters'];
        yield 'two algorithms' => [
            [$bucket + ['sliding_log' => []]], 'rules[0]: expected one algorithm with its parameters',
        ];
        yield 'an unknown algorithm' => [[['gcar' => ['rate' => '1/s']]], 'rules[0]: unknown algorithm `gcar`'];
        yield 'no name' => [[['name' => 'a'] + $bucket, $bucket], 'rules[1].name: expected a name'];
        yield 'not a name' => [
            [['name' => 'A'] + $bucket], 'rules[0].name: `A` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`',
        ];
        yield 'a name twice' => [
            [['name' => 'a'] + $bucket, ['name' => 'a'] + $bucket], 'rules[1].name: another rule is named `a`',
        ];
        $of = static fn (string $algorithm, array $parameters, string $problem): array =>
            [[[$algorithm => $parameters]], "rules[0].$algorithm.$problem"];
        yield $of('token_bucket', ['rate' => '1/s', 'brust' => 1], 'brust: unknown field');
        yield $of('token_bucket', ['burst' => 1], 'rate: is missing');
        yield $of('token_bucket', ['rate' => 10], 'rate: `10` ' . self::RATE);
        yield $of('token_bucket', ['rate' => '1/s', 'burst' => 1.0], 'burst: `1.0` is outside 1..=4294967296');
        yield $of(
            'token_bucket',
            ['rate' => '1/s', 'refill' => 'slow'],
            'refill: `slow` is none of `smooth`, `interval`',
        );
        yield $of('leaky_bucket', ['rate' => '1/s', 'burst' => 2, 'delay' => 3], 'delay: `3` is outside 0..=2');
        yield $of('leaky_bucket', ['rate' => '1/s', 'delay' => 'some'], 'delay: `some` is none of `all`, `none`');
        yield $of('smooth_bursty', ['rate' => '1/s', 'max_burst' => 1], 'max_burst: `1` ' . self::SPAN);
        yield $of(
            'smooth_warmup',
            ['rate' => '1/s', 'warmup' => '1s', 'cold_factor' => 1],
            'cold_factor: `1` is not a number above 1 and at most 1000',
        );
        $day = ['limit' => 1, 'calendar' => 'day'];
        yield $of(
            'fixed_window',
            ['calendar' => 'hour'] + $day,
            'calendar: `hour` is none of `day`, `week`, `month`, `year`',
        );
        yield $of('fixed_window', $day + ['time_zone' => 'Mars'], 'time_zone: `Mars` is not a time zone');
        yield $of('fixed_window', $day + ['window' => '1s'], 'window: does not go with `calendar`');
        yield $of('fixed_window', $day + ['align' => 'first'], 'align: does not go with `calendar`');
        yield $of(
            'fixed_window',
            ['limit' => 1, 'window' => '1s', 'time_zone' => 'UTC'],
            'time_zone: does not go without `calendar`',
        );
        $waiting = ['limit' => 1, 'ttl' => '1s', 'queue' => 10001];
        yield $of('concurrency', $waiting, 'queue: `10001` is outside 0..=10000');
        yield 'too costly' => [
            [['sliding_log' => ['limit' => 10_000, 'window' => '1s']]],
            'one decision could take Redis longer than 0.3 ms',
        ];
    }

    /**
     * @dataProvider rules
     * @param array<mixed> $rules
     */
    public function testRulesThatAreNotValidAreErrorsWithTheirPath(array $rules, string $problem): void
    {
        self::assertProblem($problem, static fn (): Limit => Limit::rules($rules));
    }

    public function testAnUnknownCarryIsAnError(): void
    {
        $make = static fn (): Limit => Limit::rules([['token_bucket' => ['rate' => '1/s']]], 'some');
        self::assertProblem('carry: `some` is unknown, expected `usage`, `proportional` or `reset`', $make);
    }

    public function testEachAlgorithmHasAFunction(): void
    {
        $of = static fn (string $algorithm, array $parameters): string =>
            Limit::rules([['name' => 'limit', $algorithm => $parameters]])->rules->bytes;
        $rate = ['rate' => '5/s'];
        $day = ['limit' => 7, 'calendar' => 'day', 'time_zone' => 'Europe/Berlin'];
        self::assertSame([
            $of('smooth_bursty', $rate), $of('smooth_bursty', $rate + ['max_burst' => '2s']),
            $of('smooth_warmup', $rate + ['warmup' => '3s']),
            $of('smooth_warmup', $rate + ['warmup' => '3s', 'cold_factor' => 4]), $of('fixed_window', $day),
            $of('fixed_window', ['limit' => 7, 'calendar' => 'month']),
        ], array_map(static fn (Limit $limit): string => $limit->rules->bytes, [
            Limit::smoothBursty('5/s'), Limit::smoothBursty('5/s', '2s'), Limit::smoothWarmup('5/s', '3s'),
            Limit::smoothWarmup('5/s', '3s', 4.0), Limit::calendarWindow(7, 'day', 'Europe/Berlin'),
            Limit::calendarWindow(7, 'month'),
        ]));
    }

    public function testRatesOfBytesAndOfOneUnitAreRates(): void
    {
        $rates = ['64KiB/200ms' => 65_536, '1MB/s' => 1_000_000, '4GiB/d' => 4_294_967_296, '7/day' => 7];
        foreach ($rates as $rate => $permits) {
            self::assertSame($permits, Limit::tokenBucket($rate)->rules->rules[0]->limit);
        }
    }

    public function testAFractionOfAPermitIsWholePermitsInALongerPeriod(): void
    {
        $rates = [
            '2.5/s' => '5/2s', '0.001/s' => '1/1000s', '1.50/min' => '3/2min', '12.25/200ms' => '49/800ms',
            '1.5MiB/s' => '1572864/s', '0.1B/s' => '1/10s', '60r/m' => '60/m', '2.0/s' => '2/s',
        ];
        foreach ($rates as $rate => $whole) {
            self::assertEquals(Limit::tokenBucket($whole, 3), Limit::tokenBucket($rate, 3), $rate);
        }
    }

    /** @param callable(): Limit $make */
    private static function assertProblem(string $problem, callable $make): void
    {
        try {
            $make();
            self::fail("made, though $problem");
        } catch (InvalidRequest $e) {
            self::assertSame(['rules', "rules: $problem"], [$e->errorName, $e->getMessage()]);
        }
    }
}
