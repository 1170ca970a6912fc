//! The rate in the long run: 10^9 permits, 10^7 decisions a rate, never idle.
//!
//! `SLUICEGATE_SOAK=1000000000` takes so many decisions of one permit each, at the first of the rates
//! (`cargo xtask soak`).

use sluicegate_kernel::algorithm::Delay;
use sluicegate_kernel::{
    Cost, LeakyBucket, Micros, Moment, Outcome, Rule, RuleSet, SmoothBursty, SmoothWarmup, States,
    TokenBucket, Verb,
};

use crate::exact::rules::rate;

/// 7/s, one in 3 s, a prime number a second, a thousand a microsecond.
const RATES: [(u64, u64); 4] = [(7, 1_000_000), (1, 3_000_000), (999_983, 1_000_000), (1_000, 1)];

/// The rates to run at, the decisions at each, and the permits that each of them takes.
fn effort() -> (&'static [(u64, u64)], u64, u64) {
    match std::env::var("SLUICEGATE_SOAK") {
        Ok(decisions) => (&RATES[..1], decisions.parse().unwrap(), 1),
        Err(_) => (&RATES, 10_000_000, 250),
    }
}

/// Permits granted, and the µs that it took.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    permits: u64,
    us: u64,
}

/// Repeats each request exactly at its retry, so that nothing is ever left unused for a µs.
fn greedily(rule: Rule, decisions: u64, cost: u64) -> (Run, Run) {
    // A cold limiter stores idle time and hands it out no faster than new permits, so it is kept in debt: each request
    // is booked 1 µs before the one in front passes.
    let books = matches!(rule, Rule::SmoothWarmup(_));
    let rules = RuleSet::single("rule", rule);
    let cost = Cost::new(cost).unwrap();
    let verb =
        if books { Verb::Reserve { cost, max_wait: Micros::MAX } } else { Verb::Check { cost } };
    let (mut states, mut now, mut run) = (States::default(), 0, Run::default());
    let mut settled = None;
    for _ in 0..decisions {
        let moment = Moment::new(Micros::new(now));
        let decision = rules.decide(&mut states, &verb, &moment).unwrap().decision;
        if let Outcome::Allow { granted, wait } = decision.outcome {
            run = Run { permits: run.permits + granted, us: now + wait.get() };
        }
        let wait = decision.wait().get().saturating_sub(1);
        now += wait + decision.retry_after().expect("the cost fits").get();
        if settled.is_none() && run.permits >= decisions * cost.get() / 20 {
            settled = Some(run);
        }
    }
    let start = settled.expect("more than a twentieth of the decisions grant");
    (run, Run { permits: run.permits - start.permits, us: run.us - start.us })
}

/// `rule_at` makes the rule for a rate with the burst given; `head_start` of it passes at once.
fn check(rule_at: impl Fn((u64, u64), u64) -> Rule, head_start: impl Fn(u64) -> u64) {
    let (rates, decisions, cost) = effort();
    for &(permits, period) in rates {
        // Two requests, or one and what a µs brings: a smaller bucket spills over between two looks.
        let burst = cost + cost.max(permits / period);
        let rule = rule_at((permits, period), burst);
        let (whole, settled) = greedily(rule.clone(), decisions, cost);
        let flowed = u128::from(whole.us) * u128::from(permits) / u128::from(period);
        let most = u128::from(head_start(burst)) + flowed;
        assert!(u128::from(whole.permits) <= most, "{whole:?} is above {most}: {rule:?}");
        let expected = settled.us as f64 * permits as f64 / period as f64;
        let part = settled.permits as f64 / expected;
        println!("{permits}/{period} µs: {whole:?}, {:+.6} ppm: {rule:?}", (part - 1.0) * 1e6);
        assert!((part - 1.0).abs() < 1e-6, "{part} of the rate: {settled:?} of {rule:?}");
    }
}

#[test]
fn a_token_bucket_keeps_its_rate_for_a_billion_permits() {
    check(|flow, burst| TokenBucket::new(rate(flow), burst).unwrap().into(), |burst| burst);
}

#[test]
fn a_leaky_bucket_keeps_its_rate_for_a_billion_permits() {
    let leaky = |flow, burst| LeakyBucket::new(rate(flow), burst - 1, Delay::None).unwrap().into();
    check(leaky, |burst| burst);
}

#[test]
fn smooth_bursty_keeps_its_rate_for_a_billion_permits() {
    let bursty = |flow, _| SmoothBursty::new(rate(flow), Micros::SECOND).unwrap().into();
    check(bursty, |_| effort().2);
}

#[test]
fn smooth_warmup_keeps_its_rate_for_a_billion_permits() {
    let warmup = Micros::from_millis(1);
    let cold = |flow, _| SmoothWarmup::new(rate(flow), warmup, 3.0).unwrap().into();
    check(cold, |_| effort().2);
}
