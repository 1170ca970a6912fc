<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

/**
 * The script that decides in Redis.
 */
final class Script
{
    /** The SHA-1 of its text. The text itself is read only where a Redis does not have it. */
    public const SHA1 = '53f01f8f1d9002b1fb97873565a82070a386f50b';

    /** Its text, to the byte. */
    public static function text(): string
    {
        return (string) file_get_contents(dirname(__DIR__, 2) . '/resources/decide.lua');
    }
}
