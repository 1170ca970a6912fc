<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

/**
 * The arithmetic of one rule without Redis. It never admits more than its algorithm in any interval; it may admit less.
 *
 * A state is a plain array, null for a key that was never seen. No method changes a state that it is given:
 * callers keep what a method returns. Instants and spans are integers of µs, at most 2^53 - 1.
 */
interface Primitive
{
    /** The largest number of units or permits that a state counts. */
    public const UNITS_MAX = 9007199254740992;

    /** The longest span in µs that is ever reported. */
    public const SPAN_MAX_US = 9007199254740991;

    /** A retry that never comes. */
    public const NEVER = -1;

    /** The largest cost that passes at once, as answers report it. */
    public function limit(): int;

    /**
     * Whether `$cost` permits pass at `$now`. Changes nothing.
     *
     * @param array<mixed>|null $state
     * @param int|null $maxWait how long the caller waits at most, in µs; null for a check, which brings no wait
     * @return array{int|null, int} the wait in µs and 0; or null and the retry in µs, NEVER if it never passes
     */
    public function check(?array $state, int $now, int $cost, ?int $maxWait): array;

    /**
     * The state after a check that passed.
     *
     * @param array<mixed>|null $state
     * @param string $permit the 16 bytes of a permit's name; only `concurrency` looks at it
     * @return array<mixed>
     */
    public function charge(?array $state, int $now, int $cost, string $permit): array;

    /**
     * The state that a refused first request leaves, or null for none.
     *
     * @return array<mixed>|null
     */
    public function firstSeen(int $now): ?array;

    /**
     * Permits that pass now.
     *
     * @param array<mixed>|null $state
     */
    public function available(?array $state, int $now): int;

    /**
     * What is left, and the µs until the budget is full.
     *
     * @param array<mixed>|null $state
     * @return array{int, int}
     */
    public function status(?array $state, int $now): array;

    /**
     * Gives permits back, newest first.
     *
     * @param array<mixed> $state
     * @return array{array<mixed>, int} the state, and how many permits went back
     */
    public function refund(array $state, int $now, int $cost): array;

    /**
     * The state as of an earlier now, if it is later than `$now`; else as it is.
     *
     * @param array<mixed> $state
     * @return array<mixed>
     */
    public function rewind(array $state, int $now): array;

    /**
     * Permits in use, rounded up.
     *
     * @param array<mixed>|null $state
     */
    public function used(?array $state, int $now): int;

    /**
     * A state in which `$used` permits count as used now; null where permits are held by name.
     *
     * @return array<mixed>|null
     */
    public function withUsed(int $now, int $used): ?array;
}
