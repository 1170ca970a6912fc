<?php

declare(strict_types=1);

namespace Sluicegate\Memory;

use Psr\SimpleCache\CacheInterface;
use Throwable;

/**
 * Keeps policies in a cache of PSR-16, and everything else in another memory: the breaker, refusals, shares and debts
 * belong to one host, and need steps that a cache does not have.
 *
 * Programs that share the cache must name Redis alike. A cache that fails costs a look at Redis, and no decision.
 */
final class PolicyCache implements Memory
{
    /** Of what this version keeps: one that keeps something else has other keys. */
    private const FORMAT = '6';

    /** For how long a process believes what it read of the cache, in ns: a decision must not wait for a cache. */
    private const BELIEVED_NS = 1_000_000_000;

    /** How long the other memory holds what the cache did not take, in s. */
    private const REFUSED_S = 60;

    /** @var array{mixed, int} what is known of all policies, and until when it is believed */
    private array $held = [null, 0];

    /** @param string $endpoint the Redis that the policies are of */
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
            $this->held = [$value, hrtime(true) + self::BELIEVED_NS];
        }
        return $value;
    }

    public function set(string $key, mixed $value, int $ttlS): bool
    {
        if (!self::isOfPolicies($key)) {
            return $this->memory->set($key, $value, $ttlS);
        }
        if ($key === 'policies') {
            $this->held = [$value, hrtime(true) + self::BELIEVED_NS];
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
        return $key === 'policies' || $key === 'names' || str_starts_with($key, 'policy:');
    }

    /** A key of PSR-16 has 64 characters of `[A-Za-z0-9_.]`. */
    private function name(string $key): string
    {
        return 'sluicegate.' . hash('xxh128', self::FORMAT . "|$this->endpoint|$key");
    }
}
