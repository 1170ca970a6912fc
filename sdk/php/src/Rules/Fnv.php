<?php

declare(strict_types=1);

namespace Sluicegate\Rules;

/**
 * The 128-bit FNV-1a hash.
 *
 * @internal
 */
final class Fnv
{
    /** The hash of a text: 16 bytes, big-endian. */
    public static function hash128(string $text): string
    {
        // Four limbs of 32 bits, the highest first. The prime is 2^88 + 0x13b.
        [$a, $b, $c, $d] = [0x6c62272e, 0x07bb0142, 0x62b82175, 0x6295c58d];
        for ($place = 0, $length = strlen($text); $place < $length; $place++) {
            $d ^= ord($text[$place]);
            $low = $d * 0x13b;
            $third = $c * 0x13b + ($low >> 32);
            $second = $b * 0x13b + ($third >> 32) + (($d << 24) & 0xffffffff);
            $first = $a * 0x13b + ($second >> 32) + (($c << 24) & 0xffffffff) + ($d >> 8);
            [$a, $b, $c, $d] = [
                $first & 0xffffffff, $second & 0xffffffff, $third & 0xffffffff, $low & 0xffffffff,
            ];
        }
        return pack('N4', $a, $b, $c, $d);
    }
}
