<?php

declare(strict_types=1);

namespace Sluicegate\Remote;

use Sluicegate\Exception\ServerProblem;

/**
 * An object in an answer of a server. Each method returns a member, or throws if it is missing or wrong.
 *
 * @internal
 */
final readonly class ResponseFields
{
    /** The largest number of an answer: not all languages read larger integers in JSON. */
    private const NUMBER_MAX = 9_007_199_254_740_991;

    private function __construct(private array $members)
    {
    }

    /** @throws ServerProblem if it is not an object */
    public static function of(mixed $value): self
    {
        return is_array($value) ? new self($value) : throw self::invalid('an object');
    }

    public function has(string $name): bool
    {
        return isset($this->members[$name]);
    }

    public function object(string $name): self
    {
        return is_array($this->members[$name] ?? null) ? new self($this->members[$name]) : throw self::invalid($name);
    }

    public function items(string $name): array
    {
        $value = $this->members[$name] ?? null;
        return is_array($value) && array_is_list($value) ? $value : throw self::invalid($name);
    }

    public function bool(string $name): bool
    {
        return is_bool($this->members[$name] ?? null) ? $this->members[$name] : throw self::invalid($name);
    }

    /** Returns a whole number from 0 to 2^53 - 1. */
    public function whole(string $name): int
    {
        $value = $this->members[$name] ?? null;
        return is_int($value) && $value >= 0 && $value <= self::NUMBER_MAX ? $value : throw self::invalid($name);
    }

    /** Returns a whole number from 0 to 2^53 - 1, or null if the member is null. */
    public function wholeOrNull(string $name): ?int
    {
        return array_key_exists($name, $this->members) && $this->members[$name] === null ? null : $this->whole($name);
    }

    public function text(string $name): string
    {
        return is_string($this->members[$name] ?? null) ? $this->members[$name] : throw self::invalid($name);
    }

    /** @return array<string, string> the texts of an object, such as header fields */
    public function texts(string $name): array
    {
        $texts = [];
        foreach ($this->object($name)->members as $of => $text) {
            $texts[(string) $of] = is_string($text) ? $text : throw self::invalid("$name.$of");
        }
        return $texts;
    }

    private static function invalid(string $name): ServerProblem
    {
        return new ServerProblem(200, "the answer is not what was asked for, `$name` is missing or wrong");
    }
}
