<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Decision;
use Sluicegate\Kernel\Ask;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Mode;
use Sluicegate\Verb;

/**
 * Decides without Redis: each permit counts n times against the whole limit, so n nodes together keep to it.
 */
final class Share
{
    private const RETRY_US = 1_000_000;

    /** How much later than now another decision of the key may have been. */
    private const LATER_MAX_US = 1_000_000;

    public function __construct(private readonly Accounts $accounts, private readonly Known $known)
    {
    }

    /** The decision of this host's share among `$nodes`. */
    public function decide(Budget $budget, Ask $ask, int $now, int $nodes): Decision
    {
        $decided = $this->accounts->with(
            $budget->stateKey,
            $now,
            function (?Account $account) use ($budget, $ask, $now, $nodes): array {
                $account = $this->account($account, $budget, $now, $nodes);
                return $this->onAccount($account, $ask, $now);
            },
        );
        return $decided ?? $budget->unknown(Mode::Local, 0, self::RETRY_US);
    }

    /** Notes what passed without a decision (`on_store_failure: allow`), as far as the budget goes. */
    public function note(Budget $budget, int $cost, int $now): void
    {
        $this->accounts->with(
            $budget->stateKey,
            $now,
            function (?Account $account) use ($budget, $cost, $now): array {
                $account = $this->account($account, $budget, $now, 1);
                $all = min($cost * $account->nodes, Ask::COST_MAX);
                $windows = $budget->rules->set->windowsAround($now);
                [, $account->used] = $budget->rules->set->kernel()
                    ->decide($account->used, new Ask(Verb::AtMost, $all), $now, $windows);
                return [$account, true];
            },
        );
    }

    /** What a release or renewal of a permit comes to that this host handed out; null if it did not. */
    public function onPermit(Budget $budget, Ask $ask, int $now): ?Decision
    {
        if (!$this->accounts->has($budget->stateKey)) {
            return null;
        }
        return $this->accounts->with(
            $budget->stateKey,
            $now,
            function (?Account $account) use ($budget, $ask, $now): array {
                $account = $account?->under($budget, $now);
                if ($account === null) {
                    return [null, null];
                }
                $windows = $budget->rules->set->windowsAround($now);
                [$outcome, $used] = $budget->rules->set->kernel()->decide($account->used, $ask, $now, $windows);
                if (!$outcome->allowed) {
                    return [$account, null];
                }
                $account->used = $used;
                // What was held for all nodes is what goes back: this answer is not divided.
                return [$account, self::divided($account, $outcome, 1)];
            },
        );
    }

    private function account(?Account $account, Budget $budget, int $now, int $nodes): Account
    {
        if ($account !== null) {
            return $account->under($budget, $now);
        }
        $states = $this->known->states($budget, $now, $budget->rules->set->windowsAround($now));
        return new Account($budget, $nodes, $states, $states, $now);
    }

    /** @return array{Account, Decision} */
    private function onAccount(Account $account, Ask $ask, int $now): array
    {
        $budget = $account->budget;
        $n = $account->nodes;
        if ($ask->cost > intdiv(Ask::COST_MAX, $n)) {
            return [$account, $budget->unknown(Mode::Local, 0, self::RETRY_US)];
        }
        if ($account->latest > $now && $account->latest - $now <= self::LATER_MAX_US) {
            $now = $account->latest;
        }
        $kernel = $budget->rules->set->kernel();
        $windows = $budget->rules->set->windowsAround($now);
        $scaled = $ask->withCost($ask->cost * $n);
        [$outcome, $used] = $kernel->decide($account->used, $scaled, $now, $windows);
        if ($ask->verb === Verb::AtMost && $outcome->allowed && $outcome->granted % $n !== 0) {
            $part = $outcome->granted % $n;
            if ($part === $outcome->granted) {
                $none = new Outcome(false, $outcome->place, 0, 0, self::RETRY_US, $part, $outcome->resetAfterUs);
                return [$account, self::divided($account, $none, $n)];
            }
            // A part of a permit is none; the answer stays as it was decided.
            $used = $kernel->givenBack($used, array_fill(0, count($used), $part), $now, $windows);
        }
        if ($ask->verb !== Verb::Peek) {
            $account->used = $used;
            $account->latest = $now;
        }
        if ($outcome->retryAfterUs === null && $this->fitsWhole($account, $ask->cost)) {
            $outcome = $outcome->retriedAfter(self::RETRY_US);
        }
        return [$account, self::divided($account, $outcome, $n)];
    }

    private function fitsWhole(Account $account, int $cost): bool
    {
        return $cost <= min(array_column($account->budget->rules->set->rules, 'limit'));
    }

    /** The decision of an outcome that counted each permit `$n` times. */
    private static function divided(Account $account, Outcome $outcome, int $n): Decision
    {
        $rule = $account->budget->rules->set->rules[$outcome->place];
        return $account->budget->made(new Outcome(
            $outcome->allowed,
            $outcome->place,
            intdiv($outcome->granted, $n),
            $outcome->waitUs,
            $outcome->retryAfterUs,
            intdiv($outcome->remaining, $n),
            $outcome->resetAfterUs,
        ), $outcome->place, intdiv($rule->limit, $n), Mode::Local);
    }
}
