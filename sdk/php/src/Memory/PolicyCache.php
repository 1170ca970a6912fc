<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

use Psr\SimpleCache\CacheInterface;
use Throwable;

/**
 * Keeps policies in a PSR-16 cache, and everything else in another memory: the breaker, refusals, shares and debts
 * belong to one host, and need operations that a cache does not have.
 *
 * Programs that share the cache must use the same address of Redis. If the cache fails, policies are read from Redis
 * again, and decisions go on.
 *
 * @internal
 */
final class PolicyCache implements Memory
{
    /** The format of the values; a part of the keys, as other versions may have other formats. */
    private const FORMAT = '7';

    /** The time for which a process uses what it read from the cache, in ns: a decision must not wait for a cache. */
    private const FRESH_NS = 1_000_000_000;

    /** The time for which the other memory holds values that the cache did not take, in s. */
    private const REFUSED_S = 60;

    /** @var array{mixed, int} the state of all policies, and the instant until which it is used, in ns */
    private array $held = [null, 0];

    /** @param string $endpoint the name of the Redis where the policies are published */
    public function __construct(
        private readonly CacheInterface $cache,
        private readonly Memory $memory,
        private readonly string $endpoint,
    ) {
    }

    public function get(string $key): mixed
    {
        if (!self::isOfPolicies($key)) {
            return $this->memory->get($key);
        }
        if ($key === 'policies' && hrtime(true) < $this->held[1]) {
            return $this->held[0];
        }
        try {
            $value = $this->cache->get($this->name($key));
        } catch (Throwable) {
            $value = null;
        }
        $value ??= $this->memory->get("refused:$key");
        if ($key === 'policies' && $value !== null) {
            $this->held = [$value, hrtime(true) + self::FRESH_NS];
        }
        return $value;
    }

    public function set(string $key, mixed $value, int $ttlS): bool
    {
        if (!self::isOfPolicies($key)) {
            return $this->memory->set($key, $value, $ttlS);
        }
        if ($key === 'policies') {
            $this->held = [$value, hrtime(true) + self::FRESH_NS];
        }
        try {
            $isKept = $this->cache->set($this->name($key), $value, $ttlS === 0 ? null : $ttlS);
        } catch (Throwable) {
            $isKept = false;
        }
        if ($isKept) {
            $this->memory->delete("refused:$key");
            return true;
        }
        return $this->memory->set("refused:$key", $value, self::REFUSED_S);
    }

    public function add(string $key, mixed $value, int $ttlS): bool
    {
        return $this->memory->add($key, $value, $ttlS);
    }

    public function increment(string $key, int $by, int $ttlS): int
    {
        return $this->memory->increment($key, $by, $ttlS);
    }

    public function delete(string $key): void
    {
        if (!self::isOfPolicies($key)) {
            $this->memory->delete($key);
            return;
        }
        $this->memory->delete("refused:$key");
        try {
            $this->cache->delete($this->name($key));
        } catch (Throwable) {
            // The next look deletes it.
        }
    }

    public function slots(): int
    {
        return $this->memory->slots();
    }

    private static function isOfPolicies(string $key): bool
    {
        return $key === 'policies' || $key === 'names' || str_starts_with($key, 'policy:')
            || str_starts_with($key, 'unreadable:');
    }

    /** Returns the name of a value in the cache: PSR-16 allows 64 characters of `[A-Za-z0-9_.]`. */
    private function name(string $key): string
    {
        return 'sluicegate.' . hash('xxh128', self::FORMAT . "|$this->endpoint|$key");
    }
}
