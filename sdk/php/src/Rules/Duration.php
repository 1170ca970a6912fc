<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

/**
 * Spans of time as policies write them.
 */
final class Duration
{
    /** The longest span in µs: 366 days. */
    public const MAX_US = 31_622_400_000_000;

    private const UNITS = [
        'us' => 1, 'ms' => 1000,
        's' => 1_000_000, 'sec' => 1_000_000, 'second' => 1_000_000,
        'm' => 60_000_000, 'min' => 60_000_000, 'minute' => 60_000_000,
        'h' => 3_600_000_000, 'hour' => 3_600_000_000,
        'd' => 86_400_000_000, 'day' => 86_400_000_000,
    ];

    /** The µs of a text such as `200ms` or `1day`, 1 to 366 days; null if it is no span. */
    public static function parse(string $text): ?int
    {
        if (!preg_match('/^(0|[1-9][0-9]*)([a-z]+)$/D', $text, $found) || !isset(self::UNITS[$found[2]])) {
            return null;
        }
        $count = self::wholeNumber($found[1]);
        $span = $count === null ? null : $count * self::UNITS[$found[2]];
        return is_int($span) && $span >= 1 && $span <= self::MAX_US ? $span : null;
    }

    /** The integer of digits without a leading zero, or null above 63 bits. */
    public static function wholeNumber(string $digits): ?int
    {
        $number = (int) $digits;
        return (string) $number === $digits ? $number : null;
    }
}
