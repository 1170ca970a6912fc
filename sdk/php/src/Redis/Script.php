<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The script that decides in Redis.
 *
 * @internal
 */
final class Script
{
    /** The SHA-1 of its text. The text itself is read only if a Redis does not have the script. */
    public const SHA1 = 'd1310292099be9d70d4b1086b4c41aa126f63bdf';

    /** Returns its text, to the byte. */
    public static function text(): string
    {
        return (string) file_get_contents(dirname(__DIR__, 2) . '/resources/decide.lua');
    }
}
