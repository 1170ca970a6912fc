<?php

declare(strict_types=1);

namespace Sluicegate\Kernel;

use Sluicegate\Rules\Carry;
use Sluicegate\Rules\Rule;
use Sluicegate\Rules\RuleSet;
use Sluicegate\Verb;

/**
 * The decision model in this process: rules that are decided together, for one key.
 *
 * The states of a key are a list with one state for each rule, null where a rule remembers nothing. If all rules
 * allow, all are charged; if one refuses, none is.
 *
 * @internal
 * @phpstan-type States list<array<mixed>|null>
 */
final class Kernel
{
    /** @var non-empty-list<Primitive> */
    private readonly array $rules;
    private readonly bool $holdsPermits;

    public function __construct(private readonly RuleSet $set)
    {
        $this->rules = array_map(static fn (Rule $rule): Primitive => $rule->primitive(), $set->rules);
        $this->holdsPermits = $set->holdsPermits();
    }

    /** Returns whether the rules support the verb. */
    public function supports(Verb $verb): bool
    {
        return match ($verb) {
            Verb::Check, Verb::Reserve, Verb::AtMost => !$this->holdsPermits,
            Verb::Acquire, Verb::Release, Verb::Renew, Verb::Leave => $this->holdsPermits,
            Verb::Wait => $this->hasQueue(),
            default => true,
        };
    }

    /** Returns whether each rule that hands out permits has a queue, and there is one. */
    private function hasQueue(): bool
    {
        foreach ($this->rules as $rule) {
            if ($rule instanceof Concurrency && $rule->queue === 0) {
                return false;
            }
        }
        return $this->holdsPermits;
    }

    /** Returns the states of a key that was never seen. */
    public function fresh(): array
    {
        return array_fill(0, count($this->rules), null);
    }

    /**
     * Decides. The rules support the verb.
     *
     * @return array{Outcome, States} the decision, and the states after it
     */
    public function decide(array $states, KernelRequest $request, int $now): array
    {
        $before = $states;
        $states = $this->rewound($states, $now);
        [$refusedBy, $retry, $wait, $slowest, $granted] = [null, 0, 0, null, $request->cost];
        switch ($request->verb) {
            case Verb::Refund:
                [$states, $granted] = $this->refunded($states, $now, $request->cost);
                break;
            case Verb::Reset:
                [$states, $granted] = [$this->fresh(), 0];
                break;
            case Verb::Release:
            case Verb::Renew:
                [$states, $granted, $refusedBy] = $this->onPermit($states, $now, $request);
                $retry = Primitive::NEVER;
                break;
            default:
                if ($request->verb === Verb::AtMost) {
                    $granted = $this->granted($states, $now, $request->cost);
                    $request = $request->withCost($granted);
                }
                [$refusedBy, $retry, $wait, $slowest] = $this->checked($states, $now, $request);
                if ($request->verb !== Verb::Peek) {
                    $states = $this->applied($states, $now, $request, $refusedBy === null);
                }
        }
        $place = $refusedBy ?? $slowest ?? $this->leastLeft($states, $now);
        [$rule, $state] = [$this->rules[$place], $states[$place]];
        [$left, $fullAfter] = [$rule->left($state, $now), $rule->fullAfter($state, $now)];
        $retry = $retry === Primitive::NEVER ? null : $retry;
        $outcome = $refusedBy === null
            ? new Outcome(true, $place, $granted, $wait, 0, $left, $fullAfter)
            : new Outcome(false, $place, 0, 0, $retry, $left, $fullAfter);
        return [$outcome, $request->verb === Verb::Peek ? $before : $states];
    }

    /** Returns whether the states can be dropped: every budget is full, and full is the same as a new key. */
    public function isFull(array $states, int $now): bool
    {
        foreach ($this->rules as $place => $rule) {
            $fresh = $this->set->rules[$place]->flags & Rule::FULL_IS_FRESH;
            if ($states[$place] !== null && (!$fresh || $rule->fullAfter($states[$place], $now) > 0)) {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns the permits in use of each rule, rounded up; 0 where permits are held by id.
     *
     * @return list<int>
     */
    public function used(array $states, int $now): array
    {
        $states = $this->rewound($states, $now);
        $used = [];
        foreach ($this->rules as $place => $rule) {
            $used[] = $rule instanceof Concurrency ? 0 : $rule->used($states[$place], $now);
        }
        return $used;
    }

    /**
     * Returns the states with so many permits in use now, whatever was in use before.
     *
     * @param array<int, int> $used permits in use by the places of rules, none of which holds permits; the others stay
     *   unchanged
     */
    public function withUsed(array $states, array $used, int $now): array
    {
        foreach ($used as $place => $permits) {
            $states[$place] = $this->rules[$place]->withUsed($now, $permits);
        }
        return $states;
    }

    /** Returns the most permits of one rule that pass now. */
    public function available(array $states, int $place, int $now): int
    {
        return $this->rules[$place]->available($this->rewound($states, $now)[$place], $now);
    }

    /**
     * Returns the states with more permits charged, whether they are left or not.
     *
     * @param array<int, int> $permits by the places of rules, none of which holds permits
     */
    public function charged(array $states, array $permits, int $now): array
    {
        $states = $this->rewound($states, $now);
        foreach ($permits as $place => $more) {
            if ($more > 0) {
                $request = new KernelRequest(Verb::Check, $more);
                $states[$place] = $this->rules[$place]->charge($states[$place], $now, $request);
            }
        }
        return $states;
    }

    /**
     * Gives permits back, newest first; not those that are held by id.
     *
     * @param array<int, int> $permits by the places of rules
     */
    public function givenBack(array $states, array $permits, int $now): array
    {
        $states = $this->rewound($states, $now);
        foreach ($permits as $place => $back) {
            if ($back > 0 && $states[$place] !== null) {
                $states[$place] = $this->rules[$place]->refund($states[$place], $now, $back)[0];
            }
        }
        return $states;
    }

    /** Converts the states of other rules: each rule takes over the usage of the rule with the same name. */
    public function takeOver(self $old, array $oldStates, int $now): array
    {
        $states = $this->fresh();
        if ($this->set->carry === Carry::Reset) {
            return $states;
        }
        $oldPlaces = array_flip(array_column($old->set->rules, 'nameHash'));
        foreach ($this->set->rules as $place => $shape) {
            $from = $oldPlaces[$shape->nameHash] ?? -1;
            $state = $oldStates[$from] ?? null;
            if ($state !== null) {
                $oldShape = $old->set->rules[$from];
                $states[$place] = $oldShape->code === $shape->code && $oldShape->numbers === $shape->numbers
                    ? $state
                    : $this->carried($this->rules[$place], $old->rules[$from], $state, $now);
            }
        }
        return $states;
    }

    private function carried(Primitive $rule, Primitive $old, array $state, int $now): ?array
    {
        if ($rule instanceof Concurrency && $old instanceof Concurrency) {
            return $rule->rewind($state, $now);
        }
        $used = $old->used($state, $now);
        if ($rule instanceof Level && $rule->afterwards) {
            // `smooth_bursty` and `smooth_warmup` begin with nothing stored, and keep what is owed.
            $owed = $old instanceof Level && $old->afterwards ? max($used - $old->unstored(), 0) : 0;
            return $rule->withUsed($now, $rule->unstored() + $owed);
        }
        if ($this->set->carry === Carry::Proportional) {
            $used = (int) min(ceil($used * $rule->limit / $old->limit), Primitive::UNITS_MAX);
        }
        return $rule->withUsed($now, $used);
    }

    private function rewound(array $states, int $now): array
    {
        foreach ($states as $place => $state) {
            if ($state !== null) {
                $states[$place] = $this->rules[$place]->rewind($state, $now);
            }
        }
        return $states;
    }

    /** Returns the cost of an `at_most`: the permits that pass, but at least one, which may be refused. */
    private function granted(array $states, int $now, int $cost): int
    {
        foreach ($this->rules as $place => $rule) {
            $cost = min($cost, $rule->available($states[$place], $now));
        }
        return max($cost, 1);
    }

    /** @return array{States, int} the states, and how many permits went back under all rules */
    private function refunded(array $states, int $now, int $cost): array
    {
        $granted = null;
        foreach ($this->rules as $place => $rule) {
            if ($rule instanceof Concurrency) {
                continue;
            }
            $back = 0;
            if ($states[$place] !== null) {
                [$states[$place], $back] = $rule->refund($states[$place], $now, $cost);
            }
            $granted = min($granted ?? $back, $back);
        }
        return [$states, $granted ?? 0];
    }

    /** @return array{States, int, int|null} the states, the permits of the id, and the rule that refused */
    private function onPermit(array $states, int $now, KernelRequest $request): array
    {
        [$granted, $refusedBy] = [null, null];
        foreach ($this->rules as $place => $rule) {
            if ($rule instanceof Concurrency) {
                $refusedBy ??= $place;
                if ($states[$place] !== null) {
                    [$states[$place], $back] = $rule->settle($states[$place], $now, $request);
                    $granted = $back ?? $granted;
                }
            }
        }
        return [$states, $granted ?? 0, $granted === null ? $refusedBy : null];
    }

    /** @return array{int|null, int, int, int|null} the rule that refuses, its retry, the wait, the slowest rule */
    private function checked(array $states, int $now, KernelRequest $request): array
    {
        [$refusedBy, $retry, $wait, $slowest] = [null, 0, 0, null];
        foreach ($this->rules as $place => $rule) {
            [$pause, $after] = $rule->check($states[$place], $now, $request);
            if ($pause === null && ($refusedBy === null || $after > $retry)) {
                [$refusedBy, $retry] = [$place, $after];
            } elseif ($pause > $wait) {
                [$wait, $slowest] = [$pause, $place];
            }
        }
        return [$refusedBy, $retry, $wait, $slowest];
    }

    private function applied(array $states, int $now, KernelRequest $request, bool $passes): array
    {
        foreach ($this->rules as $place => $rule) {
            $states[$place] = $passes
                ? $rule->charge($states[$place], $now, $request)
                : $states[$place] ?? $rule->firstSeen($now);
        }
        return $states;
    }

    private function leastLeft(array $states, int $now): int
    {
        if (count($this->rules) === 1) {
            return 0;
        }
        [$place, $least] = [0, PHP_INT_MAX];
        foreach ($this->rules as $at => $rule) {
            $left = $rule->left($states[$at], $now);
            [$place, $least] = $left < $least ? [$at, $left] : [$place, $least];
        }
        return $place;
    }
}
