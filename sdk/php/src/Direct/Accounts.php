<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Memory\Memory;

/**
 * The accounts of this host. Those that owe wait in a queue, and are paid one after the other.
 *
 * @internal
 */
final class Accounts
{
    /** @param int $max the most accounts at a time; beyond it requests are refused */
    public function __construct(private readonly Memory $memory, private readonly int $max)
    {
    }

    /**
     * Calls a function with the account of a budget, locked, and under the rules that apply now.
     *
     * @template T
     * @param callable(Account): T $use changes the account, which is then stored, or deleted if it can be dropped
     * @param (callable(): Account)|null $open makes the account of a key that has none; null: `$use` is not called then
     * @return T|null the result of `$use`; null if there is no account, another process has it locked, or there is no
     *   room
     */
    public function with(Budget $budget, int $now, callable $use, ?callable $open = null): mixed
    {
        return $this->withLock($budget->stateKey, $now, static function (Account $account) use ($budget, $now, $use) {
            $account->takeOver($budget, $now);
            return $use($account);
        }, $open);
    }

    /** Returns whether a key has an account, or perhaps gets one now. */
    public function has(string $stateKey): bool
    {
        return $this->memory->get("lock:$stateKey") !== null || $this->memory->get("account:$stateKey") !== null;
    }

    /** Returns whether a key has an account. */
    public function exists(string $stateKey): bool
    {
        return $this->memory->get("account:$stateKey") !== null;
    }

    /** Returns the number of accounts that wait to be paid. */
    public function waiting(): int
    {
        return (int) $this->memory->get('queued');
    }

    /** Returns the budget of the account that waits longest, if it owes, and puts it at the end of the queue. */
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
        return is_string($key) ? $this->withLock($key, $now, $take) : null;
    }

    /**
     * @template T
     * @param callable(Account): T $use
     * @param (callable(): Account)|null $open
     * @return T|null
     */
    private function withLock(string $stateKey, int $now, callable $use, ?callable $open = null): mixed
    {
        $lock = "lock:$stateKey";
        if (!Lock::take($this->memory, $lock, Lock::PATIENCE_US)) {
            return null;
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
