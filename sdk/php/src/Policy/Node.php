<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\Duration;
use Sluicegate\Rules\Rate;
use stdClass;

/**
 * A value of a document, with its path. Each method gives what the value must be, or throws an error with the path.
 */
final readonly class Node
{
    public const TOKEN = '/^[A-Za-z0-9!#$%&\'*+.^_`|~-]{1,128}$/D';

    private const AS_WRITTEN = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_PRESERVE_ZERO_FRACTION;

    public function __construct(public mixed $value, public string $path)
    {
    }

    public function error(string $what): InvalidRequest
    {
        return InvalidRequest::rules($this->path === '' ? $what : "$this->path: $what");
    }

    /** The error that a field of this object is missing. */
    public function missing(string $field): InvalidRequest
    {
        return $this->at($field)->error('is missing');
    }

    /** A field of this object, whether it is there or not. */
    private function at(string $field, mixed $value = null): self
    {
        return new self($value, ltrim("$this->path.$field", '.'));
    }

    /**
     * The fields of an object, of which no other may be there.
     *
     * @param list<string> $known
     * @return array<string, Node>
     */
    public function fields(array $known): array
    {
        if (!$this->value instanceof stdClass) {
            throw $this->error('expected an object');
        }
        $fields = [];
        foreach (get_object_vars($this->value) as $name => $value) {
            if (!in_array((string) $name, $known, true)) {
                throw $this->at(self::short((string) $name))->error('unknown field');
            }
            $fields[$name] = $this->at((string) $name, $value);
        }
        return $fields;
    }

    /** @return list<Node> */
    public function items(int $min, int $max): array
    {
        if (!is_array($this->value) || count($this->value) < $min || count($this->value) > $max) {
            throw $this->error("expected a list of $min to $max");
        }
        $items = [];
        foreach ($this->value as $place => $value) {
            $items[] = new self($value, "{$this->path}[$place]");
        }
        return $items;
    }

    public function text(int $min, int $max): string
    {
        if (!is_string($this->value) || strlen($this->value) < $min || strlen($this->value) > $max) {
            throw $this->error("expected a text of $min to $max bytes");
        }
        return $this->value;
    }

    /** A text without control characters. */
    public function plainText(int $min, int $max): string
    {
        $text = $this->text($min, $max);
        if (preg_match('/[\x{0}-\x{1f}\x{7f}-\x{9f}]/u', $text)) {
            throw $this->error('has control characters');
        }
        return $text;
    }

    /** The name of a policy, a rule, an app or a tag. */
    public function name(): string
    {
        if (!is_string($this->value) || !preg_match('/^[a-z0-9._-]{1,128}$/D', $this->value)) {
            throw $this->error($this->shown() . ' is not a name; expected 1..=128 bytes of `[a-z0-9._-]`');
        }
        return $this->value;
    }

    public function token(): string
    {
        if (!is_string($this->value) || !preg_match(self::TOKEN, $this->value)) {
            throw $this->error($this->shown() . ' is not a token');
        }
        return $this->value;
    }

    /** @param list<string> $words */
    public function word(array $words): string
    {
        if (!is_string($this->value) || !in_array($this->value, $words, true)) {
            throw $this->error($this->shown() . ' is none of `' . implode('`, `', $words) . '`');
        }
        return $this->value;
    }

    public function wholeNumber(int $min, int $max): int
    {
        if (!is_int($this->value) || $this->value < $min || $this->value > $max) {
            throw $this->error($this->shown() . " is outside $min..=$max");
        }
        return $this->value;
    }

    public function factor(float $above, float $max): float
    {
        $number = is_int($this->value) || is_float($this->value) ? (float) $this->value : NAN;
        if (!($number > $above && $number <= $max)) {
            throw $this->error($this->shown() . " is not a number above $above and at most $max");
        }
        return $number;
    }

    public function rate(): Rate
    {
        return (is_string($this->value) ? Rate::parse($this->value) : null)
            ?? throw $this->error($this->shown() . ' is not a rate; expected permits per time, such as `10/s`');
    }

    public function duration(int $max = Duration::MAX_US): int
    {
        $span = is_string($this->value) ? Duration::parse($this->value) : null;
        if ($span === null || $span > $max) {
            throw $this->error($this->shown() . ' is not a duration; expected a time such as `10s`');
        }
        return $span;
    }

    /** A second of UTC, in ms since 1970. */
    public function instant(): int
    {
        $text = is_string($this->value) ? $this->value : '';
        $at = \DateTimeImmutable::createFromFormat('!Y-m-d\TH:i:s\Z', $text, new \DateTimeZone('UTC'));
        if ($at === false || $at->format('Y-m-d\TH:i:s\Z') !== $text || $text < '1970' || $text >= '2100') {
            throw $this->error($this->shown() . ' is not an instant of UTC such as `2026-12-31T18:00:00Z`');
        }
        return $at->getTimestamp() * 1000;
    }

    public function timeZone(): string
    {
        if (!is_string($this->value) || Calendar::findZone($this->value) === null) {
            throw $this->error($this->shown() . ' is not a time zone');
        }
        return $this->value;
    }

    private function shown(): string
    {
        return '`' . self::short((string) json_encode($this->value, self::AS_WRITTEN)) . '`';
    }

    private static function short(string $text): string
    {
        return substr(trim($text, '"'), 0, 60);
    }
}
