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
