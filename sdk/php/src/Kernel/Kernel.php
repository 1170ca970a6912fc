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
 * The states of a key are a list with one state for each rule, null where a rule remembers nothing. All rules allow,
 * and all are charged; or one refuses, and nothing is.
 */
final class Kernel
{
    /** @var non-empty-list<Primitive> */
    private readonly array $primitives;
    private readonly bool $holdsPermits;
    private readonly bool $hasCalendar;

    public function __construct(private readonly RuleSet $set)
    {
        $this->primitives = array_map(static fn (Rule $rule) => $rule->primitive(), $set->rules);
        $this->holdsPermits = $set->holdsPermits();
        $this->hasCalendar = $set->hasCalendar();
    }

    /** Whether the rules know the verb. */
    public function supports(Verb $verb): bool
    {
        return match ($verb) {
            Verb::Check, Verb::Reserve, Verb::AtMost => !$this->holdsPermits,
            Verb::Acquire, Verb::Release, Verb::Renew => $this->holdsPermits,
            default => true,
        };
    }

    /**
     * The states of a key that was never seen.
     *
     * @return list<array<mixed>|null>
     */
    public function fresh(): array
    {
        return array_fill(0, count($this->primitives), null);
    }

    /**
     * Decides. The rules support the verb, and the cost is 1 to 2^31.
     *
     * @param list<array<mixed>|null> $states
     * @param list<array{int, int}|null> $windows the calendar window around now of each rule that has one
     * @return array{Outcome, list<array<mixed>|null>} the decision, and the states after it
     */
    public function decide(array $states, Ask $ask, int $now, array $windows): array
    {
        $rules = $this->rulesAt($now, $windows);
        $before = $states;
        $states = $this->rewound($rules, $states, $now);
        [$refusedBy, $retry, $granted] = [null, 0, $ask->cost];
        $asks = $ask->verb->value <= Verb::Peek->value;
        switch ($ask->verb) {
            case Verb::Acquire:
                $refusedBy = $this->holderOf($rules, $states, $now, $ask->permit);
                $asks = $refusedBy === null;
                $retry = $asks ? 0 : Primitive::NEVER;
                break;
            case Verb::AtMost:
                foreach ($rules as $place => $rule) {
                    $granted = min($granted, $rule->available($states[$place], $now));
                }
                $granted = max($granted, 1);
                break;
            case Verb::Refund:
                [$states, $granted] = $this->refund($rules, $states, $now, $ask->cost);
                break;
            case Verb::Reset:
                [$states, $granted] = [$this->fresh(), 0];
                break;
            case Verb::Release:
            case Verb::Renew:
                [$states, $granted, $refusedBy] = $this->onPermit($rules, $states, $now, $ask);
                $retry = $refusedBy === null ? 0 : Primitive::NEVER;
                break;
            default:
        }
        [$wait, $slowest] = [0, null];
        if ($asks) {
            [$refusedBy, $retry, $wait, $slowest] =
                $this->ask($rules, $states, $now, $granted, $ask->maxWaitUs);
        }
        if ($asks && $ask->verb !== Verb::Peek) {
            foreach ($rules as $place => $rule) {
                $states[$place] = $refusedBy === null
                    ? $rule->charge($states[$place], $now, $granted, $ask->permit)
                    : $states[$place] ?? $rule->firstSeen($now);
            }
        } elseif ($ask->verb === Verb::Acquire) {
            foreach ($rules as $place => $rule) {
                $states[$place] ??= $rule->firstSeen($now);
            }
        }
        [$place, $remaining, $resetAfter] = $this->decider($rules, $states, $now, $refusedBy ?? $slowest);
        $allowed = $refusedBy === null;
        $outcome = new Outcome(
            $allowed,
            $place,
            $allowed ? $granted : 0,
            $allowed ? $wait : 0,
            $allowed ? 0 : ($retry === Primitive::NEVER ? null : $retry),
            $remaining,
            $resetAfter,
        );
        return [$outcome, $ask->verb === Verb::Peek ? $before : $states];
    }

    /**
     * Whether the states say no more than none do: every budget is full, and full is the same as a new key.
     *
     * @param list<array<mixed>|null> $states
     * @param list<array{int, int}|null> $windows
     */
    public function isFull(array $states, int $now, array $windows): bool
    {
        foreach ($this->rulesAt($now, $windows) as $place => $rule) {
            if ($states[$place] === null) {
                continue;
            }
            $fresh = $this->set->rules[$place]->flags & Rule::FULL_IS_FRESH;
            if (!$fresh || $rule->status($states[$place], $now)[1] > 0) {
                return false;
            }
        }
        return true;
    }

    /**
     * Permits in use of each rule, rounded up; 0 where permits are held by name.
     *
     * @param list<array<mixed>|null> $states
     * @param list<array{int, int}|null> $windows
     * @return list<int>
     */
    public function used(array $states, int $now, array $windows): array
    {
        $used = [];
        foreach ($this->rulesAt($now, $windows) as $place => $rule) {
            $state = $states[$place] === null ? null : $rule->rewind($states[$place], $now);
            $used[] = $rule instanceof Concurrency ? 0 : $rule->used($state, $now);
        }
        return $used;
    }

    /**
     * The states with so many permits in use now, whatever was in use before. Rules that hold permits stay as they are.
     *
     * @param list<array<mixed>|null> $states
     * @param array<int, int> $used permits in use by the places of rules; others stay as they are, too
     * @param list<array{int, int}|null> $windows
     * @return list<array<mixed>|null>
     */
    public function withUsed(array $states, array $used, int $now, array $windows): array
    {
        $rules = $this->rulesAt($now, $windows);
        foreach ($used as $place => $permits) {
            if (!$rules[$place] instanceof Concurrency) {
                $states[$place] = $rules[$place]->withUsed($now, $permits);
            }
        }
        return $states;
    }

    /**
     * The states with permits more charged, as many as are there; none where permits are held by name.
     *
     * @param list<array<mixed>|null> $states
     * @param array<int, int> $permits by the places of rules
     * @param list<array{int, int}|null> $windows
     * @return array{list<array<mixed>|null>, array<int, int>} the states, and what was charged
     */
    public function charged(array $states, array $permits, int $now, array $windows): array
    {
        $rules = $this->rulesAt($now, $windows);
        foreach ($permits as $place => $asked) {
            $rule = $rules[$place];
            $state = $states[$place] === null ? null : $rule->rewind($states[$place], $now);
            $there = $rule instanceof Concurrency ? 0 : $rule->available($state, $now);
            $permits[$place] = max(min($asked, $there), 0);
            if ($permits[$place] > 0) {
                $states[$place] = $rule->charge($state, $now, $permits[$place], '');
            }
        }
        return [$states, $permits];
    }

    /**
     * The states with permits given back, newest first; none where they are held by name.
     *
     * @param list<array<mixed>|null> $states
     * @param array<int, int> $permits by the places of rules
     * @param list<array{int, int}|null> $windows
     * @return list<array<mixed>|null>
     */
    public function givenBack(array $states, array $permits, int $now, array $windows): array
    {
        $rules = $this->rulesAt($now, $windows);
        foreach ($permits as $place => $back) {
            if ($back > 0 && $states[$place] !== null && !$rules[$place] instanceof Concurrency) {
                $state = $rules[$place]->rewind($states[$place], $now);
                $states[$place] = $rules[$place]->refund($state, $now, $back)[0];
            }
        }
        return $states;
    }

    /**
     * The states of other rules under these: usage is taken over from the rule of the same name.
     *
     * @param list<array<mixed>|null> $oldStates
     * @param list<array{int, int}|null> $windows of these rules
     * @param list<array{int, int}|null> $oldWindows of the old rules
     * @return list<array<mixed>|null>
     */
    public function takeOver(self $old, array $oldStates, int $now, array $windows, array $oldWindows): array
    {
        $states = $this->fresh();
        if ($this->set->carry === Carry::Reset) {
            return $states;
        }
        $rules = $this->rulesAt($now, $windows);
        $oldRules = $old->rulesAt($now, $oldWindows);
        foreach ($rules as $place => $rule) {
            $shape = $this->set->rules[$place];
            foreach ($oldRules as $other => $oldRule) {
                $oldShape = $old->set->rules[$other];
                $state = $oldStates[$other];
                if ($state === null || $oldShape->nameHash !== $shape->nameHash) {
                    continue;
                }
                $states[$place] = $oldShape->code === $shape->code && $oldShape->numbers === $shape->numbers
                    ? $state
                    : $this->carried($rule, $oldRule, $state, $now);
            }
        }
        return $states;
    }

    /**
     * @param array<mixed> $state
     * @return array<mixed>|null
     */
    private function carried(Primitive $rule, Primitive $old, array $state, int $now): ?array
    {
        if ($rule instanceof Concurrency && $old instanceof Concurrency) {
            return $rule->rewind($state, $now);
        }
        $used = $old->used($state, $now);
        if ($rule instanceof Level && $rule->afterwards) {
            // Guava's two begin with nothing stored, and keep what is paid afterwards.
            $owed = $old instanceof Level && $old->afterwards ? max($used - $old->unstored(), 0) : 0;
            return $rule->withUsed($now, $rule->unstored() + $owed);
        }
        if ($this->set->carry === Carry::Proportional && !$rule instanceof Concurrency) {
            [$product, $left] = Num::mulDiv(min($used, Primitive::UNITS_MAX), $rule->limit(), $old->limit());
            $used = (int) min($product + ($left > 0 ? 1 : 0), Primitive::UNITS_MAX);
        }
        return $rule->withUsed($now, $used);
    }

    /**
     * @param list<array{int, int}|null> $windows
     * @return non-empty-list<Primitive>
     */
    private function rulesAt(int $now, array $windows): array
    {
        $rules = $this->primitives;
        if (!$this->hasCalendar) {
            return $rules;
        }
        foreach ($this->set->rules as $place => $shape) {
            if ($shape->flags & Rule::HAS_CALENDAR && $rules[$place] instanceof Window) {
                $rules[$place] = $rules[$place]->withTill(self::windowEnd($windows[$place] ?? [0, $now + 1], $now));
            }
        }
        return $rules;
    }

    /** @param array{int, int} $window */
    private static function windowEnd(array $window, int $now): int
    {
        [$from, $till] = $window;
        if ($now < $from) {
            return $from;
        }
        return $now >= $till ? $now + ($till - $from) - ($now - $till) % ($till - $from) : $till;
    }

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     * @return list<array<mixed>|null>
     */
    private function rewound(array $rules, array $states, int $now): array
    {
        foreach ($rules as $place => $rule) {
            if ($states[$place] !== null) {
                $states[$place] = $rule->rewind($states[$place], $now);
            }
        }
        return $states;
    }

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     */
    private function holderOf(array $rules, array $states, int $now, string $permit): ?int
    {
        foreach ($rules as $place => $rule) {
            if ($rule instanceof Concurrency && $rule->holds($states[$place], $now, $permit)) {
                return $place;
            }
        }
        return null;
    }

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     * @return array{list<array<mixed>|null>, int}
     */
    private function refund(array $rules, array $states, int $now, int $cost): array
    {
        $granted = null;
        foreach ($rules as $place => $rule) {
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

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     * @return array{list<array<mixed>|null>, int, int|null} states, what was granted, and the rule that refused
     */
    private function onPermit(array $rules, array $states, int $now, Ask $ask): array
    {
        [$granted, $refusedBy] = [null, null];
        foreach ($rules as $place => $rule) {
            if (!$rule instanceof Concurrency) {
                continue;
            }
            $back = null;
            if ($states[$place] !== null) {
                [$states[$place], $back] = $ask->verb === Verb::Release
                    ? $rule->release($states[$place], $now, $ask->permit)
                    : $rule->renew($states[$place], $now, $ask->permit);
            }
            if ($back !== null) {
                [$granted, $refusedBy] = [$back, null];
            } elseif ($granted === null) {
                $refusedBy ??= $place;
            }
        }
        return [$states, $granted ?? 0, $refusedBy];
    }

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     * @return array{int|null, int, int, int|null} the rule that refuses, its retry, the wait, the slowest rule
     */
    private function ask(array $rules, array $states, int $now, int $cost, ?int $maxWait): array
    {
        [$refusedBy, $retry, $wait, $slowest] = [null, 0, 0, null];
        foreach ($rules as $place => $rule) {
            [$pause, $after] = $rule->check($states[$place], $now, $cost, $maxWait);
            $never = $retry === Primitive::NEVER;
            if ($pause === null) {
                if ($refusedBy === null || (!$never && ($after === Primitive::NEVER || $after > $retry))) {
                    [$refusedBy, $retry] = [$place, $after];
                }
            } elseif ($pause > $wait) {
                [$wait, $slowest] = [$pause, $place];
            }
        }
        return [$refusedBy, $retry, $wait, $slowest];
    }

    /**
     * @param list<Primitive> $rules
     * @param list<array<mixed>|null> $states
     * @return array{int, int, int} the deciding rule, what it has left, and until it is full
     */
    private function decider(array $rules, array $states, int $now, ?int $decider): array
    {
        if ($decider !== null) {
            return [$decider, ...$rules[$decider]->status($states[$decider], $now)];
        }
        $deciding = null;
        foreach ($rules as $place => $rule) {
            [$left, $after] = $rule->status($states[$place], $now);
            if ($deciding === null || $left < $deciding[1]) {
                $deciding = [$place, $left, $after];
            }
        }
        assert($deciding !== null);
        return $deciding;
    }
}
