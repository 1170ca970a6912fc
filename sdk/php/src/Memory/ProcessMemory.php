<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

/**
 * The memory of this process alone: for command lines, workers and tests. It ends with the process.
 */
final class ProcessMemory implements Memory
{
    /** The additions between two removals of expired values: often enough that few of those are kept. */
    private const SWEEP_EVERY = 10_000;

    /** @var array<string, array{mixed, int}> */
    private array $values = [];
    private int $added = 0;

    /** @param int $slots the most keys of callers of each kind; 20,000 are about 20 MB at most */
    public function __construct(private readonly int $slots = 20_000)
    {
    }

    public function get(string $key): mixed
    {
        [$value, $ends] = $this->values[$key] ?? [null, 0];
        if ($ends !== 0 && $ends <= hrtime(true)) {
            unset($this->values[$key]);
            return null;
        }
        return $value;
    }

    public function set(string $key, mixed $value, int $ttlS): bool
    {
        $this->values[$key] = [$value, $ttlS === 0 ? 0 : hrtime(true) + $ttlS * 1_000_000_000];
        if (++$this->added % self::SWEEP_EVERY === 0) {
            $now = hrtime(true);
            $this->values = array_filter($this->values, static fn (array $v): bool => $v[1] === 0 || $v[1] > $now);
        }
        return true;
    }

    public function add(string $key, mixed $value, int $ttlS): bool
    {
        return $this->get($key) === null && $this->set($key, $value, $ttlS);
    }

    public function increment(string $key, int $by, int $ttlS): int
    {
        $sum = (int) $this->get($key) + $by;
        if (isset($this->values[$key])) {
            $this->values[$key][0] = $sum;
        } else {
            $this->set($key, $sum, $ttlS);
        }
        return $sum;
    }

    public function delete(string $key): void
    {
        unset($this->values[$key]);
    }

    public function slots(): int
    {
        return $this->slots;
    }
}
