//! Guava's two limiters beside their description in rationals.
//!
//! The kernel counts in doubles, so waits may differ in the last microsecond where the exact value is within rounding
//! of a whole one, and by a part in 10^9 where they are long. The moment at the end of a wait is still exact: `honest`
//! proves it.

use num_traits::ToPrimitive;
use proptest::prelude::*;
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::{
    Decision, Micros, Moment, RuleSet, SmoothBursty, SmoothWarmup, States, Verb,
};

use crate::exact::oracle::smooth::Smooth;
use crate::exact::oracle::{Q, q};
use crate::exact::rules::{rate, scale};
use crate::exact::walk::{Clock, Proof, Shape, Walk, holds, prove, steps, walks};

/// Rates and spans at which doubles still hold a microsecond: a day and a million permits.
fn flows() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        4 => (1_u64..=20, 1_u64..=20),
        4 => (1_u64..=1_000, Just(1_000_000)),
        2 => (1_u64..=1_000_000_000, Just(1_000_000)),
        1 => Just((999_983, 1_000_000)),
        1 => Just((7, 1_000_000)),
        1 => Just((1, 3_000_000)),
        1 => (1_u64..=1_000, Just(86_400_000_000)),
    ]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(1_000_000), 2 => 1_000_u64..=10_000_000, 1 => Just(3_600_000_000)]
}

fn shape(name: &str, flow: (u64, u64)) -> Shape {
    let limit = 1_000;
    Shape {
        limit,
        scale_us: scale(flow, 4),
        goes_back: false,
        gives_back: true,
        steps: steps(name),
    }
}

/// Costs of at most a million, so that a debt stays a span that a double counts by the µs.
fn modest(verb: &Verb) -> Verb {
    let modest = |cost: sluicegate_kernel::Cost| {
        sluicegate_kernel::Cost::new(cost.get().min(1_000_000)).expect("smaller than a cost")
    };
    match *verb {
        Verb::Check { cost } => Verb::Check { cost: modest(cost) },
        Verb::Reserve { cost, max_wait } => Verb::Reserve { cost: modest(cost), max_wait },
        Verb::AtMost { cost } => Verb::AtMost { cost: modest(cost) },
        Verb::Refund { cost } => Verb::Refund { cost: modest(cost) },
        ref other => other.clone(),
    }
}

#[test]
fn smooth_bursty_waits_as_guava_describes() {
    let name = "smooth_bursty";
    let walks = (flows(), time())
        .prop_flat_map(move |(flow, span)| (Just((flow, span)), walks(shape(name, flow))));
    prove(name, walks, |((flow, max_burst), walk)| {
        let rule = SmoothBursty::new(rate(flow), Micros::new(max_burst)).unwrap();
        let fresh = |now| Smooth::bursty(flow, max_burst, now);
        agree(&RuleSet::single("rule", rule), fresh, &walk)
    });
}

#[test]
fn smooth_warmup_waits_as_guava_describes() {
    let name = "smooth_warmup";
    let factors = prop_oneof![2 => Just(3.0), 1 => 1.01_f64..=20.0];
    // Where a warm-up is shorter than a permit takes, the slope makes a nanosecond count for more.
    let rules = (flows(), time(), factors)
        .prop_filter("a permit fits into the warm-up", |((permits, period), warmup, _)| {
            warmup * permits >= *period
        });
    let walks = rules.prop_flat_map(move |(flow, span, factor)| {
        (Just((flow, span, factor)), walks(shape(name, flow)))
    });
    prove(name, walks, |((flow, warmup, factor), walk)| {
        let rule = SmoothWarmup::new(rate(flow), Micros::new(warmup), factor).unwrap();
        let fresh = |now| Smooth::warmup(flow, warmup, factor, now);
        agree(&RuleSet::single("rule", rule), fresh, &walk)
    });
}

/// A request: µs since the one before, permits, and the longest wait in µs.
type Asked = (u64, u64, u64);

/// Checks and reservations: at times at which a permit comes, and at any others.
fn asked() -> impl Strategy<Value = Asked> {
    let after = prop_oneof![
        Just(0),
        (1_u64..=8).prop_map(|halves| halves * 500_000),
        0_u64..=5_000_000,
        0_u64..=5_000
    ];
    let patience = prop_oneof![2 => Just(0), 1 => 0_u64..=4_000_000];
    (after, 1_u64..=3, patience)
}

/// Checks waits against whole numbers of units: a permit weighs a period, and a µs brings the permits.
fn passes_as_whole_numbers_say((permits, period): (u64, u64), asked: &[Asked]) -> Proof {
    let whole = |number: u64| i128::from(number);
    let max_burst = 1_000_000;
    let rule = SmoothBursty::new(rate((permits, period)), Micros::new(max_burst)).unwrap();
    let (rules, mut states) = (RuleSet::single("rule", rule), States::default());
    let (mut now, mut units, mut is_touched) = (0, 0, false);
    for (step, (after, cost, max_wait)) in asked.iter().copied().enumerate() {
        now += after;
        if is_touched {
            units = (units + whole(after * permits)).min(whole(permits * max_burst));
        }
        let wait = (-units).max(0).div_euclid(whole(permits));
        let wait = wait + i128::from((-units).max(0) % whole(permits) > 0);
        let cost = sluicegate_kernel::Cost::new(cost).unwrap();
        let verb = Verb::Reserve { cost, max_wait: Micros::new(max_wait) };
        let moment = Moment::new(Micros::new(now));
        let decision = rules.decide(&mut states, &verb, &moment).unwrap().decision;
        let context = || format!("step {step} at {now}: {verb:?} of {rules:?}: {decision:?}");
        let passes = wait <= whole(max_wait);
        holds(decision.allowed() == passes, || format!("{} wait {wait}", context()))?;
        if passes {
            holds(whole(decision.wait().get()) == wait, || format!("{} {wait}", context()))?;
            units -= whole(cost.get()) * whole(period);
            is_touched = true;
        }
    }
    Ok(())
}

#[test]
fn smooth_bursty_passes_when_the_balance_is_exactly_0() {
    // A check at 0, a reservation at 4,126 µs, and a check at 2 s, by when both are paid.
    passes_as_whole_numbers_say(
        (1, 1_000_000),
        &[(0, 1, 0), (4_126, 1, 2_000_000), (1_995_873, 1, 0), (1, 1, 0)],
    )
    .unwrap();
}

#[test]
fn smooth_bursty_counts_as_exactly_as_whole_numbers() {
    let name = "smooth_bursty in units";
    let flows = prop_oneof![
        Just((1, 1_000_000)),
        Just((3, 1_000_000)),
        (1_u64..=1_000, 1_u64..=2_000_000),
        Just((7, 3_600_000_000)),
        Just((999_983, 1_000_000)),
    ];
    let asked = proptest::collection::vec(asked(), 1..=steps(name));
    prove(name, (flows, asked), |(flow, asked)| passes_as_whole_numbers_say(flow, &asked));
}

fn agree(rules: &RuleSet, fresh: impl Fn(u64) -> Smooth, walk: &Walk) -> Proof {
    let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
    let mut touched: Option<Smooth> = None;
    for (step, asked) in walk.steps.iter().enumerate() {
        let (now, verb) = (clock.go(asked.time), modest(&asked.verb));
        let moment = Moment::new(Micros::new(now));
        let decision = rules.decide(&mut states, &verb, &moment).unwrap().decision;
        let mut oracle = touched.clone().unwrap_or_else(|| fresh(now));
        oracle.resync(now);
        let context = || format!("step {step} at {now}: {verb:?} of {rules:?}: {decision:?}");
        match verb {
            Verb::Reset => touched = None,
            Verb::Refund { cost } if touched.is_some() => {
                oracle.give_back(cost.get(), now);
                touched = Some(oracle.clone());
            }
            Verb::Refund { .. } => {}
            Verb::Reserve { max_wait, .. } => {
                agrees_on_wait(&decision, &oracle.wait(now), max_wait.get(), context)?;
            }
            _ => agrees_on_wait(&decision, &oracle.wait(now), 0, context)?,
        }
        let takes = !matches!(verb, Verb::Peek { .. } | Verb::Refund { .. } | Verb::Reset);
        if takes && decision.allowed() {
            oracle.take(decision.granted());
            touched = Some(oracle.clone());
        }
        if touched.is_some() {
            let reset = oracle.reset_after(now).get();
            holds(near(decision.reset_after.get(), &q(reset)), || {
                format!("{} reset {reset}", context())
            })?;
            let stored = &oracle.stored;
            holds(decision.remaining == 0 || near(decision.remaining, stored), || {
                format!("{} stored {stored}", context())
            })?;
        }
        clock.hear(&decision);
    }
    Ok(())
}

/// Allowed with the oracle's wait, or refused with what is left of it above the patience.
fn agrees_on_wait(
    decision: &Decision,
    wait: &Q,
    max_wait: u64,
    context: impl Fn() -> String,
) -> Proof {
    let given = if decision.allowed() {
        decision.wait().get()
    } else {
        max_wait.saturating_add(decision.retry_after().map_or(u64::MAX, Micros::get))
    };
    let wait = wait.clone().min(q(SPAN_MAX_US));
    holds(near(given, &wait), || format!("{} wait {wait}", context()))
}

/// Equal but for rounding: one more or less, or a part in 10^9.
fn near(given: u64, exact: &Q) -> bool {
    let (given, exact) = (given as f64, exact.to_f64().unwrap_or(f64::INFINITY));
    (given - exact).abs() <= 1.0 + exact.abs() * 1e-9
}
