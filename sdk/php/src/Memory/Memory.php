<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

/**
 * What a host keeps for itself beside Redis: policies, the breaker, known refusals, local shares and debts.
 */
interface Memory
{
    /** The value of a key, null if there is none. */
    public function get(string $key): mixed;

    /** Keeps a value for `$ttlS` seconds at most (0: for as long as there is room); false if there is no room. */
    public function set(string $key, mixed $value, int $ttlS): bool;

    /** The same, unless the key has a value: then false. One of several callers is the one that adds. */
    public function add(string $key, mixed $value, int $ttlS): bool;

    /** Adds to a number, from 0 if there is none, and gives the sum. */
    public function increment(string $key, int $by, int $ttlS): int;

    public function delete(string $key): void;

    /**
     * How many keys of callers are kept of each kind. A map of this size has a slot for each key's hash, so another
     * key of the same slot takes its place, and no map grows further.
     */
    public function slots(): int;
}
