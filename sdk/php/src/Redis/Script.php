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
    public const SHA1 = '9e2d4a7b372ada896a179aeae9c1399f3e8f88c2';

    /** Returns its text, to the byte. */
    public static function text(): string
    {
        return (string) file_get_contents(dirname(__DIR__, 2) . '/resources/decide.lua');
    }
}
