//! Token bucket and leaky bucket, answer by answer.

use proptest::prelude::*;
use sluicegate_kernel::limits::DEPTH_MAX;
use sluicegate_kernel::{
    Decision, LeakyBucket, Micros, Moment, Retry, Rule, RuleSet, States, TokenBucket, Verb,
};

use crate::exact::oracle::buckets as oracle;
use crate::exact::oracle::{Oracle, answer};
use crate::exact::rules::{leaky_buckets, rate, scale, token_buckets};
use crate::exact::walk::{Clock, Proof, Shape, Time, Walk, holds, prove, same, steps, walks};

fn shape(name: &str, limit: u64, scale_us: u64) -> Shape {
    Shape { limit, scale_us, goes_back: true, gives_back: true, steps: steps(name) }
}

/// Checks that every answer of `rule` equals the oracle's.
pub(crate) fn agree(rule: &Rule, mut oracle: impl Oracle, walk: &Walk) -> Proof {
    let rules = RuleSet::single("rule", rule.clone());
    let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
    for (step, asked) in walk.steps.iter().enumerate() {
        let now = clock.go(asked.time);
        let moment = Moment::new(Micros::new(now));
        let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
        let expected = answer(&mut oracle, &asked.verb, now);
        same(&decision, &expected, || {
            format!("step {step} at {now}: {:?} of {rule:?}", asked.verb)
        })?;
        clock.hear(&decision);
    }
    Ok(())
}

/// Units that a permit weighs when the tick is one µs.
fn per_permit((permits, period): (u64, u64)) -> u64 {
    period / num_integer::gcd(permits, period)
}

/// Returns whether a bucket of `depth` permits counts every µs.
fn is_exact(flow: (u64, u64), depth: u64) -> bool {
    per_permit(flow) <= DEPTH_MAX / depth
}

#[test]
fn a_token_bucket_answers_as_exact_fractions_do() {
    let name = "token_bucket is exact";
    let rules = token_buckets()
        .prop_filter("a tick of one µs", |(bucket, flow)| is_exact(*flow, bucket.burst()));
    let walks = rules.prop_flat_map(move |(bucket, flow)| {
        let shape = shape(name, bucket.burst(), scale(flow, bucket.burst().min(20)));
        (Just(bucket), Just(flow), walks(shape))
    });
    prove(name, walks, |(bucket, flow, walk)| {
        same(&bucket.units().tick_us, &1, || format!("{bucket:?}"))?;
        let oracle =
            oracle::TokenBucket::new(flow, bucket.burst(), bucket.initial(), per_permit(flow));
        agree(&bucket.into(), oracle, &walk)
    });
}

#[test]
fn a_token_bucket_refilled_by_interval_answers_as_counted_periods_do() {
    let name = "token_bucket by interval";
    let walks = token_buckets().prop_flat_map(move |(bucket, flow)| {
        let shape = shape(name, bucket.burst(), scale(flow, bucket.burst().min(20)).max(flow.1));
        (Just(bucket.refilled_by_interval()), Just(flow), walks(shape))
    });
    prove(name, walks, |(bucket, (permits, period), walk)| {
        let (burst, initial) = (bucket.burst(), bucket.initial());
        let oracle = oracle::IntervalBucket { permits, period, burst, initial, tokens: None };
        agree(&bucket.into(), oracle, &walk)
    });
}

#[test]
fn a_leaky_bucket_answers_as_exact_fractions_do() {
    let name = "leaky_bucket is exact";
    let rules = leaky_buckets()
        .prop_filter("a tick of one µs", |(flow, burst, _)| is_exact(*flow, burst + 1));
    let walks = rules.prop_flat_map(move |(flow, burst, delay)| {
        let shape = shape(name, burst + 1, scale(flow, burst.clamp(1, 20)));
        (Just((flow, burst, delay)), walks(shape))
    });
    prove(name, walks, |((flow, burst, delay), walk)| {
        let rule = LeakyBucket::new(rate(flow), burst, delay).unwrap();
        agree(&rule.into(), oracle::LeakyBucket::new(flow, burst, delay), &walk)
    });
}

#[test]
fn a_coarse_tick_makes_a_token_bucket_late_by_a_tick_and_never_early() {
    let name = "token_bucket with a coarse tick";
    let rules = token_buckets()
        .prop_filter("a longer tick", |(bucket, flow)| !is_exact(*flow, bucket.burst()));
    let walks = rules.prop_flat_map(move |(bucket, flow)| {
        let shape = shape(name, bucket.burst(), bucket.units().tick_us);
        (Just(bucket), Just(flow), walks(Shape { gives_back: false, ..shape }))
    });
    prove(name, walks, |(bucket, flow, walk)| {
        let units = bucket.units();
        holds(units.tick_us > 1, || format!("{bucket:?}"))?;
        let (burst, initial) = (bucket.burst(), bucket.initial());
        let oracle = oracle::TokenBucket::new(flow, burst, initial, units.per_permit);
        late_by_a_tick(&bucket.into(), oracle, units.tick_us, &walk)
    });
}

#[test]
fn a_coarse_tick_makes_a_leaky_bucket_late_by_a_tick_and_never_early() {
    let name = "leaky_bucket with a coarse tick";
    let rules = leaky_buckets().prop_filter("a longer tick, as a token bucket of this depth", {
        |(flow, burst, _)| !is_exact(*flow, burst + 1) && *burst < 1 << 32
    });
    let walks = rules.prop_flat_map(move |(flow, burst, delay)| {
        let tick = TokenBucket::new(rate(flow), burst + 1).unwrap().units().tick_us;
        let shape = Shape { gives_back: false, ..shape(name, burst + 1, tick) };
        (Just((flow, burst, delay, tick)), walks(shape))
    });
    prove(name, walks, |((flow, burst, delay, tick), walk)| {
        let rule = LeakyBucket::new(rate(flow), burst, delay).unwrap();
        late_by_a_tick(&rule.into(), oracle::LeakyBucket::new(flow, burst, delay), tick, &walk)
    });
}

/// Checks that the oracle grants all that `rule` grants, and that no wait is more than a tick
/// longer than needed. (When time goes back, the part of a tick that is not counted yet is lost:
/// one tick more.)
fn late_by_a_tick(rule: &Rule, mut oracle: impl Oracle, tick: u64, walk: &Walk) -> Proof {
    let rules = RuleSet::single("rule", rule.clone());
    let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
    let mut late_us = tick;
    for (step, asked) in walk.steps.iter().enumerate() {
        let before = clock.now;
        let now = clock.go(asked.time);
        if now < before {
            late_us += tick;
        }
        let moment = Moment::new(Micros::new(now));
        let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
        let context = || format!("step {step} at {now}: {:?} of {rule:?}", asked.verb);
        if decision.allowed() && !matches!(asked.verb, Verb::Peek { .. } | Verb::Reset) {
            oracle.went_back(now);
            let max_wait = Some(u64::MAX);
            let ideal =
                Decision { outcome: oracle.ask(decision.granted(), max_wait, now), ..decision };
            holds(ideal.allowed(), || format!("{}: {ideal:?}", context()))?;
            late(decision.wait().get(), ideal.wait().get(), late_us, context)?;
            oracle.take(decision.granted(), now);
        } else if let Some((cost, max_wait)) = cost_and_patience(&asked.verb, &decision) {
            let mut seen = oracle.clone();
            seen.went_back(now);
            let ideal = Decision { outcome: seen.ask(cost, max_wait, now), ..decision };
            match decision.outcome {
                sluicegate_kernel::Outcome::Deny { retry: Retry::Never } => {
                    same(&ideal.outcome, &decision.outcome, context)?;
                }
                _ => {
                    let (given, needed) = (decision.retry_after(), ideal.retry_after());
                    late(given.unwrap().get(), needed.unwrap().get(), late_us, context)?;
                }
            }
            oracle.went_back(now);
            oracle.refused(now);
        }
        if matches!(asked.verb, Verb::Reset) {
            oracle.forget();
        }
        holds(decision.remaining <= oracle.remaining(now), || {
            format!("{}: {decision:?}", context())
        })?;
        clock.hear(&decision);
    }
    Ok(())
}

fn late(given: u64, needed: u64, late_us: u64, context: impl Fn() -> String) -> Proof {
    holds(given >= needed && given <= needed.saturating_add(late_us), || {
        format!("{}: {given}, where {needed} was needed", context())
    })
}

/// The cost and the longest wait of a verb that was refused; `None` for others.
fn cost_and_patience(verb: &Verb, decision: &Decision) -> Option<(u64, Option<u64>)> {
    match verb {
        _ if decision.allowed() => None,
        Verb::Check { cost } => Some((cost.get(), None)),
        Verb::Reserve { cost, max_wait } => Some((cost.get(), Some(max_wait.get()))),
        Verb::AtMost { .. } => Some((1, None)),
        _ => None,
    }
}

#[test]
fn waiting_as_told_always_suffices_after_time_went_back() {
    let bucket = TokenBucket::new(rate((7, 1_000_000)), 3).unwrap();
    let rules = RuleSet::single("rule", bucket);
    let (mut states, mut clock) = (States::default(), Clock::new(1 << 40));
    let verb = Verb::Check { cost: sluicegate_kernel::Cost::ONE };
    let mut ask = |clock: &mut Clock| {
        let decision = rules.decide(&mut states, &verb, &Moment::new(Micros::new(clock.now)));
        let decision = decision.unwrap().decision;
        clock.hear(&decision);
        decision
    };
    for back in [1, 1_000_000, 1 << 39] {
        while ask(&mut clock).allowed() {}
        clock.go(Time::Back(back));
        let refused = ask(&mut clock);
        assert!(!refused.allowed(), "going back by {back} adds nothing");
        assert!(refused.retry_after().unwrap() <= Micros::new(142_858), "{refused:?}");
        clock.go(Time::Hint(0));
        assert!(ask(&mut clock).allowed(), "going back by {back} freezes nothing");
    }
}
