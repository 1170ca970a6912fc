<?php

declare(strict_types=1);

namespace Sluicegate;

use Sluicegate\Exception\InvalidRequest;
use Sluicegate\Kernel\Ask;

/**
 * The ranges of what callers ask with.
 */
final class Ranges
{
    private const BYTES_MAX = 1024;

    /**
     * @param string|null $key null: the budget that all share
     * @throws InvalidRequest if it has not 1 to 1,024 bytes
     */
    public static function key(?string $key): void
    {
        if ($key === '') {
            throw InvalidRequest::keyEmpty();
        }
        if ($key !== null && strlen($key) > self::BYTES_MAX) {
            throw InvalidRequest::keyLength(strlen($key));
        }
    }

    /**
     * @param string $name of a policy, or of a limit that is made in code
     * @throws InvalidRequest if it is not 1 to 128 bytes of `[a-z0-9._-]`
     */
    public static function name(string $name, string $path = 'name'): void
    {
        if (!self::isName($name)) {
            throw InvalidRequest::rules("$path: `$name` is not a name; expected 1..=128 bytes of `[a-z0-9._-]`");
        }
    }

    /**
     * @param string $app empty: none
     * @throws InvalidRequest if it is not a name
     */
    public static function app(string $app): void
    {
        if ($app !== '' && !self::isName($app)) {
            throw InvalidRequest::appName($app);
        }
    }

    public static function isName(string $text): bool
    {
        return (bool) preg_match('/^[a-z0-9._-]{1,128}$/D', $text);
    }

    /** @throws InvalidRequest if it is not 1 to 2^31 */
    public static function cost(int $cost): void
    {
        if ($cost < 1 || $cost > Ask::COST_MAX) {
            throw InvalidRequest::costRange($cost);
        }
    }

    /** @throws InvalidRequest if it has not 1 to 1,024 bytes */
    public static function id(string $id): void
    {
        if ($id === '' || strlen($id) > self::BYTES_MAX) {
            throw InvalidRequest::idLength(strlen($id));
        }
    }
}
