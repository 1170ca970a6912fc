<?php

declare(strict_types=1);

namespace Sluicegate\Direct;

use Sluicegate\Decision;
use Sluicegate\Kernel\KernelRequest;
use Sluicegate\Kernel\Outcome;
use Sluicegate\Mode;
use Sluicegate\Rules\Rule;
use Sluicegate\Verb;

/**
 * Decides without Redis: each permit counts n times against the whole limit, so n nodes together keep to it.
 *
 * @internal
 */
final class Share
{
    private const RETRY_US = 1_000_000;

    /** The code of `fixed_window`. */
    private const FIXED_WINDOW = 5;

    /** The largest step back of the clock that is ignored, in µs, counted from the last decision of the key. */
    private const LATER_MAX_US = 1_000_000;

    /** The retry of what the share would admit unless Redis grants what it is asked for: that is known after a deadline. */
    private const ASKED_RETRY_US = 100_000;

    public function __construct(
        private readonly Accounts $accounts,
        private readonly UsageCache $usage,
        private readonly ?Asked $asked = null,
    ) {
    }

    /**
     * Decides by this host's share among `$nodes`. It leaves room for the permits that other requests of this key ask
     * Redis for: these may be granted as well.
     */
    public function decide(Budget $budget, KernelRequest $request, int $now, int $nodes): Decision
    {
        $decide = function (Account $account) use ($budget, $request, $now): Decision {
            $this->raiseWindows($account, $now);
            $others = $request->verb === Verb::Peek ? 0 : $this->asked?->of($budget->stateKey) ?? 0;
            return $others <= 0 || $this->hasRoomBeside($account, $request, $now, $others)
                ? $this->onAccount($account, $request, $now)
                : $budget->unknown(Mode::Local, 0, self::ASKED_RETRY_US);
        };
        return $this->accounts->with($budget, $now, $decide, fn (): Account => $this->open($budget, $now, $nodes))
            ?? $budget->unknown(Mode::Local, 0, self::RETRY_US);
    }

    /** Records permits that passed without a decision (`on_store_failure: allow`), up to the budget. */
    public function recordAdmitted(Budget $budget, int $cost, int $now): void
    {
        $record = function (Account $account) use ($budget, $cost, $now): void {
            $this->raiseWindows($account, $now);
            $all = new KernelRequest(Verb::AtMost, min($cost * $account->nodes, KernelRequest::COST_MAX));
            [, $account->used] = $budget->rules->set->kernel()->decide($account->used, $all, $now);
        };
        $this->accounts->with($budget, $now, $record, fn (): Account => $this->open($budget, $now, 1));
    }

    /** Releases or renews a permit that this host granted; returns null if it did not grant it. */
    public function onPermit(Budget $budget, KernelRequest $request, int $now): ?Decision
    {
        if (!$this->accounts->has($budget->stateKey)) {
            return null;
        }
        return $this->accounts->with($budget, $now, static function (Account $account) use ($request, $now): ?Decision {
            [$outcome, $used] = $account->budget->rules->set->kernel()->decide($account->used, $request, $now);
            if (!$outcome->allowed) {
                return null;
            }
            $account->used = $used;
            // The permit goes back as it was counted, once for each node: this answer is not divided.
            return self::divided($account, $outcome, 1);
        });
    }

    private function open(Budget $budget, int $now, int $nodes): Account
    {
        $states = $this->usage->states($budget, $now);
        return new Account($budget, $nodes, $states, $states, $now);
    }

    /**
     * Raises an account to what Redis reported of its window, of rules that have one. What was admitted here in the
     * window before counts a whole window's length, so it hid such a report of at most as much; and ends while that
     * still counts.
     */
    private function raiseWindows(Account $account, int $now): void
    {
        $rules = $account->budget->rules->set->rules;
        $windows = array_filter($rules, static fn (Rule $rule): bool => $rule->code === self::FIXED_WINDOW);
        if ($windows !== []) {
            $now = self::instant($account, $now);
            $states = $this->usage->states($account->budget, $now);
            $used = $account->budget->rules->set->kernel()->used($states, $now);
            $account->raise(array_intersect_key($used, $windows), $now);
        }
    }

    /** Returns the instant of a decision: the last one's, if that was up to a second later. */
    private static function instant(Account $account, int $now): int
    {
        return $account->latest > $now && $account->latest - $now <= self::LATER_MAX_US ? $account->latest : $now;
    }

    /** Returns whether a request is decided alike if Redis grants so many permits more, or refuses them all. */
    private function hasRoomBeside(Account $account, KernelRequest $request, int $now, int $others): bool
    {
        $set = $account->budget->rules->set;
        $more = [];
        foreach ($set->rules as $place => $rule) {
            if ($rule->isReported()) {
                $more[$place] = min($others, $set->kernel()->available($account->used, $place, $now));
            }
        }
        [$without, $with] = [clone $account, clone $account];
        $with->used = $set->kernel()->charged($account->used, $more, $now);
        $a = $this->onAccount($without, $request, $now);
        $b = $this->onAccount($with, $request, $now);
        return !$a->allowed || ($b->allowed && $b->granted === $a->granted && $b->waitUs === $a->waitUs);
    }

    private function onAccount(Account $account, KernelRequest $request, int $now): Decision
    {
        $set = $account->budget->rules->set;
        $n = $account->nodes;
        if ($request->cost > intdiv(KernelRequest::COST_MAX, $n)) {
            return $account->budget->unknown(Mode::Local, 0, self::RETRY_US);
        }
        $now = self::instant($account, $now);
        [$outcome, $used] = $set->kernel()->decide($account->used, $request->withCost($request->cost * $n), $now);
        if ($request->verb === Verb::AtMost && $outcome->allowed && $outcome->granted % $n !== 0) {
            $part = $outcome->granted % $n;
            if ($part === $outcome->granted) {
                $none = new Outcome(false, $outcome->place, 0, 0, self::RETRY_US, $part, $outcome->resetAfterUs);
                return self::divided($account, $none, $n);
            }
            // A part of a permit cannot be granted: it goes back, and the answer stays as it was decided.
            $used = $set->kernel()->givenBack($used, array_fill(0, count($used), $part), $now);
        }
        if ($request->verb !== Verb::Peek) {
            [$account->used, $account->latest] = [$used, $now];
        }
        if ($outcome->retryAfterUs === null && $request->cost <= min(array_column($set->rules, 'limit'))) {
            $outcome = $outcome->retriedAfter(self::RETRY_US);
        }
        return self::divided($account, $outcome, $n);
    }

    /** The decision of an outcome that counted each permit `$n` times. */
    private static function divided(Account $account, Outcome $outcome, int $n): Decision
    {
        $rule = $account->budget->rules->set->rules[$outcome->place];
        return $account->budget->decision(new Outcome(
            $outcome->allowed,
            $outcome->place,
            intdiv($outcome->granted, $n),
            $outcome->waitUs,
            $outcome->retryAfterUs,
            intdiv($outcome->remaining, $n),
            $outcome->resetAfterUs,
        ), intdiv($rule->limit, $n), Mode::Local);
    }
}
