<?php

declare(strict_types=1);

namespace Sluicegate\Policy;

use Sluicegate\FallbackResponse;
use Sluicegate\OnStoreFailure;
use Sluicegate\Overflow;
use Sluicegate\OverflowKind;
use Sluicegate\Rules\Calendar;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Rules\Unreadable;
use stdClass;

/**
 * Reads the record of a policy (`spec/record.md`), or an object in one. Each method throws an `Unreadable` that names
 * the member.
 *
 * @internal
 */
final readonly class Record
{
    /** The format of records that this package reads. */
    public const FORMAT = 1;

    /** The longest record that is read, in bytes; servers write none that are longer. */
    public const BYTES_MAX = 8_388_608;

    private const NUMBER_MAX = 9_007_199_254_740_991;

    private function __construct(private stdClass $members, private string $path)
    {
    }

    /** Parses the record in a JSON text. */
    public static function parse(string $json): self
    {
        if (strlen($json) > self::BYTES_MAX) {
            throw Unreadable::damaged('longer than ' . self::BYTES_MAX . ' bytes');
        }
        $value = json_decode($json);
        if (!$value instanceof stdClass) {
            throw Unreadable::damaged('not a JSON object');
        }
        $format = $value->record ?? null;
        if ($format !== self::FORMAT) {
            $read = self::FORMAT;
            // PHP reads integers of more than 64 bits as floats.
            throw is_int($format) || (is_float($format) && abs($format) >= 2.0 ** 63)
                ? Unreadable::later("record: `$format` is of a later version; this program reads $read")
                : Unreadable::damaged('record: expected an integer');
        }
        return new self($value, '');
    }

    public function has(string $name): bool
    {
        return property_exists($this->members, $name);
    }

    public function text(string $name): string
    {
        $value = $this->members->$name ?? null;
        return is_string($value) ? $value : throw $this->damaged($name, 'expected a text');
    }

    public function wholeNumber(string $name, int $min, int $max = self::NUMBER_MAX): int
    {
        $value = $this->members->$name ?? null;
        return is_int($value) && $value >= $min && $value <= $max
            ? $value
            : throw $this->damaged($name, "expected an integer from $min to $max");
    }

    /** @return list<string> */
    public function texts(string $name): array
    {
        $value = $this->members->$name ?? null;
        return is_array($value) && $value !== [] && array_filter($value, is_string(...)) === $value
            ? $value
            : throw $this->damaged($name, 'expected a list of texts');
    }

    /** Returns the instant of the version in ms since 1970; null if there is none. */
    public function sinceMs(): ?int
    {
        $since = $this->members->since_ms ?? null;
        return is_int($since) && $since >= 0 && $since <= self::NUMBER_MAX ? $since : null;
    }

    public function onStoreFailure(): OnStoreFailure
    {
        return OnStoreFailure::tryFrom($this->text('on_store_failure')) ?? throw $this->unknown('on_store_failure');
    }

    public function overflow(): Overflow
    {
        $at = $this->object('overflow');
        $kind = OverflowKind::tryFrom($at->text('kind')) ?? throw $at->unknown('kind');
        return match ($kind) {
            OverflowKind::Reject, OverflowKind::Shadow => new Overflow($kind),
            OverflowKind::Queue => new Overflow($kind, $at->wholeNumber('max_wait_us', 1)),
            OverflowKind::Divert => new Overflow($kind, target: $at->text('target')),
            OverflowKind::Degrade => match (true) {
                $at->has('tag') => new Overflow($kind, tag: $at->text('tag')),
                $at->has('response') => new Overflow($kind, response: $at->object('response')->response()),
                default => throw Unreadable::later('overflow: `degrade` has neither `tag` nor `response`'),
            },
        };
    }

    /** Reads the rules of the policy, or of an override. */
    public function rules(): RuleSet
    {
        $blob = base64_decode(strtr($this->text('blob'), '-_', '+/'), true);
        try {
            $set = RuleSet::read((string) $blob);
        } catch (Unreadable $e) {
            throw $e->at($this->at('blob'));
        }
        if ($set->isTooCostly()) {
            throw $this->damaged('blob', 'one decision could take Redis longer than 0.3 ms');
        }
        $each = $this->objects('each');
        if (count($each) !== count($set->rules)) {
            throw $this->damaged('each', 'expected an element for each rule');
        }
        $describe = static fn (self $about, Rule $rule): Rule => $about->described($rule);
        $rules = array_map($describe, $each, $set->rules);
        return $set->described($rules, $this->wholeNumber('life_ms', 1, RuleSet::LIFE_MAX_MS));
    }

    /** @return array<string, array{RuleSet, int}> by key, its own rules, and their end in ms since 1970 */
    public function overrides(): array
    {
        $overrides = [];
        foreach ($this->has('overrides') ? $this->objects('overrides') : [] as $own) {
            $end = $own->has('until_ms') ? $own->wholeNumber('until_ms', 0) : PHP_INT_MAX;
            $overrides[$own->text('key')] = [$own->rules(), $end];
        }
        return $overrides;
    }

    private function described(Rule $rule): Rule
    {
        $name = $this->text('name');
        if (Rule::hashOf($name) !== $rule->nameHash) {
            throw $this->damaged('name', 'is not that of the rule in the blob');
        }
        $calendar = $rule->flags & Rule::HAS_CALENDAR
            ? $this->object('calendar')->calendar((int) $rule->numbers[3])
            : null;
        $windowUs = $this->has('window_us') ? $this->wholeNumber('window_us', 1) : null;
        return $rule->described($name, $this->wholeNumber('limit', 1), $windowUs, $calendar);
    }

    /** @param int $code of the unit in the blob */
    private function calendar(int $code): Calendar
    {
        $unit = $this->text('unit');
        if (!in_array($unit, Calendar::UNITS, true)) {
            throw $this->unknown('unit');
        }
        if (Calendar::UNITS[$code] !== $unit) {
            throw $this->damaged('unit', 'is not that of the rule in the blob');
        }
        $zone = $this->text('zone');
        return Calendar::findZone($zone) === null ? throw $this->unknown('zone') : new Calendar($unit, $zone);
    }

    private function response(): FallbackResponse
    {
        $headers = $this->object('headers');
        $fields = [];
        foreach (array_keys(get_object_vars($headers->members)) as $name) {
            $fields[$name] = $headers->text((string) $name);
        }
        return new FallbackResponse($this->wholeNumber('status', 200, 599), $fields, $this->text('body'));
    }

    private function object(string $name): self
    {
        return $this->child($name, $this->members->$name ?? null);
    }

    /** @return list<self> */
    private function objects(string $name): array
    {
        $values = $this->members->$name ?? null;
        return is_array($values)
            ? array_map(fn (int $at): self => $this->child("{$name}[$at]", $values[$at]), array_keys($values))
            : throw $this->damaged($name, 'expected a list');
    }

    private function child(string $name, mixed $value): self
    {
        return $value instanceof stdClass
            ? new self($value, $this->at($name))
            : throw $this->damaged($name, 'expected an object');
    }

    private function at(string $name): string
    {
        return $this->path === '' ? $name : "$this->path.$name";
    }

    private function damaged(string $name, string $reason): Unreadable
    {
        return Unreadable::damaged("{$this->at($name)}: $reason");
    }

    /** Returns the error for a text that only a later version can read. */
    private function unknown(string $name): Unreadable
    {
        $text = substr($this->text($name), 0, 60);
        return Unreadable::later("{$this->at($name)}: `$text` is unknown to this program");
    }
}
