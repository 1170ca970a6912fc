<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

/**
 * Permits per period, as written: `60/m` and `1/s` are different rates.
 */
final readonly class Rate
{
    /** The most permits of a rate: 2^32. */
    public const PERMITS_MAX = 4294967296;

    private const BYTES = [
        '' => 1, 'B' => 1, 'kB' => 1000, 'KiB' => 1024, 'MB' => 1_000_000, 'MiB' => 1_048_576,
        'GB' => 1_000_000_000, 'GiB' => 1_073_741_824,
    ];

    /**
     * @param int $permits 1 to 2^32
     * @param int $periodUs 1 µs to 366 days
     */
    public function __construct(public int $permits, public int $periodUs)
    {
    }

    /** The rate of a text such as `100/s` or `64KiB/200ms`, or null if it is none. */
    public static function parse(string $text): ?self
    {
        if (!preg_match('~^(0|[1-9][0-9]*)(B|kB|KiB|MB|MiB|GB|GiB)?/(.+)$~Ds', $text, $found)) {
            return null;
        }
        $count = Duration::wholeNumber($found[1]);
        $permits = $count === null ? null : $count * self::BYTES[$found[2]];
        $period = Duration::parse(ctype_digit($found[3][0]) ? $found[3] : '1' . $found[3]);
        if ($period === null || !is_int($permits) || $permits < 1 || $permits > self::PERMITS_MAX) {
            return null;
        }
        return new self($permits, $period);
    }
}
