<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

/**
 * Random rules of documents, by the generator `mt_rand`.
 */
final class RandomRules
{
    /** @return list<array<mixed>> */
    public static function rules(): array
    {
        $count = mt_rand(1, 3);
        $rules = [];
        for ($place = 0; $place < $count; $place++) {
            $rule = self::rule();
            $rules[] = $count === 1 && mt_rand(0, 1) ? $rule : ['name' => "r$place"] + $rule;
        }
        return $rules;
    }

    /** @return array<mixed> */
    private static function rule(): array
    {
        $burst = self::number(4294967296);
        $limit = self::number(4294967295);
        $small = mt_rand(1, 200);
        $optional = static fn (array $field): array => mt_rand(0, 1) ? $field : [];
        return match (mt_rand(1, 9)) {
            1 => ['token_bucket' => ['rate' => self::rate(), 'burst' => $burst]
                + $optional(['initial' => intdiv($burst, mt_rand(1, 9))])
                + $optional(['refill' => self::one(['smooth', 'interval'])])],
            2 => ['leaky_bucket' => ['rate' => self::rate(), 'burst' => $burst]
                + $optional(['delay' => self::one(['all', 'none', intdiv($burst, 3)])])],
            3 => ['smooth_bursty' => ['rate' => self::rate()] + $optional(['max_burst' => self::duration()])],
            4 => ['smooth_warmup' => ['rate' => self::rate(), 'warmup' => self::duration()]
                + $optional(['cold_factor' => self::one([1.5, 2, 7.25, 1000, 1.0000001])])],
            5 => ['fixed_window' => ['limit' => $burst] + self::one([
                ['window' => self::duration()],
                ['window' => self::duration(), 'align' => self::one(['epoch', 'first'])],
                ['calendar' => self::one(['day', 'week', 'month', 'year'])],
                ['calendar' => 'week', 'time_zone' => self::one([
                    'Europe/Berlin', 'america/havana', 'EST5EDT', 'Australia/West', 'UTC', 'Pacific/Apia', 'GB-Eire',
                ])],
            ])],
            6 => ['sliding_window' => ['limit' => $limit, 'window' => mt_rand(1, 90) . self::one(['ms', 's', 'm', 'd'])]
                + $optional(['buckets' => mt_rand(1, 200)])],
            7 => ['sliding_counter' => ['limit' => $limit, 'window' => self::duration()]],
            8 => ['sliding_log' => ['limit' => $small, 'window' => self::duration()]],
            9 => ['concurrency' => ['limit' => $small, 'ttl' => self::duration()]],
        };
    }

    private static function rate(): string
    {
        $unit = self::one(['us', 'ms', 's', 'sec', 'm', 'min', 'h', 'hour', 'd', 'day']);
        $bytes = self::one(['', '', '', 'B', 'kB', 'KiB']);
        return self::number(4_000_000) . $bytes . '/' . self::one(['', mt_rand(1, 366)]) . $unit;
    }

    private static function duration(): string
    {
        return mt_rand(1, 366) . self::one(['us', 'ms', 's', 'second', 'm', 'minute', 'h', 'd']);
    }

    private static function number(int $max): int
    {
        return min(max((int) (2 ** (mt_rand(0, 3200) / 100)), 1), $max);
    }

    /** @param non-empty-list<mixed> $of */
    public static function one(array $of): mixed
    {
        return $of[mt_rand(0, count($of) - 1)];
    }
}
