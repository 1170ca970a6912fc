//! Random rules, verbs and times, with many extremes.

use fastrand::Rng;
use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::limits::{
    BUCKETS_MAX, COST_MAX, HOLDERS_MAX, LOG_ENTRIES_MAX, PERIOD_MAX_US, PERMITS_MAX, SPAN_MAX_US,
};
use sluicegate_kernel::{
    Carry, Concurrency, Cost, FixedWindow, LeakyBucket, Micros, NamedRule, PermitId, ProcessId,
    Rate, Rule, RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup,
    TokenBucket, Verb, Window,
};
use sluicegate_store::redis::codec::INSTANT_MAX_US;

/// Returns a number from `min` to `max`, small ones as likely as large ones, the ends more than
/// others.
pub(crate) fn number(rng: &mut Rng, min: u64, max: u64) -> u64 {
    match rng.u32(0..10) {
        0 => min,
        1 => max,
        2 => rng.u64(min..=max),
        _ => {
            let bits = rng.u32(0..=(max - min).max(1).ilog2());
            min + rng.u64(0..1 << (bits + 1)).min(max - min)
        }
    }
}

fn rate(rng: &mut Rng) -> Rate {
    let periods = [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000, PERIOD_MAX_US];
    let period = match rng.bool() {
        true => periods[rng.usize(0..periods.len())],
        false => number(rng, 1, PERIOD_MAX_US),
    };
    let permits = if rng.bool() { rng.u64(1..=1_000) } else { number(rng, 1, PERMITS_MAX) };
    Rate::new(permits, Micros::new(period)).unwrap()
}

fn span(rng: &mut Rng, min: u64) -> Micros {
    let span = if rng.bool() { 1_000_000 } else { number(rng, min, PERIOD_MAX_US) };
    Micros::new(span.max(min))
}

fn permits(rng: &mut Rng, min: u64, max: u64) -> u64 {
    if rng.bool() { rng.u64(min..=max.min(20)) } else { number(rng, min, max) }
}

/// Returns a rule; one that hands out permits if `holds_permits`. The limit of a window comes from
/// `limits`.
fn rule(rng: &mut Rng, limits: &mut Rng, holds_permits: bool) -> Rule {
    if holds_permits {
        let (limit, queue) = (permits(rng, 1, HOLDERS_MAX), number(rng, 0, HOLDERS_MAX));
        return Concurrency::new(limit, span(rng, 1), queue).unwrap().into();
    }
    match rng.u32(0..10) {
        0 | 1 => {
            let burst = permits(rng, 1, PERMITS_MAX);
            let bucket = TokenBucket::new(rate(rng), burst).unwrap();
            let bucket = match rng.u32(0..3) {
                0 => bucket.with_initial(number(rng, 0, burst)).unwrap(),
                _ => bucket,
            };
            if rng.u32(0..4) == 0 { bucket.refilled_by_interval().into() } else { bucket.into() }
        }
        2 => {
            let burst = permits(rng, 0, PERMITS_MAX);
            let delay = match rng.u32(0..3) {
                0 => Delay::None,
                1 => Delay::Above(0),
                _ => Delay::Above(number(rng, 0, burst.max(1)).min(burst)),
            };
            LeakyBucket::new(rate(rng), burst, delay).unwrap().into()
        }
        3 => SmoothBursty::new(rate(rng), span(rng, 1)).unwrap().into(),
        4 => {
            let cold = [1.000_001, 2.0, 3.0, 1_000.0][rng.usize(0..4)];
            SmoothWarmup::new(rate(rng), span(rng, 1), cold).unwrap().into()
        }
        5 | 6 => {
            let kind = match rng.u32(0..3) {
                0 => WindowKind::Epoch(span(rng, 1)),
                1 => WindowKind::First(span(rng, 1)),
                _ => {
                    let units = [CalendarUnit::Day, CalendarUnit::Month];
                    WindowKind::Calendar(units[rng.usize(0..2)], "UTC".into())
                }
            };
            FixedWindow::new(permits(limits, 1, PERMITS_MAX), kind).unwrap().into()
        }
        7 => {
            let most = if rng.u32(0..50) == 0 { BUCKETS_MAX } else { 12 };
            let buckets = number(rng, 1, most);
            let limit = permits(limits, 1, PERMITS_MAX);
            SlidingWindow::new(limit, span(rng, buckets), buckets).unwrap().into()
        }
        8 => {
            let limit = permits(limits, 1, PERMITS_MAX - 1);
            SlidingCounter::new(limit, span(rng, 1)).unwrap().into()
        }
        _ => SlidingLog::new(permits(limits, 1, LOG_ENTRIES_MAX), span(rng, 1)).unwrap().into(),
    }
}

/// Returns some rules under some of the same few names.
pub(crate) fn rules(rng: &mut Rng) -> RuleSet {
    alike(rng.u64(..), rng)
}

/// Returns rules that `seed` determines except for the limits of windows and their `carry`.
pub(crate) fn alike(seed: u64, limits: &mut Rng) -> RuleSet {
    let rng = &mut Rng::with_seed(seed);
    let count = if rng.bool() { 1 } else { rng.usize(1..=8) };
    let holds_permits = rng.u32(0..6) == 0;
    let mut names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    rng.shuffle(&mut names[..count.max(2)]);
    let named = (0..count).map(|place| {
        let holds_permits = holds_permits && (place == 0 || rng.u32(0..4) == 0);
        NamedRule { name: names[place].into(), rule: rule(rng, limits, holds_permits) }
    });
    let named = named.collect();
    let carry = [Carry::Usage, Carry::Proportional, Carry::Reset][limits.usize(0..3)];
    RuleSet::new(named).unwrap().with_carry(carry)
}

/// Returns the window around `now` of every rule with a calendar: days, or months of 30 days.
pub(crate) fn windows(rules: &RuleSet, now: u64) -> Vec<Option<Window>> {
    let window = |named: &NamedRule| {
        let days = match named.rule.calendar()?.0 {
            CalendarUnit::Day => 1,
            _ => 30,
        };
        let length = days * 86_400_000_000;
        let start = now - now % length;
        Some(Window { start: Micros::new(start), end: Micros::new(start + length) })
    };
    rules.rules().iter().map(window).collect()
}

/// Returns a verb for rules that remember many requests or permits: mostly small costs, and 200 ids.
pub(crate) fn verb_of_many(rng: &mut Rng, rules: &RuleSet) -> Verb {
    let most = if rng.u32(0..20) == 0 { 150 } else { 3 };
    let cost = Cost::new(rng.u64(1..=most)).unwrap();
    let permit = PermitId(rng.u128(0..200));
    let process = ProcessId(rng.u64(0..20));
    let holds_permits = rules.rules()[0].rule.holds_permits();
    match rng.u32(0..20) {
        0 | 1 => Verb::Peek { cost },
        2 | 3 if holds_permits => Verb::Release { permit },
        4 | 5 if holds_permits => Verb::Renew { permit },
        6 if holds_permits => Verb::Leave { permit, process },
        7..=13 if holds_permits => Verb::Wait { cost, permit, process },
        2 => Verb::Refund { cost },
        3 if !holds_permits => Verb::AtMost { cost },
        _ if holds_permits => Verb::Acquire { cost, permit },
        _ => Verb::Check { cost },
    }
}

fn cost(rng: &mut Rng, rules: &RuleSet) -> Cost {
    let limit = rules.rules()[rng.usize(0..rules.rules().len())].rule.limit().min(COST_MAX);
    let cost = match rng.u32(0..8) {
        0..=2 => 1,
        3 => limit,
        4 => limit + 1,
        5 => number(rng, 1, COST_MAX),
        _ => number(rng, 1, limit.max(2)),
    };
    Cost::new(cost.clamp(1, COST_MAX)).unwrap()
}

/// Returns a verb; most are ones that `rules` support.
pub(crate) fn verb(rng: &mut Rng, rules: &RuleSet) -> Verb {
    let holds_permits = rules.rules().iter().any(|named| named.rule.holds_permits());
    let (cost, permit) = (cost(rng, rules), PermitId(rng.u128(0..6)));
    let process = ProcessId(rng.u64(0..3));
    let odd = rng.u32(0..40) == 0;
    match (rng.u32(0..20), holds_permits != odd) {
        (0, _) => Verb::Reset,
        (1..=2, _) => Verb::Refund { cost },
        (3..=4, _) => Verb::Peek { cost },
        (5..=7, true) => Verb::Release { permit },
        (8..=9, true) => Verb::Renew { permit },
        (10, true) => Verb::Leave { permit, process },
        (11..=15, true) => Verb::Wait { cost, permit, process },
        (_, true) => Verb::Acquire { cost, permit },
        (5..=8, false) => {
            let waits = [0, rng.u64(0..10_000_000), SPAN_MAX_US, u64::MAX];
            Verb::Reserve { cost, max_wait: Micros::new(waits[rng.usize(0..4)]) }
        }
        (9..=10, false) => Verb::AtMost { cost },
        _ => Verb::Check { cost },
    }
}

/// Returns the instant at which a history begins.
pub(crate) fn start(rng: &mut Rng) -> u64 {
    match rng.u32(0..5) {
        0 => 0,
        1 => INSTANT_MAX_US - rng.u64(0..1 << 40),
        2 => rng.u64(0..INSTANT_MAX_US),
        _ => 1_770_000_000_000_000,
    }
}

/// Returns the next instant: the same, a little later, at the hint of the last answer, far ahead, or
/// back.
pub(crate) fn next(rng: &mut Rng, now: u64, hint: u64, goes_back: bool) -> u64 {
    let later = match rng.u32(0..24) {
        0..=5 => now,
        6..=7 => now + 1,
        8..=12 => (now + hint).saturating_add_signed(rng.i64(-1..=1)).max(now),
        13..=16 => now + rng.u64(0..=hint.clamp(1, 1 << 50)),
        17..=20 => now + rng.u64(0..2_000_000),
        21 => now + number(rng, 1, 1 << 46),
        _ if !goes_back => now + 1_000,
        22 => now.saturating_sub(number(rng, 1, 1 << 50)),
        _ => now.saturating_sub(rng.u64(0..=hint.clamp(1, 1 << 50))),
    };
    later.min(INSTANT_MAX_US)
}
