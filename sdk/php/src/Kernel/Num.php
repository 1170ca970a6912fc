<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * Integer division that PHP does not have.
 *
 * @internal
 */
final class Num
{
    /** `$a / $b` rounded up; both are 0 or more, `$b` at least 1. */
    public static function divCeil(int $a, int $b): int
    {
        return intdiv($a, $b) + ($a % $b > 0 ? 1 : 0);
    }
}
