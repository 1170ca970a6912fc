<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

use Sluicegate\Exception\InvalidRequest;

/**
 * The parameters of a rule that is made in code. Each method checks one, and its error names it and its range.
 *
 * @internal
 */
final class Parameters
{
    /** The longest span in µs: 366 days. */
    public const SPAN_MAX_US = 31_622_400_000_000;

    /** The most permits of a rate, a burst or a limit: 2^32. */
    public const PERMITS_MAX = 4294967296;

    private const AS_WRITTEN = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION;

    private const SHOWN_MAX = 60;

    private const UNITS_US = [
        'us' => 1, 'ms' => 1000,
        's' => 1_000_000, 'sec' => 1_000_000, 'second' => 1_000_000,
        'm' => 60_000_000, 'min' => 60_000_000, 'minute' => 60_000_000,
        'h' => 3_600_000_000, 'hour' => 3_600_000_000,
        'd' => 86_400_000_000, 'day' => 86_400_000_000,
    ];

    private const PERMITS = [
        '' => 1, 'r' => 1, 'B' => 1, 'kB' => 1000, 'KiB' => 1024, 'MB' => 1_000_000, 'MiB' => 1_048_576,
        'GB' => 1_000_000_000, 'GiB' => 1_073_741_824,
    ];

    /** @var array<string, true> the names that methods have read */
    private array $recognized = [];

    /** @param array<mixed> $values by name; null is the default */
    public function __construct(private readonly string $path, private readonly array $values)
    {
    }

    /** Rejects parameters that no method has read. */
    public function end(): void
    {
        foreach (array_diff_key($this->values, $this->recognized) as $name => $value) {
            throw $this->error(substr((string) $name, 0, self::SHOWN_MAX), 'unknown field');
        }
    }

    public function has(string $name): bool
    {
        $this->recognized[$name] = true;
        return isset($this->values[$name]);
    }

    public function isNumber(string $name): bool
    {
        return is_int($this->values[$name] ?? null);
    }

    public function error(string $name, string $what): InvalidRequest
    {
        return InvalidRequest::rules("$this->path.$name: $what");
    }

    public function wholeNumber(string $name, int $min, int $max, ?int $default = null): int
    {
        $value = $this->value($name, $default);
        $isInRange = is_int($value) && $value >= $min && $value <= $max;
        return $isInRange ? $value : throw $this->error($name, $this->shown($value) . " is outside $min..=$max");
    }

    public function factor(string $name, float $above, float $max, float $default): float
    {
        $value = $this->value($name, $default);
        $isInRange = (is_int($value) || is_float($value)) && $value > $above && $value <= $max;
        $wanted = "is not a number above $above and at most $max";
        return $isInRange ? (float) $value : throw $this->error($name, $this->shown($value) . " $wanted");
    }

    /** @param list<string> $words */
    public function word(string $name, array $words, ?string $default = null): string
    {
        $value = $this->value($name, $default);
        $wanted = 'is none of `' . implode('`, `', $words) . '`';
        return in_array($value, $words, true) ? $value : throw $this->error($name, $this->shown($value) . " $wanted");
    }

    /** The name of a time zone; UTC by default. */
    public function timeZone(string $name): string
    {
        $value = $this->value($name, 'UTC');
        return is_string($value) && Calendar::findZone($value) !== null
            ? $value
            : throw $this->error($name, $this->shown($value) . ' is not a time zone');
    }

    /** The µs of a text such as `200ms` or `1day`. */
    public function span(string $name, ?string $default = null): int
    {
        $value = $this->value($name, $default);
        $wanted = 'is not a duration from 1us to 366d, such as `10s`';
        return (is_string($value) ? self::us($value) : null)
            ?? throw $this->error($name, $this->shown($value) . " $wanted");
    }

    /**
     * The permits and the period in µs of a text such as `100/s` or `64KiB/200ms`; `60/m` and `1/s` differ. A fraction
     * becomes whole permits in a longer period: 5 in 2 s for `2.5/s`; the third number is the period that is written.
     *
     * @return array{int, int, int}
     */
    public function rate(string $name): array
    {
        $value = $this->value($name);
        $unit = '(r|B|kB|KiB|MB|MiB|GB|GiB)?';
        if (is_string($value) && preg_match("~^(0|[1-9][0-9]*)(?:\\.([0-9]{1,6}))?$unit/(.+)$~Ds", $value, $found)) {
            $parts = 10 ** strlen($found[2]);
            $whole = self::digits($found[1]);
            // Above 63 bits these are floats.
            $permits = $whole === null ? null : ($whole * $parts + (int) $found[2]) * self::PERMITS[$found[3]];
            $written = self::us(ctype_digit($found[4][0]) ? $found[4] : '1' . $found[4]);
            if (is_int($permits) && $permits >= 1 && $written !== null) {
                $common = self::gcd($permits, $parts);
                $permits = intdiv($permits, $common);
                $period = $written * intdiv($parts, $common);
                if ($permits <= self::PERMITS_MAX && $period <= self::SPAN_MAX_US) {
                    return [$permits, $period, $written];
                }
            }
        }
        $wanted = 'is not a rate; expected up to 2^32 permits per time, such as `10/s` or `2.5/s`';
        throw $this->error($name, $this->shown($value) . " $wanted");
    }

    private static function gcd(int $a, int $b): int
    {
        return $b === 0 ? $a : self::gcd($b, $a % $b);
    }

    private function value(string $name, mixed $default = null): mixed
    {
        $this->recognized[$name] = true;
        return $this->values[$name] ?? $default ?? throw $this->error($name, 'is missing');
    }

    private function shown(mixed $value): string
    {
        return '`' . substr(trim((string) json_encode($value, self::AS_WRITTEN), '"'), 0, self::SHOWN_MAX) . '`';
    }

    private static function us(string $text): ?int
    {
        if (!preg_match('/^(0|[1-9][0-9]*)([a-z]+)$/D', $text, $found) || !isset(self::UNITS_US[$found[2]])) {
            return null;
        }
        $count = self::digits($found[1]);
        $span = $count === null ? null : $count * self::UNITS_US[$found[2]];
        return is_int($span) && $span >= 1 && $span <= self::SPAN_MAX_US ? $span : null;
    }

    /** The integer of digits without a leading zero; null above 63 bits. */
    private static function digits(string $digits): ?int
    {
        $number = (int) $digits;
        return (string) $number === $digits ? $number : null;
    }
}
