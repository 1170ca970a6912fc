<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;

/**
 * The accounts of this host. Those that owe stand in a queue, from which they are paid one after the other.
 */
final class Accounts
{
    /** How long a process waits for another one that has the account, in µs: a decision takes some ten. */
    private const LOCK_WAIT_US = 1_000;

    /** After how long the lock of a process that died is free, in s. */
    private const LOCK_S = 1;

    /** @param int $max accounts at a time; without a place a request is refused */
    public function __construct(private readonly Memory $memory, private readonly int $max)
    {
    }

    /**
     * Does something with the account of a key, alone. The account is kept as the callback leaves it, or goes.
     *
     * @template T
     * @param callable(Account|null): array{Account|null, T} $use
     * @return T|null what the callback gives; null if another process has the account, or there is no place
     */
    public function with(string $stateKey, int $now, callable $use): mixed
    {
        $lock = "lock:$stateKey";
        for ($waited = 0; !$this->memory->add($lock, 1, self::LOCK_S); $waited += 50) {
            if ($waited >= self::LOCK_WAIT_US) {
                return null;
            }
            usleep(50);
        }
        try {
            $before = $this->memory->get("account:$stateKey");
            [$account, $result] = $use($before);
            return $this->keep($stateKey, $account, $before !== null, $now) ? $result : null;
        } finally {
            $this->memory->delete($lock);
        }
    }

    /** Whether a key has an account. */
    public function has(string $stateKey): bool
    {
        return $this->memory->get("account:$stateKey") !== null;
    }

    /** How many accounts wait to be paid. */
    public function waiting(): int
    {
        return (int) $this->memory->get('queued');
    }

    /** The key of the account that waits longest, and takes it from the queue; null if none does. */
    public function next(): ?string
    {
        if ($this->waiting() <= 0) {
            return null;
        }
        $this->memory->increment('queued', -1, 0);
        $place = $this->memory->increment('queue:head', 1, 0);
        $key = $this->memory->get("queue:$place");
        $this->memory->delete("queue:$place");
        return is_string($key) ? $key : null;
    }

    private function keep(string $stateKey, ?Account $account, bool $wasThere, int $now): bool
    {
        if ($account === null || $account->isOver($now)) {
            if ($wasThere) {
                $this->memory->delete("account:$stateKey");
            }
            return true;
        }
        $life = intdiv($account->budget->rules->set->lifeMs, 1000) + 60;
        if (!$account->isQueued) {
            if ($this->waiting() >= $this->max) {
                return false;
            }
            $account->isQueued = true;
            $this->memory->increment('queued', 1, 0);
            $place = $this->memory->increment('queue:tail', 1, 0);
            $this->memory->set("queue:$place", $stateKey, 0);
        }
        return $this->memory->set("account:$stateKey", $account, $life);
    }
}
