//! A rule changes under a key that is in use: usage stays usage, in the new rule's units.

use proptest::prelude::*;
use sluicegate_kernel::algorithm::Scale;
use sluicegate_kernel::limits::{LOG_ENTRIES_MAX, PERMITS_MAX, SPAN_MAX_US};
use sluicegate_kernel::{
    Carry, Concurrency, Cost, Decision, FixedWindow, Micros, Moment, NamedRule, PermitId, Rule,
    RuleSet, SlidingCounter, SlidingLog, SlidingWindow, States, TokenBucket, Verb,
};

use crate::exact::oracle::{Oracle, answer, buckets as oracle, ratio};
use crate::exact::rules::{any_rate_rule, permits, rate, scale, spans, token_buckets};
use crate::exact::walk::{Clock, Proof, Shape, Walk, holds, prove, same, steps, walks};

/// A rule, a walk under it, and the rule that replaces it.
fn changed(name: &'static str) -> impl Strategy<Value = (Rule, Walk, Rule)> {
    (any_rate_rule(), any_rate_rule()).prop_flat_map(move |((old, scale_us), (new, _))| {
        let limit = old.limit();
        let shape =
            Shape { limit, scale_us, goes_back: false, gives_back: true, steps: steps(name) };
        (Just(old), walks(shape), Just(new))
    })
}

fn set(rule: &Rule, carry: Carry) -> RuleSet {
    RuleSet::single("rule", rule.clone()).with_carry(carry)
}

fn decide(rules: &RuleSet, states: &mut States, verb: &Verb, now: u64) -> Decision {
    rules.decide(states, verb, &Moment::new(Micros::new(now))).unwrap().decision
}

const LOOK: Verb = Verb::Peek { cost: Cost::ONE };

#[test]
fn usage_stays_usage_when_a_rule_changes() {
    let name = "configure";
    prove(name, changed(name), |(old, walk, new)| {
        let (rules, mut clock) = (set(&old, Carry::Usage), Clock::new(walk.start));
        let mut states = States::default();
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let decision = decide(&rules, &mut states, &asked.verb, now);
            clock.hear(&decision);
        }
        let change = Change { old: &old, new: &new, states: &states, now: clock.now };
        change.to_itself_changes_nothing()?;
        change.resets()?;
        if !states.is_empty() {
            change.carries_usage(Carry::Usage)?;
            change.carries_usage(Carry::Proportional)?;
        }
        change.stays_honest(Carry::Usage)?;
        change.stays_honest(Carry::Proportional)
    });
}

struct Change<'a> {
    old: &'a Rule,
    new: &'a Rule,
    states: &'a States,
    now: u64,
}

impl Change<'_> {
    fn carried(&self, carry: Carry) -> (RuleSet, States) {
        let (old, new) = (set(self.old, Carry::Usage), set(self.new, carry));
        let moment = Moment::new(Micros::new(self.now));
        let states = new.take_over(&old, self.states, &moment);
        (new, states)
    }

    fn to_itself_changes_nothing(&self) -> Proof {
        let rules = set(self.old, Carry::Proportional);
        let moment = Moment::new(Micros::new(self.now));
        let kept = rules.take_over(&rules, self.states, &moment);
        let unchanged = &kept == self.states || self.states.is_empty();
        holds(unchanged, || format!("{kept:?} of {:?}", self.states))
    }

    fn resets(&self) -> Proof {
        let (_, states) = self.carried(Carry::Reset);
        holds(states.is_empty(), || format!("{states:?}"))
    }

    /// Checks that permits in use before are in use after (or the same part of the limit), a part counting as one; so
    /// never more is left than that.
    fn carries_usage(&self, carry: Carry) -> Proof {
        let guava = |rule| matches!(rule, &Rule::SmoothBursty(_) | &Rule::SmoothWarmup(_));
        let facts = matches!(
            (self.old, self.new),
            (Rule::SlidingLog(_), Rule::SlidingLog(_))
                | (Rule::SlidingCounter(_), Rule::SlidingCounter(_))
        );
        if guava(self.old) || guava(self.new) || facts {
            return Ok(()); // These have tests of their own.
        }
        let before = decide(&set(self.old, carry), &mut self.states.clone(), &LOOK, self.now);
        let (rules, mut states) = self.carried(carry);
        let after = decide(&rules, &mut states, &LOOK, self.now);
        let used = before.limit - before.remaining;
        let used = match carry {
            Carry::Proportional => {
                let scaled = u128::from(used) * u128::from(after.limit);
                u64::try_from(scaled.div_ceil(before.limit.into())).unwrap()
            }
            _ => used,
        };
        let most = after.limit.saturating_sub(used);
        let context = || format!("{before:?} became {after:?}: {} {carry:?}", self.describe());
        let scale =
            if carry == Carry::Proportional { after.limit.div_ceil(before.limit) } else { 0 };
        // What is left is shown in whole permits; a bucket is scaled with the part of one that it had.
        let to_the_unit = matches!(
            (self.old, self.new),
            (Rule::TokenBucket(_), Rule::TokenBucket(_))
                | (Rule::LeakyBucket(_), Rule::LeakyBucket(_))
        );
        let part = if to_the_unit { scale } else { 0 };
        holds(after.remaining <= most.saturating_add(part), context)?;
        // A part of a permit may have been rounded up twice; a debt is more than the limit shows.
        let enough = after.remaining + 1 + scale >= most || before.remaining == 0;
        holds(enough, context)
    }

    fn stays_honest(&self, carry: Carry) -> Proof {
        let (rules, mut states) = self.carried(carry);
        let cost = Cost::new(self.new.limit().clamp(1, 1 << 20)).unwrap();
        let verb = Verb::Check { cost };
        let refused = decide(&rules, &mut states, &verb, self.now);
        let Some(retry) = refused.retry_after().map(Micros::get) else { return Ok(()) };
        if retry == 0 || retry >= SPAN_MAX_US || self.now + retry >= SPAN_MAX_US {
            return Ok(());
        }
        let passes = |now| decide(&rules, &mut states.clone(), &verb, now).allowed();
        let context = || format!("{refused:?} {}", self.describe());
        holds(passes(self.now + retry), context)?;
        holds(!passes(self.now + retry - 1), context)
    }

    fn describe(&self) -> String {
        let Self { old, new, states, now } = self;
        format!("at {now} from {old:?} to {new:?}: {states:?}")
    }
}

/// Two rules of the same window whose limits differ, and the window's length.
fn resized() -> impl Strategy<Value = (Rule, Rule, u64)> {
    let limits = || permits(PERMITS_MAX - 1);
    (0..5, limits(), limits(), spans(), 1_u64..=12).prop_map(
        |(kind, before, after, span, buckets)| {
            let window_us = span.max(buckets);
            let window = Micros::new(window_us);
            let rule = |limit: u64| -> Rule {
                let log_limit = limit.min(LOG_ENTRIES_MAX);
                match kind {
                    0 => FixedWindow::epoch(limit, window).unwrap().into(),
                    1 => FixedWindow::first(limit, window).unwrap().into(),
                    2 => SlidingWindow::new(limit, window, buckets).unwrap().into(),
                    3 => SlidingCounter::new(limit, window).unwrap().into(),
                    _ => SlidingLog::new(log_limit, window).unwrap().into(),
                }
            };
            (rule(before), rule(after), window_us)
        },
    )
}

#[test]
fn a_window_that_keeps_its_length_keeps_its_times_when_usage_is_scaled() {
    let name = "proportional windows";
    let walks = resized().prop_flat_map(move |(old, new, window_us)| {
        let (limit, scale_us) = (old.limit(), window_us);
        let shape =
            Shape { limit, scale_us, goes_back: false, gives_back: true, steps: steps(name) };
        (Just((old, new, window_us)), walks(shape))
    });
    prove(name, walks, |((old, new, window_us), walk)| {
        let (rules, mut clock) = (set(&old, Carry::Usage), Clock::new(walk.start));
        let mut states = States::default();
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            clock.hear(&decide(&rules, &mut states, &asked.verb, now));
        }
        let change = Change { old: &old, new: &new, states: &states, now: clock.now };
        let (new_rules, taken_over) = change.carried(Carry::Proportional);
        for elevenths in 0..=22 {
            let now = clock.now + window_us * elevenths / 11;
            let before = decide(&rules, &mut states.clone(), &LOOK, now);
            let after = decide(&new_rules, &mut taken_over.clone(), &LOOK, now);
            let scale = Scale { to: after.limit, from: before.limit };
            let used = before.limit - before.remaining;
            let slack = match old {
                // Its estimate is rounded up to a permit, before and after, and its weight to
                // steps, at least 2^18 a window, whose number follows from the limit.
                Rule::SlidingCounter(_) => scale.of(1) + 1 + (after.limit >> 16),
                _ => 0,
            };
            let (least, most) = (scale.of(used).saturating_sub(slack), scale.of(used) + slack);
            let context = || format!("{before:?} became {after:?} at {now}: {}", change.describe());
            same(&after.reset_after, &before.reset_after, context)?;
            holds((least..=most).contains(&(after.limit - after.remaining)), context)?;
        }
        Ok(())
    });
}

#[test]
fn a_token_bucket_keeps_its_exact_level_under_a_new_rate_and_burst() {
    keeps_its_exact_level("token_bucket configured", Carry::Usage);
}

#[test]
fn a_token_bucket_keeps_the_exact_part_of_its_burst_that_is_in_use() {
    keeps_its_exact_level("token_bucket configured in proportion", Carry::Proportional);
}

fn keeps_its_exact_level(name: &'static str, carry: Carry) {
    let walks = (token_buckets(), token_buckets()).prop_flat_map(move |(before, after)| {
        let scale_us = scale(before.1, before.0.burst().min(20));
        let limit = before.0.burst();
        let shape =
            Shape { limit, scale_us, goes_back: false, gives_back: false, steps: steps(name) };
        (Just((before, after)), walks(shape))
    });
    prove(name, walks, |((before, after), walk)| {
        let ((old, flow), (new, new_flow)) = (before, after);
        if old.units().tick_us > 1 || new.units().tick_us > 1 {
            return Ok(());
        }
        let (old_rules, new_rules) =
            (set(&old.clone().into(), carry), single(&new).with_carry(carry));
        let mut ideal =
            oracle::TokenBucket::new(flow, old.burst(), old.initial(), old.units().per_permit);
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        let (first, second) = walk.steps.split_at(walk.steps.len() / 2);
        for asked in first {
            let now = clock.go(asked.time);
            clock.hear(&decide(&old_rules, &mut states, &asked.verb, now));
            answer(&mut ideal, &asked.verb, now);
        }
        if states.is_empty() {
            return Ok(());
        }
        let now = clock.now;
        states = new_rules.take_over(&old_rules, &states, &Moment::new(Micros::new(now)));
        let per_permit = new.units().per_permit;
        let fresh = oracle::TokenBucket::new(new_flow, new.burst(), new.initial(), per_permit);
        // A debt deeper than the kernel counts to (centuries, or a burst a million times smaller)
        // is as deep as that.
        let part = match carry {
            Carry::Proportional => ratio(new.burst(), old.burst()),
            _ => ratio(1, 1),
        };
        let used = (ideal.used(now) * part).min(fresh.countable.clone());
        let mut ideal = fresh.with_used(used, now);
        for asked in second {
            let now = clock.go(asked.time);
            let decision = decide(&new_rules, &mut states, &asked.verb, now);
            if decision.allowed() && !matches!(asked.verb, Verb::Peek { .. }) {
                let outcome = ideal.ask(decision.granted(), Some(u64::MAX), now);
                let allowed = matches!(outcome, sluicegate_kernel::Outcome::Allow { .. });
                holds(allowed, || format!("{outcome:?} at {now}: {new:?}"))?;
                ideal.take(decision.granted(), now);
            }
            let left = ideal.remaining(now);
            let exact = decision.remaining == left || decision.remaining + 1 == left;
            holds(exact, || format!("{decision:?} with {left} left at {now}: {new:?}"))?;
            clock.hear(&decision);
        }
        Ok(())
    });
}

fn single(bucket: &TokenBucket) -> RuleSet {
    RuleSet::single("rule", bucket.clone())
}

#[test]
fn a_rule_takes_over_from_the_rule_of_its_name_wherever_it_stands() {
    let bucket = |burst| -> Rule { TokenBucket::new(rate((1, 1_000_000)), burst).unwrap().into() };
    let named = |name: &str, rule| NamedRule { name: name.into(), rule };
    let old = RuleSet::new(vec![named("a", bucket(10)), named("b", bucket(20))]).unwrap();
    let new = RuleSet::new(vec![named("b", bucket(5)), named("c", bucket(7))]).unwrap();
    let mut states = States::default();
    let verb = Verb::Check { cost: Cost::new(3).unwrap() };
    decide(&old, &mut states, &verb, 0);
    let mut states = new.take_over(&old, &states, &Moment::new(Micros::ZERO));
    let at_most = decide(&new, &mut states, &Verb::AtMost { cost: Cost::new(7).unwrap() }, 0);
    same(&at_most.granted(), &2, || "b had 3 of now 5 in use; c is new".into()).unwrap();
}

#[test]
fn permits_that_are_held_are_usage_of_another_algorithm() {
    let ten = Micros::from_secs(10);
    let old = set(&Concurrency::new(10, ten, 0).unwrap().into(), Carry::Usage);
    let new = set(&SlidingLog::new(10, ten).unwrap().into(), Carry::Usage);
    let mut states = States::default();
    let acquire = Verb::Acquire { cost: Cost::new(4).unwrap(), permit: PermitId(1) };
    assert!(decide(&old, &mut states, &acquire, 1_000).allowed());
    let mut states = new.take_over(&old, &states, &Moment::new(Micros::new(2_000)));
    assert_eq!(decide(&new, &mut states, &LOOK, 2_000).remaining, 6);
}
