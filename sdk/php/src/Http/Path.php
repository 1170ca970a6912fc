<?php

declare(strict_types=1);

namespace Sluicegate\Http;

/**
 * A path in one spelling, so that one budget has one key.
 *
 * @internal
 */
final class Path
{
    private const UTF8 = '[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}'
        . '|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}'
        . '|\xf4[\x80-\x8f][\x80-\xbf]{2}';

    private function __construct()
    {
    }

    /**
     * Returns the path of a request's target.
     *
     * @throws BadRequest if it is not a path, or one that other programs may read differently
     */
    public static function of(string $target): string
    {
        $path = (string) preg_replace('~^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*~', '', $target);
        $path = substr($path, 0, strcspn($path, '?#'));
        if (($path[0] ?? '') !== '/' || preg_match('/%(?![0-9A-Fa-f]{2})/', $path)) {
            throw new BadRequest('path: is not a path');
        }
        $parts = preg_split('~(/|%2[fF])~', substr($path, 1), -1, PREG_SPLIT_DELIM_CAPTURE) ?: [''];
        $segments = [];
        $last = '';
        for ($place = 0; $place < count($parts); $place += 2) {
            $last = rawurldecode($parts[$place]);
            if ($last === '..') {
                $encoded = [$parts[$place - 1] ?? '/', $parts[$place + 1] ?? '/'] !== ['/', '/'];
                if ($parts[$place] !== '..' || $encoded || ($place > 0 && $parts[$place - 2] === '')) {
                    throw new BadRequest('path: has a `..` that can be read in two ways');
                }
                array_pop($segments);
            } elseif ($last !== '' && $last !== '.') {
                $segments[] = $last;
            }
        }
        $ends = in_array($last, ['', '.', '..'], true) && $segments !== [] ? '/' : '';
        return self::escape('/' . implode('/', $segments) . $ends);
    }

    /** Replaces bytes that are not UTF-8 by U+FFFD. */
    public static function scrub(string $text): string
    {
        return (string) preg_replace_callback(
            '/' . self::UTF8 . '|([\x80-\xff])/',
            static fn (array $found): string => isset($found[1]) ? "\u{fffd}" : $found[0],
            $text,
        );
    }

    private static function escape(string $path): string
    {
        return (string) preg_replace_callback(
            '/' . self::UTF8 . '|([\x00-\x1f\x7f%?#\x80-\xff])/',
            static fn (array $found): string => isset($found[1]) ? sprintf('%%%02X', ord($found[1])) : $found[0],
            $path,
        );
    }
}
