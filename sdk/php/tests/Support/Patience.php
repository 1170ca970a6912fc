<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use PHPUnit\Framework\TestCase;

/**
 * Waits for something to happen, and fails if it does not: on a busy machine it may take long.
 */
final class Patience
{
    /**
     * Returns the first result of `$find` that is not null or false.
     *
     * @template T
     * @param callable(): T $find
     * @return T
     */
    public static function until(callable $find, string $what, int $seconds = 20): mixed
    {
        $ends = microtime(true) + $seconds;
        while (true) {
            $found = $find();
            if ($found !== null && $found !== false) {
                return $found;
            }
            if (microtime(true) >= $ends) {
                TestCase::fail("not within $seconds s: $what");
            }
            usleep(10_000);
        }
    }
}
