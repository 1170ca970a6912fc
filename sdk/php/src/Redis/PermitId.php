<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Sluicegate\Rules\Fnv;

/**
 * The name of a permit as a state keeps it.
 */
final class PermitId
{
    /** The 16 bytes of an id of 1 to 1,024 bytes: its 128-bit FNV-1a hash, big-endian. */
    public static function hash(string $id): string
    {
        return Fnv::hash128($id);
    }

    /** An id that nobody can guess. */
    public static function random(): string
    {
        return bin2hex(random_bytes(16));
    }
}
