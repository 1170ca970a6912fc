<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * Numbers that must be exact, or be rounded in exactly one way.
 */
final class Num
{
    /**
     * The quotient and the rest of `$a * $b / $c`, though the product may pass 64 bits.
     *
     * @param int $a 0 to 2^53
     * @param int $b 0 to 2^53
     * @param int $c 1 to 2^53
     * @return array{int|float, int} a quotient above 64 bits is a float
     */
    public static function mulDiv(int $a, int $b, int $c): array
    {
        $product = $a * $b;
        if (is_int($product)) {
            return [intdiv($product, $c), $product % $c];
        }
        // Long division, a bit of b at a time.
        $left = $a % $c;
        $quotient = intdiv($a - $left, $c) * $b;
        [$rest, $low] = [0, 0];
        for ($bit = 1 << 53; $bit >= 1; $bit >>= 1) {
            $rest *= 2;
            $low *= 2;
            if ($rest >= $c) {
                $rest -= $c;
                $low++;
            }
            if ($b >= $bit) {
                $b -= $bit;
                $rest += $left;
                if ($rest >= $c) {
                    $rest -= $c;
                    $low++;
                }
            }
        }
        return [$quotient + $low, $rest];
    }

    /** `$a / $b` rounded up; both are 0 or more, `$b` at least 1. */
    public static function divCeil(int $a, int $b): int
    {
        return intdiv($a, $b) + ($a % $b > 0 ? 1 : 0);
    }

    /** An integer double, rounded up; 0 for what is not above 0; as it is from 2^53 on. */
    public static function ceil(float $x): float
    {
        if (!($x > 0.0)) {
            return 0.0;
        }
        return $x < 9007199254740992.0 ? ceil($x) : $x;
    }
}
