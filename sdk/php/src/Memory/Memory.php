<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

/**
 * The memory of a host beside Redis: policies, the breaker, known refusals, local shares and debts.
 */
interface Memory
{
    /** Returns the value of a key, null if there is none. */
    public function get(string $key): mixed;

    /** Keeps a value for `$ttlS` seconds at most (0: while there is room); returns false if there is no room. */
    public function set(string $key, mixed $value, int $ttlS): bool;

    /** Keeps a value unless the key has one: then returns false. Of several callers at once, one adds. */
    public function add(string $key, mixed $value, int $ttlS): bool;

    /** Adds to a number, from 0 if there is none, and returns the sum. */
    public function increment(string $key, int $by, int $ttlS): int;

    public function delete(string $key): void;

    /**
     * Returns the most keys of callers that are kept of each kind. A map of this size has a slot for each key's hash,
     * so another key of the same slot replaces it, and no map grows further.
     */
    public function slots(): int;
}
