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
     * Does something with the account of a budget, alone, and under the rules that hold now.
     *
     * @template T
     * @param callable(Account): T $use changes the account; it is kept so, or goes
     * @param (callable(): Account)|null $open makes the account of a key that has none; null: then nothing is done
     * @return T|null what `$use` gives; null if it was not done, another process has the account, or there is no place
     */
    public function with(Budget $budget, int $now, callable $use, ?callable $open = null): mixed
    {
        return $this->alone($budget->stateKey, $now, static function (Account $account) use ($budget, $now, $use) {
            $account->takeOver($budget, $now);
            return $use($account);
        }, $open);
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

    /** The budget of the account that waits longest, if it owes. It goes to the end of the queue. */
    public function next(int $now): ?Budget
    {
        if ($this->waiting() <= 0) {
            return null;
        }
        $this->memory->increment('queued', -1, 0);
        $place = $this->memory->increment('queue:head', 1, 0);
        $key = $this->memory->get("queue:$place");
        $this->memory->delete("queue:$place");
        $take = static function (Account $account) use ($now): ?Budget {
            $account->isQueued = false;
            return $account->owes($now) ? $account->budget : null;
        };
        return is_string($key) ? $this->alone($key, $now, $take) : null;
    }

    /**
     * @template T
     * @param callable(Account): T $use
     * @param (callable(): Account)|null $open
     * @return T|null
     */
    private function alone(string $stateKey, int $now, callable $use, ?callable $open = null): mixed
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
            $account = $before ?? ($open === null ? null : $open());
            if ($account === null) {
                return null;
            }
            $result = $use($account);
            return $this->keep($stateKey, $account, $before !== null, $now) ? $result : null;
        } finally {
            $this->memory->delete($lock);
        }
    }

    private function keep(string $stateKey, Account $account, bool $wasThere, int $now): bool
    {
        if ($account->isOver($now)) {
            if ($wasThere) {
                $this->memory->delete("account:$stateKey");
            }
            return true;
        }
        if (!$account->isQueued) {
            if ($this->waiting() >= $this->max) {
                return false;
            }
            $account->isQueued = true;
            $this->memory->increment('queued', 1, 0);
            $place = $this->memory->increment('queue:tail', 1, 0);
            $this->memory->set("queue:$place", $stateKey, 0);
        }
        $life = intdiv($account->budget->rules->set->lifeMs, 1000) + 60;
        return $this->memory->set("account:$stateKey", $account, $life);
    }
}
