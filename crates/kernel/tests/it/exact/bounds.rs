//! In no interval is more admitted than the algorithm promises, wherever the interval begins.
//!
//! Intervals are measured in the time that has really gone by: a clock that goes back does not take
//! that time away, so going back must not give anything either.

use proptest::prelude::*;
use sluicegate_kernel::algorithm::Delay;
use sluicegate_kernel::limits::{LOG_ENTRIES_MAX, PERMITS_MAX, SPAN_MAX_US};
use sluicegate_kernel::{
    Decision, LeakyBucket, Micros, Moment, Rule, RuleSet, SlidingCounter, SlidingLog,
    SlidingWindow, States, TokenBucket, Verb,
};

use crate::exact::oracle::{Q, positive, q, ratio};
use crate::exact::rules::{
    leaky_buckets, permits, rate, scale, sliding_windows, spans, token_buckets,
};
use crate::exact::walk::{Clock, Proof, Shape, Walk, holds, prove, steps, walks};

/// One grant: when it passes, in time gone by, its permits, and whether it was held back until then.
struct Pass {
    at: u64,
    cost: u64,
    held: bool,
}

/// Returns the grants of `rule` on this walk, in the order of the requests.
fn passes(rule: &Rule, walk: &Walk) -> Vec<Pass> {
    let rules = RuleSet::single("rule", rule.clone());
    let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
    let (mut gone_by, mut passes) = (0, Vec::new());
    for asked in &walk.steps {
        let before = clock.now;
        let now = clock.go(asked.time);
        gone_by += now.saturating_sub(before);
        let moment = Moment::new(Micros::new(now));
        let decision: Decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
        let wait = decision.wait().get();
        let passed = decision.allowed() && wait < SPAN_MAX_US;
        if passed && !matches!(asked.verb, Verb::Peek { .. }) {
            passes.push(Pass { at: gone_by + wait, cost: decision.granted(), held: wait > 0 });
        }
        clock.hear(&decision);
    }
    passes
}

/// The level of a bucket that leaks at `rate` permits a µs and gets what passes when it passes. Its
/// peak is the most that any interval admits above `rate` times its length.
fn levels(passes: &[Pass], (permits, period): (u64, u64)) -> impl Iterator<Item = (Q, Q)> {
    let rate = ratio(permits, period);
    let (mut level, mut last) = (q(0), 0);
    passes.iter().map(move |pass| {
        let before = positive(&level - &rate * q(pass.at.saturating_sub(last)));
        level = &before + q(pass.cost);
        last = last.max(pass.at);
        (before, level.clone())
    })
}

fn shape(name: &str, limit: u64, scale_us: u64) -> Shape {
    Shape { limit, scale_us, goes_back: true, gives_back: false, steps: steps(name) }
}

#[test]
fn a_bucket_admits_its_burst_and_what_flowed_in_and_no_more() {
    let name = "bucket bounds";
    let token = token_buckets().prop_flat_map(move |(bucket, flow)| {
        let shape = shape(name, bucket.burst(), scale(flow, bucket.burst().min(20)));
        let tick = bucket.units().tick_us;
        (Just((Rule::from(bucket.clone()), flow, bucket.burst(), None, tick)), walks(shape))
    });
    let leaky = leaky_buckets().prop_flat_map(move |(flow, burst, delay)| {
        let rule = LeakyBucket::new(rate(flow), burst, delay).unwrap();
        let shape = shape(name, burst + 1, scale(flow, burst.clamp(1, 20)));
        let tick =
            TokenBucket::new(rate(flow), (burst + 1).min(PERMITS_MAX)).unwrap().units().tick_us;
        (Just((Rule::from(rule), flow, burst + 1, Some(delay), tick)), walks(shape))
    });
    let walks = prop_oneof![token, leaky];
    prove(name, walks, |((rule, flow, burst, delay, tick), walk)| {
        let passes = passes(&rule, &walk);
        let mut slack = q(0);
        for (place, (before, after)) in levels(&passes, flow).enumerate() {
            if passes[place].held {
                // A wait is a whole number of ticks: a request that is held back may pass up to one late, and with it
                // what has flowed in by then.
                slack = ratio(flow.0, flow.1) * q(tick);
            }
            let full = q(burst) + &slack;
            holds(after <= full, || format!("pass {place} fills to {after}: {rule:?}"))?;
            if let Some(Delay::Above(n)) = delay {
                let held_back = before <= q(n) + &slack;
                holds(held_back, || format!("pass {place} leaves above the rate: {rule:?}"))?;
            }
        }
        Ok(())
    });
}

#[test]
fn an_interval_bucket_admits_its_burst_and_the_periods_that_ended_in_it() {
    let name = "interval bounds";
    let walks = token_buckets().prop_flat_map(move |(bucket, flow)| {
        let shape = shape(name, bucket.burst(), flow.1);
        (Just((bucket.refilled_by_interval(), flow)), walks(shape))
    });
    prove(name, walks, |((bucket, (permits, period)), walk)| {
        let passes = passes(&bucket.clone().into(), &walk);
        for (first, begin) in passes.iter().enumerate() {
            let mut admitted = 0_u128;
            for end in &passes[first..] {
                admitted += u128::from(end.cost);
                let periods = u128::from(end.at.saturating_sub(begin.at) / period) + 1;
                let bound = u128::from(bucket.burst()) + periods * u128::from(permits);
                holds(admitted <= bound, || format!("{admitted} of {bound}: {bucket:?}"))?;
            }
        }
        Ok(())
    });
}

/// The rule, its window, and how much any interval of that length may admit.
type Windowed = (Rule, u64, u64);

fn windowed() -> impl Strategy<Value = Windowed> {
    let log = (permits(LOG_ENTRIES_MAX), spans()).prop_map(|(limit, window)| {
        (SlidingLog::new(limit, Micros::new(window)).unwrap().into(), window, limit)
    });
    let sliding = sliding_windows().prop_map(|(limit, window, buckets)| {
        let rule = SlidingWindow::new(limit, Micros::new(window), buckets).unwrap();
        (rule.into(), window, limit)
    });
    prop_oneof![1 => log, 3 => sliding]
}

#[test]
fn a_sliding_window_admits_its_limit_in_any_interval() {
    let name = "window bounds";
    let walks = windowed().prop_flat_map(move |(rule, window, limit)| {
        (Just((rule, window, limit)), walks(shape(name, limit, window)))
    });
    prove(name, walks, |((rule, window, limit), walk)| {
        in_any_interval(&passes(&rule, &walk), window, limit, &rule)
    });
}

#[test]
fn a_sliding_counter_admits_less_than_twice_its_limit_in_any_interval() {
    let name = "counter bounds";
    let rules = (permits((1 << 32) - 1), spans());
    let walks = rules.prop_flat_map(move |(limit, window)| {
        let shape = Shape { goes_back: false, ..shape(name, limit, window) };
        (Just((limit, window)), walks(shape))
    });
    prove(name, walks, |((limit, window), walk)| {
        let rule = SlidingCounter::new(limit, Micros::new(window)).unwrap().into();
        in_any_interval(&passes(&rule, &walk), window, 2 * limit - 1, &rule)
    });
}

/// Every interval `(t - window, t]` that ends with a grant holds at most `most`.
fn in_any_interval(passes: &[Pass], window: u64, most: u64, rule: &Rule) -> Proof {
    for (last, end) in passes.iter().enumerate() {
        let inside = passes[..=last].iter().rev().take_while(|pass| pass.at + window > end.at);
        let admitted: u64 = inside.map(|pass| pass.cost).sum();
        holds(admitted <= most, || format!("{admitted} until {}: {rule:?}", end.at))?;
    }
    Ok(())
}

#[test]
fn a_sliding_window_refuses_nothing_that_fits_a_window_and_a_bucket() {
    let name = "window slack";
    let walks = sliding_windows().prop_flat_map(move |rule| {
        let shape = Shape { goes_back: false, ..shape(name, rule.0, rule.1) };
        (Just(rule), walks(shape))
    });
    prove(name, walks, |((limit, window, buckets), walk)| {
        let longer = window + window.div_ceil(buckets);
        let rules = RuleSet::single(
            "rule",
            SlidingWindow::new(limit, Micros::new(window), buckets).unwrap(),
        );
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        let mut log: Vec<Pass> = Vec::new();
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let moment = Moment::new(Micros::new(now));
            let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
            let counted = log.iter().rev().take_while(|pass| pass.at + longer > now);
            let counted: u64 = counted.map(|pass| pass.cost).sum();
            match asked.verb {
                Verb::Check { cost } if !decision.allowed() => {
                    holds(counted + cost.get() > limit, || {
                        format!("{cost:?} at {now}: {rules:?}")
                    })?;
                }
                Verb::Peek { .. } => {}
                _ => log.push(Pass { at: now, cost: decision.granted(), held: false }),
            }
            clock.hear(&decision);
        }
        Ok(())
    });
}
