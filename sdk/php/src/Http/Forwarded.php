<?php

declare(strict_types=1);

namespace Sluicegate\Http;

/**
 * The texts of the addresses that proxies wrote in a header field, from the right: what a client wrote is to the left.
 *
 * @internal
 */
final class Forwarded
{
    /** The field of RFC 7239, whose elements have parameters. */
    private const FIELD = 'forwarded';

    /** As at servers: no request passes more proxies. */
    private const HOPS_MAX = 64;

    /** A parameter. A value without quotes may be an address that needs them: it has one meaning. */
    private const PARAMETER = '/\G([!#$%&\'*+.^_`|~0-9A-Za-z-]+)='
        . '(?:"((?:[^"\\\\]++|\\\\.)*+)"|([^; \t"\\\\]++))[ \t]*+(?:;[ \t;]*+|\z)/s';

    private function __construct()
    {
    }

    /**
     * Returns the texts, which may be anything.
     *
     * @param string $field its name in lower case
     * @param list<string> $values
     * @return iterable<string>
     */
    public static function hops(string $field, array $values): iterable
    {
        $list = implode(',', $values);
        for ($count = 0, $end = $values === [] ? -1 : strlen($list); $end >= 0 && $count < self::HOPS_MAX; $count++) {
            $comma = $field === self::FIELD ? self::lastDivider($list, $end) : self::lastComma($list, $end);
            $text = trim(substr($list, $comma + 1, $end - $comma - 1));
            yield $field === self::FIELD ? self::node($text) : $text;
            $end = $comma;
        }
    }

    /** Returns where the last comma before a place is, -1 without one. */
    private static function lastComma(string $list, int $end): int
    {
        // An offset from the end: the search begins at the byte before `$end`.
        $comma = $end === 0 ? false : strrpos($list, ',', $end - 1 - strlen($list));
        return $comma === false ? -1 : $comma;
    }

    /**
     * Returns where the last comma outside of quotes is, -1 without one. It reads from the right, so that a quote of a
     * client changes nothing of what proxies wrote behind it.
     */
    private static function lastDivider(string $list, int $end): int
    {
        $isQuoted = false;
        for ($place = $end - 1; $place >= 0; $place--) {
            if ($list[$place] === '"' && !($isQuoted && self::isEscaped($list, $place))) {
                $isQuoted = !$isQuoted;
            } elseif ($list[$place] === ',' && !$isQuoted) {
                return $place;
            }
        }
        return -1;
    }

    private static function isEscaped(string $list, int $place): bool
    {
        for ($first = $place; $first > 0 && $list[$first - 1] === '\\'; $first--) {
            // Each backslash escapes the one behind it, or the quote.
        }
        return ($place - $first) % 2 === 1;
    }

    /**
     * Returns the value of the parameter `for` of an element, without a port that is hidden (`_port`). It is empty if
     * there is none, or if the element is malformed.
     */
    private static function node(string $element): string
    {
        $nodes = [];
        for ($place = strspn($element, " \t;"); $place < strlen($element); $place += strlen($part[0])) {
            if (!preg_match(self::PARAMETER, $element, $part, PREG_UNMATCHED_AS_NULL, $place)) {
                return '';
            }
            if (strtolower((string) $part[1]) === 'for') {
                $nodes[] = $part[3] ?? preg_replace('/\\\\(.)/s', '$1', (string) $part[2]);
            }
        }
        return count($nodes) === 1 ? (string) preg_replace('/:_[0-9A-Za-z._-]+$/D', '', $nodes[0]) : '';
    }
}
