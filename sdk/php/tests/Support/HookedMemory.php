<?php

declare(strict_types=1);

namespace Sluicegate\Tests\Support;

use Closure;
use Sluicegate\Memory\Memory;
use Sluicegate\Memory\ProcessMemory;

/**
 * A memory where another process comes in once, just before a value is kept.
 */
final class HookedMemory implements Memory
{
    private readonly Memory $memory;
    private string $key = '';
    private ?Closure $other = null;

    public function __construct()
    {
        $this->memory = new ProcessMemory();
    }

    /** Has `$other` run just before the next value of a key is kept. */
    public function before(string $key, Closure $other): void
    {
        [$this->key, $this->other] = [$key, $other];
    }

    public function get(string $key): mixed
    {
        return $this->memory->get($key);
    }

    public function set(string $key, mixed $value, int $ttlS): bool
    {
        $this->comeIn($key);
        return $this->memory->set($key, $value, $ttlS);
    }

    public function add(string $key, mixed $value, int $ttlS): bool
    {
        $this->comeIn($key);
        return $this->memory->add($key, $value, $ttlS);
    }

    public function increment(string $key, int $by, int $ttlS): int
    {
        return $this->memory->increment($key, $by, $ttlS);
    }

    public function delete(string $key): void
    {
        $this->memory->delete($key);
    }

    public function slots(): int
    {
        return $this->memory->slots();
    }

    private function comeIn(string $key): void
    {
        if ($key === $this->key && $this->other !== null) {
            [$other, $this->other] = [$this->other, null];
            $other();
        }
    }
}
