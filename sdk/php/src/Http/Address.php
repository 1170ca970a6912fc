<?php

declare(strict_types=1);

namespace Sluicegate\Http;

/**
 * Addresses of clients.
 *
 * @internal
 */
final class Address
{
    private const PORT_MAX = 65535;

    private function __construct()
    {
    }

    /**
     * Returns the client's address: the last one in the header field that is not a trusted proxy's, or the connection's
     * peer. A port behind an address does not count, nor do brackets around one.
     *
     * @param list<Network> $trusted networks of proxies; the field is ignored if it comes from others
     * @param string $header the field in which the proxies write addresses, in lower case
     */
    public static function ofClient(RequestFacts $request, array $trusted, string $header = 'x-forwarded-for'): string
    {
        $address = self::plain($request->peer);
        foreach (Forwarded::hops($header, $request->headers[$header] ?? []) as $hop) {
            $hop = self::plain($hop);
            if (!self::isIn($address, $trusted) || @inet_pton($hop) === false) {
                break;
            }
            $address = $hop;
        }
        return $address;
    }

    /** Returns the address in `1.2.3.4:555`, `[v6]:555` or `[v6]`; any other text as it is, also with another port. */
    public static function plain(string $text): string
    {
        $address = '(?:([0-9.]+)|\[([0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\])';
        $isRead = preg_match("/^$address(?::0*([0-9]{1,5}))?$/D", $text, $part, PREG_UNMATCHED_AS_NULL);
        return $isRead && (int) $part[3] <= self::PORT_MAX ? $part[2] ?? $part[1] : $text;
    }

    /**
     * Returns an address as a key: IPv4 in decimal, also inside IPv6; of other IPv6 the first 64 bits and `/64`. Empty
     * if it is not an address. A port does not count.
     */
    public static function asKey(string $address): string
    {
        $bytes = @inet_pton(self::plain($address));
        if ($bytes === false) {
            return '';
        }
        if (strlen($bytes) === 16) {
            $prefix = substr($bytes, 0, 12);
            if ($prefix !== hex2bin('00000000000000000000ffff') && $prefix !== hex2bin('0064ff9b0000000000000000')) {
                return inet_ntop(substr($bytes, 0, 8) . str_repeat("\0", 8)) . '/64';
            }
            $bytes = substr($bytes, 12);
        }
        return (string) inet_ntop($bytes);
    }

    /** @param list<Network> $networks */
    private static function isIn(string $address, array $networks): bool
    {
        foreach ($networks as $network) {
            if ($network->has($address)) {
                return true;
            }
        }
        return false;
    }
}
