<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * The arithmetic of one rule without Redis. It never admits more than its algorithm in any interval; it may admit less.
 *
 * A state is a plain array, null for a key that was never seen. No method changes a state that it is given: callers
 * keep what a method returns. Instants and spans are integers of µs, at most 2^53 - 1. All methods but `rewind` take a
 * state that is not later than `$now`.
 *
 * @internal
 */
abstract class Primitive
{
    /** The largest number of units or permits that a state counts. */
    public const UNITS_MAX = 9007199254740992;

    /** The longest span in µs that is ever reported. */
    public const SPAN_MAX_US = 9007199254740991;

    /** The retry of a request that never passes: later than any other. */
    public const NEVER = PHP_INT_MAX;

    /** Returns `$a / $b` rounded up; both are 0 or more, `$b` at least 1. */
    public static function divCeil(int $a, int $b): int
    {
        return intdiv($a, $b) + ($a % $b > 0 ? 1 : 0);
    }

    /** Returns `$a · $b / $c` rounded down; `$a` is 0 or more and less than `$c`, which is at most 2^53, and `$b` is 0 or more. */
    public static function mulDiv(int $a, int $b, int $c): int
    {
        $product = $a * $b;
        if (is_int($product)) {
            return intdiv($product, $c);
        }
        // Bit by bit, as the product is no integer of PHP.
        [$quotient, $rest] = [0, 0];
        foreach (str_split(decbin($b)) as $bit) {
            $rest = 2 * $rest + ($bit === '1' ? $a : 0);
            $quotient = 2 * $quotient + intdiv($rest, $c);
            $rest %= $c;
        }
        return $quotient;
    }

    /** @param int $limit the largest cost that passes at once, as answers report it */
    public function __construct(public readonly int $limit)
    {
    }

    /**
     * Checks whether the cost passes at `$now`. Changes nothing.
     *
     * @return array{int|null, int} the wait in µs and 0; or null and the retry in µs, NEVER if it never passes
     */
    abstract public function check(?array $state, int $now, KernelRequest $request): array;

    /** Returns the state after a check that passed. */
    abstract public function charge(?array $state, int $now, KernelRequest $request): array;

    /** Returns the µs until the budget is full. */
    abstract public function fullAfter(?array $state, int $now): int;

    /**
     * Gives permits back, newest first.
     *
     * @return array{array, int} the state, and how many permits went back
     */
    abstract public function refund(array $state, int $now, int $cost): array;

    /** Returns the state as of `$now`, if it is later than that; else unchanged. */
    abstract public function rewind(array $state, int $now): array;

    /** Returns the permits in use, rounded up. */
    abstract public function used(?array $state, int $now): int;

    /** Returns a state in which `$used` permits count as used now; null where permits are held by id. */
    abstract public function withUsed(int $now, int $used): ?array;

    /** Returns the permits that are left. */
    public function left(?array $state, int $now): int
    {
        return max($this->limit - $this->used($state, $now), 0);
    }

    /** Returns the most permits that pass now. */
    public function available(?array $state, int $now): int
    {
        return $this->left($state, $now);
    }

    /** Returns the state that a refused first request leaves, or null for none. */
    public function firstSeen(int $now): ?array
    {
        return null;
    }
}
