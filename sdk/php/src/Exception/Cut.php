<?php

declare(strict_types=1);

namespace Sluicegate\Exception;

/**
 * Texts that come from outside, such as what Redis or a server says of an error.
 */
final class Cut
{
    /** What an error says of them, in bytes: longer ones would fill the logs of a program. */
    public const BYTES_MAX = 1024;

    /** The text, or its beginning with `…`. */
    public static function text(string $text): string
    {
        if (strlen($text) <= self::BYTES_MAX) {
            return $text;
        }
        $end = self::BYTES_MAX;
        // Not in the middle of a character, which has 4 bytes at most.
        while ($end > self::BYTES_MAX - 4 && (ord($text[$end]) & 0xc0) === 0x80) {
            $end--;
        }
        return substr($text, 0, $end) . '…';
    }
}
