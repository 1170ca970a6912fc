//! Promises of every answer of every algorithm, for any rule and walk.

use proptest::prelude::*;
use sluicegate_kernel::limits::{COST_MAX, SPAN_MAX_US, UNITS_MAX};
use sluicegate_kernel::{
    Cost, Decision, Micros, Moment, Outcome, PermitId, Retry, Rule, RuleSet, States, Verb,
};

use crate::exact::rules::{any_rate_rule, concurrencies};
use crate::exact::walk::{
    Clock, Proof, Shape, Walk, holds, permit_verbs, prove, same, steps, walks, walks_with,
};

pub(crate) fn any_walk(name: &'static str) -> impl Strategy<Value = (Rule, Walk)> {
    let shape = move |rule: &Rule, scale_us| Shape {
        limit: rule.limit(),
        scale_us,
        goes_back: true,
        gives_back: true,
        steps: steps(name),
    };
    let rates = any_rate_rule()
        .prop_flat_map(move |(rule, scale)| (Just(rule.clone()), walks(shape(&rule, scale))));
    let permits = concurrencies().prop_flat_map(move |(rule, ttl)| {
        let verbs = permit_verbs(rule.limit());
        (Just(rule.clone()), walks_with(shape(&rule, ttl), verbs))
    });
    prop_oneof![8 => rates, 1 => permits]
}

#[test]
fn every_answer_is_honest() {
    let name = "honest answers";
    prove(name, any_walk(name), |(rule, walk)| {
        let rules = RuleSet::single("rule", rule);
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        let mut latest = 0;
        for (step, asked) in walk.steps.iter().enumerate() {
            let now = clock.go(asked.time);
            let before = states.clone();
            let decision = decide(&rules, &mut states, &asked.verb, now);
            let seen = Seen { rules: &rules, verb: &asked.verb, now, decision, step };
            seen.numbers_are_exact_in_a_double()?;
            seen.a_peek_foretells_a_check(&before, latest)?;
            if !decision.allowed() {
                // Only a clock that goes back, and the first sight of a key whose budget starts below
                // full, change what is remembered; and they do so once.
                let as_before = now >= latest && !before.is_empty();
                let unchanged = if as_before { &before } else { &states };
                let mut again = unchanged.clone();
                decide(&rules, &mut again, &asked.verb, now);
                seen.says(is_same(&again, &states), "a refused request changes nothing")?;
                seen.a_retry_is_the_first_moment_that_suffices(&states)?;
            }
            seen.a_budget_is_full_when_it_says(&states)?;
            seen.a_full_budget_is_no_state_at_all(&states)?;
            latest = latest.max(now);
            clock.hear(&decision);
        }
        Ok(())
    });
}

fn decide(rules: &RuleSet, states: &mut States, verb: &Verb, now: u64) -> Decision {
    rules.decide(states, verb, &Moment::new(Micros::new(now))).unwrap().decision
}

fn is_same(one: &States, other: &States) -> bool {
    one == other || one.is_empty() && other.is_empty()
}

/// One answer and what led to it.
struct Seen<'a> {
    rules: &'a RuleSet,
    verb: &'a Verb,
    now: u64,
    decision: Decision,
    step: usize,
}

impl Seen<'_> {
    fn says(&self, truth: bool, claim: &str) -> Proof {
        let Self { rules, verb, now, decision, step } = self;
        holds(truth, || {
            format!("{claim}: step {step} at {now}: {verb:?} of {rules:?}: {decision:?}")
        })
    }

    fn rule(&self) -> &Rule {
        &self.rules.rules()[0].rule
    }

    fn numbers_are_exact_in_a_double(&self) -> Proof {
        let Decision { outcome, limit, remaining, reset_after } = self.decision;
        let (granted, span) = match outcome {
            Outcome::Allow { granted, wait } => (granted, wait.get()),
            Outcome::Deny { retry: Retry::After(span) } => (0, span.get()),
            Outcome::Deny { retry: Retry::Never } => (0, 0),
        };
        let largest = [granted, span, limit, remaining, reset_after.get()].into_iter().max();
        self.says(largest < Some(UNITS_MAX), "numbers stay below 2^53")
    }

    /// The verb that takes `cost` at once.
    fn check(&self, cost: Cost) -> Verb {
        if self.rule().holds_permits() {
            Verb::Acquire { cost, permit: PermitId(u128::MAX) }
        } else {
            Verb::Check { cost }
        }
    }

    fn a_peek_foretells_a_check(&self, before: &States, latest: u64) -> Proof {
        let cost = match *self.verb {
            Verb::Check { cost } | Verb::Peek { cost } | Verb::Acquire { cost, .. } => cost,
            _ => return Ok(()),
        };
        let mut peeked = before.clone();
        let foretold = decide(self.rules, &mut peeked, &Verb::Peek { cost }, self.now);
        self.says(is_same(before, &peeked), "a peek changes nothing")?;
        let checked = decide(self.rules, &mut before.clone(), &self.check(cost), self.now);
        self.says(foretold.outcome == checked.outcome, "a peek foretells a check")?;
        if self.now < latest {
            return Ok(());
        }
        let later = decide(self.rules, &mut peeked, &Verb::Peek { cost }, self.now * 2 + 1);
        let worse = foretold.allowed() && !later.allowed();
        self.says(!worse, "what passes now passes later, if nobody else comes")
    }

    fn a_retry_is_the_first_moment_that_suffices(&self, states: &States) -> Proof {
        let retry = match self.decision.outcome {
            // A peek does not put the clock right, so it foretells a check and not itself.
            _ if matches!(self.verb, Verb::Peek { .. }) => return Ok(()),
            Outcome::Allow { .. } => return Ok(()),
            Outcome::Deny { retry: Retry::After(retry) } => retry.get(),
            Outcome::Deny { retry: Retry::Never } => return self.never_is_never(),
        };
        self.says(retry > 0, "a retry lies ahead")?;
        let patience = match self.verb {
            Verb::Reserve { max_wait, .. } => max_wait.get(),
            _ => 0,
        };
        if retry.saturating_add(patience.max(self.now)) >= SPAN_MAX_US {
            return Ok(()); // After the end of time.
        }
        let at = |now| decide(self.rules, &mut states.clone(), self.verb, now).allowed();
        self.says(at(self.now + retry), "after the retry it passes")?;
        self.says(!at(self.now + retry - 1), "1 µs before the retry it does not")
    }

    fn never_is_never(&self) -> Proof {
        let of_permits =
            matches!(self.verb, Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. });
        let held_already = matches!(self.verb, Verb::Acquire { cost, .. } | Verb::Wait { cost, .. }
            if cost.get() <= self.rule().limit());
        if of_permits || held_already {
            return Ok(());
        }
        let fresh = decide(self.rules, &mut States::default(), self.verb, self.now);
        self.says(fresh.retry_after().is_none(), "never is never, for a fresh key too")
    }

    fn a_budget_is_full_when_it_says(&self, states: &States) -> Proof {
        let full = self.now + self.decision.reset_after.get();
        // A key that was never seen does not fill until it is.
        let fills = !states.is_empty() && !matches!(self.verb, Verb::Peek { .. });
        if !fills || full >= SPAN_MAX_US || full == self.now {
            return Ok(());
        }
        let peek = Verb::Peek { cost: Cost::ONE };
        let left = |now| decide(self.rules, &mut states.clone(), &peek, now).reset_after.get();
        let (before, at) = (left(full - 1), left(full));
        if matches!(self.rule(), Rule::SmoothBursty(_) | Rule::SmoothWarmup(_)) {
            // What is stored is a double, and is rounded anew at every look.
            return self.says(at <= 1 + (full >> 48), "it is full at the reset");
        }
        self.says(at == 0 && before == 1, "it is full at the reset, and not 1 µs before")
    }

    /// Checks that a store can forget a full budget.
    fn a_full_budget_is_no_state_at_all(&self, states: &States) -> Proof {
        let Some(forgettable) = self.rules.forgettable_at(states) else { return Ok(()) };
        let now = forgettable.get().max(self.now);
        if now >= SPAN_MAX_US {
            return Ok(());
        }
        let remembered = decide(self.rules, &mut states.clone(), self.verb, now);
        let forgotten = decide(self.rules, &mut States::default(), self.verb, now);
        if matches!(self.rule(), Rule::SmoothWarmup(_)) {
            // Doubles: equal but for rounding.
            return self.says(remembered.allowed() == forgotten.allowed(), "full is fresh");
        }
        same(&remembered, &forgotten, || format!("forgotten at {now}: {:?}", self.rules))
    }
}

#[test]
fn no_instant_panics() {
    let name = "arbitrary instants";
    let instants = prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), (1_u64 << 52)..(1 << 54)];
    let instants = proptest::collection::vec(instants, steps(name));
    prove(name, (any_walk(name), instants), |((rule, walk), instants)| {
        let rules = RuleSet::single("rule", rule);
        let mut states = States::default();
        for (asked, now) in walk.steps.iter().zip(instants) {
            let decision = decide(&rules, &mut states, &asked.verb, now);
            let seen = Seen { rules: &rules, verb: &asked.verb, now, decision, step: 0 };
            seen.numbers_are_exact_in_a_double()?;
            states = rules.take_over(&rules, &states, &Moment::new(Micros::new(now)));
        }
        Ok(())
    });
}

#[test]
fn the_largest_cost_and_the_longest_wait_are_answered() {
    let cost = Cost::new(COST_MAX).unwrap();
    for (rule, _) in proptest_samples() {
        let rules = RuleSet::single("rule", rule);
        let mut states = States::default();
        for _ in 0..20 {
            let verb = Verb::Reserve { cost, max_wait: Micros::MAX };
            let decision = decide(&rules, &mut states, &verb, u64::MAX);
            assert!(decision.reset_after <= Micros::new(SPAN_MAX_US), "{rules:?}");
        }
    }
}

/// A few hundred rules.
fn proptest_samples() -> Vec<(Rule, u64)> {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut sample = || any_rate_rule().new_tree(&mut runner).unwrap().current();
    (0..300).map(|_| sample()).collect()
}
