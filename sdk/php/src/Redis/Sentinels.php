<?php

declare(strict_types=1);

namespace Sluicegate\Redis;

use Redis;
use RedisException;
use SensitiveParameter;

/**
 * Finds the master that Sentinels name.
 *
 * @internal
 */
final class Sentinels
{
    private readonly HostState $master;

    /**
     * @param non-empty-list<string> $addresses `host:port` each, queried in this order until one answers
     * @param string $name the name of the master
     * @param array<mixed>|null $auth credentials at the Sentinels
     */
    public function __construct(
        private readonly array $addresses,
        private readonly string $name,
        #[SensitiveParameter] private readonly ?array $auth,
    ) {
        $this->master = new HostState('master:' . $this->endpoint());
    }

    /** Returns the names of the master and its Sentinels in one text. */
    public function endpoint(): string
    {
        return "$this->name@" . implode(',', $this->addresses);
    }

    /**
     * Returns the host and the port of the master.
     *
     * @param float $timeout seconds that each Sentinel may take
     * @return array{string, int}
     * @throws RedisException if no Sentinel has it
     */
    public function master(float $timeout): array
    {
        $kept = $this->master->get();
        if ($kept !== null) {
            return $kept;
        }
        foreach ($this->addresses as $address) {
            $found = $this->query($address, $timeout);
            if ($found !== null) {
                $this->master->set($found);
                return $found;
            }
        }
        throw new RedisException("no Sentinel knows the master `$this->name`");
    }

    /** Forgets the master that was found. */
    public function forget(): void
    {
        $this->master->forget();
    }

    /** @return array{string, int}|null */
    private function query(string $address, float $timeout): ?array
    {
        $colon = strrpos($address, ':');
        $host = $colon === false ? $address : substr($address, 0, $colon);
        $port = $colon === false ? 26379 : (int) substr($address, $colon + 1);
        try {
            $sentinel = new Redis();
            if (!@$sentinel->connect($host, $port, $timeout, null, 0, $timeout)) {
                return null;
            }
            if ($this->auth !== null) {
                $sentinel->auth($this->auth);
            }
            $found = $sentinel->rawCommand('SENTINEL', 'get-master-addr-by-name', $this->name);
            $sentinel->close();
        } catch (RedisException) {
            return null;
        }
        return is_array($found) && count($found) === 2 ? [(string) $found[0], (int) $found[1]] : null;
    }
}
