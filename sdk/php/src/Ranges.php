<?php

declare(strict_types=1);

namespace Sluicegate;

use InvalidArgumentException;
use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\KernelRequest;

/**
 * Checks the arguments of callers. All functions but `isName` throw an `InvalidRequest` if one is out of range.
 *
 * @internal
 */
final class Ranges
{
    private function __construct()
    {
    }

    /** @param string|null $key 1 to 1,024 bytes; null: the shared budget */
    public static function key(?string $key): void
    {
        if ($key === '') {
            $problem = 'is empty, expected 1..=1024 bytes; omit it for the shared budget';
            throw new InvalidRequest('key_empty', "key: $problem");
        }
        if ($key !== null && strlen($key) > 1024) {
            throw new InvalidRequest('key_length', 'key: `' . strlen($key) . '` bytes are outside 1..=1024');
        }
    }

    /** @param string $id 1 to 1,024 bytes */
    public static function id(string $id): void
    {
        if ($id === '' || strlen($id) > 1024) {
            throw new InvalidRequest('id_length', 'id: `' . strlen($id) . '` bytes are outside 1..=1024');
        }
    }

    /** @param string $name of a policy, or of a limit that is made in code: 1 to 128 bytes of `[a-z0-9._-]` */
    public static function name(string $name, string $path = 'name'): void
    {
        if (!self::isName($name)) {
            throw InvalidRequest::rules("$path: `$name` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
        }
    }

    /** @param string $app a name; empty: none */
    public static function app(string $app): void
    {
        if ($app !== '' && !self::isName($app)) {
            $problem = "`$app` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`";
            throw new InvalidRequest('app_name', "app: $problem");
        }
    }

    public static function isName(string $text): bool
    {
        return (bool) preg_match('/^[a-z0-9._-]{1,128}$/D', $text);
    }

    /** @param int $cost 1 to 2^31 */
    public static function cost(int $cost): void
    {
        self::number('cost', $cost, 1, KernelRequest::COST_MAX);
    }

    /** @param int $ms the longest time of a request to Redis or a server, 1 to 10,000 */
    public static function deadline(int $ms): void
    {
        self::number('deadline', $ms, 1, 10_000, ' ms');
    }

    /** Checks an option that only this language has, so no name that all languages share fits its error. */
    public static function option(string $name, int $value, int $min, int $max): void
    {
        if ($value < $min || $value > $max) {
            throw new InvalidArgumentException("$name: `$value` is outside $min..=$max");
        }
    }

    /** @param string $unit the unit of the number, with a space before it; empty: none */
    public static function number(string $name, int $value, int $min, int $max, string $unit = ''): void
    {
        if ($value < $min || $value > $max) {
            throw new InvalidRequest("{$name}_range", "$name: `$value` is outside $min..=$max$unit");
        }
    }
}
