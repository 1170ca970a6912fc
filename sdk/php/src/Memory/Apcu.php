<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

/**
 * The memory that all processes of a host share, by the extension APCu.
 *
 * APCu forgets everything when it is full, unless `apc.ttl` is set; then limits begin anew while Redis does not answer,
 * and debts are lost. 20,000 slots take about 20 MB: give `apc.shm_size` 64 MB, or fewer slots.
 */
final class Apcu implements Memory
{
    /** The format of the values; a part of the keys, as a host may run versions with different formats for a while. */
    private const FORMAT = '6:';

    private readonly string $prefix;

    /**
     * @param string $prefix not used by anything else in APCu; each Redis has its own, the same for all programs that
     *   share
     * @param int $slots the most keys of callers of each kind
     */
    public function __construct(string $prefix = 'sg:', private readonly int $slots = 20_000)
    {
        $this->prefix = $prefix . self::FORMAT;
    }

    /** Returns whether this process can use APCu; on command lines it needs `apc.enable_cli=1`. */
    public static function isAvailable(): bool
    {
        return function_exists('apcu_enabled') && apcu_enabled();
    }

    public function get(string $key): mixed
    {
        $value = apcu_fetch($this->prefix . $key, $found);
        return $found ? $value : null;
    }

    public function set(string $key, mixed $value, int $ttlS): bool
    {
        return apcu_store($this->prefix . $key, $value, $ttlS);
    }

    public function add(string $key, mixed $value, int $ttlS): bool
    {
        return apcu_add($this->prefix . $key, $value, $ttlS);
    }

    public function increment(string $key, int $by, int $ttlS): int
    {
        return (int) apcu_inc($this->prefix . $key, $by, $found, $ttlS);
    }

    public function delete(string $key): void
    {
        apcu_delete($this->prefix . $key);
    }

    public function slots(): int
    {
        return $this->slots;
    }
}
