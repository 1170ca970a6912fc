<?php

declare(strict_types=1);

namespace Sluicegate\Http;

use InvalidArgumentException;

/**
 * A network of addresses, such as `10.0.0.0/8`. IPv4 inside IPv6 (`::ffff:10.0.0.1`) is IPv4.
 *
 * @internal
 */
final readonly class Network
{
    /** The first bytes of IPv4 inside IPv6. */
    private const MAPPED = "\0\0\0\0\0\0\0\0\0\0\xff\xff";

    private function __construct(private string $base, private int $bits)
    {
    }

    /**
     * Parses a network: an address, or one with a `/` and the number of the network's bits.
     *
     * @throws InvalidArgumentException if it is not a network; trusted proxies must not be guessed
     */
    public static function of(string $text): self
    {
        $isOne = preg_match('~^([0-9A-Fa-f:.]+)(?:/(0|[1-9][0-9]{0,2}))?$~D', $text, $part);
        $base = $isOne ? @inet_pton($part[1]) : false;
        $longest = 8 * strlen((string) $base);
        $bits = (int) ($part[2] ?? $longest);
        if ($base === false || $bits > $longest) {
            throw new InvalidArgumentException(
                'trusted: `' . substr($text, 0, 100) . '` is not a network; expected one such as `10.0.0.0/8`',
            );
        }
        $plain = self::plain($base);
        return strlen($plain) === strlen($base) || $bits < 96
            ? new self($base, $bits)
            : new self($plain, $bits - 96);
    }

    /** Returns whether an address is in it; false for a text that is not an address. */
    public function has(string $address): bool
    {
        $bytes = @inet_pton($address);
        $bytes = $bytes === false ? '' : self::plain($bytes);
        if (strlen($bytes) !== strlen($this->base)) {
            return false;
        }
        $whole = intdiv($this->bits, 8);
        $mask = 0xff & (0xff << (8 - $this->bits % 8));
        return substr($bytes, 0, $whole) === substr($this->base, 0, $whole)
            && ($this->bits % 8 === 0 || (ord($bytes[$whole]) & $mask) === (ord($this->base[$whole]) & $mask));
    }

    private static function plain(string $bytes): string
    {
        return strlen($bytes) === 16 && str_starts_with($bytes, self::MAPPED) ? substr($bytes, 12) : $bytes;
    }
}
