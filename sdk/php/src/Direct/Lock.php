<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;

/**
 * A lock that the processes of a host share.
 *
 * @internal
 */
final class Lock
{
    /** The longest wait where the lock is needed, in µs: a process that has it may stand still for a while. */
    public const PATIENCE_US = 20_000;

    /** The time after which the lock of a dead process expires, in s. */
    private const LASTS_S = 1;

    private const PAUSE_US = 50;

    /** Takes a lock that `$memory->delete` gives back; returns false if another process has it for so long. */
    public static function take(Memory $memory, string $lock, int $waitUs): bool
    {
        for ($waited = 0; !$memory->add($lock, 1, self::LASTS_S); $waited += self::PAUSE_US) {
            if ($waited >= $waitUs) {
                return false;
            }
            usleep(self::PAUSE_US);
        }
        return true;
    }
}
