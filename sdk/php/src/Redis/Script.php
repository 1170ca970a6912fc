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
    public const SHA1 = '3bbf138089f073e5d6f30d663f4ee28448df60ce';

    /** Returns its text, to the byte. */
    public static function text(): string
    {
        return (string) file_get_contents(dirname(__DIR__, 2) . '/resources/decide.lua');
    }
}
