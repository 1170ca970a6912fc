//! The endurance of rules: how long they admit requests that come faster than the limit.
//!
//! Of a token bucket with the burst b and the rate r, requests of the rate M find it empty after b / (M − r). Here the rules
//! themselves decide such requests in virtual time, so that it holds for each algorithm, for several rules together, and
//! for windows of calendars.

use sluicegate_kernel::{Cost, Micros, Moment, Rate, States, Verb};

use crate::Rules;

/// Most decisions of single rules in one calculation. They take 1 ms for most rules, and 80 ms for windows of 1,000
/// buckets.
const DECISIONS_MAX: usize = 20_000;

/// Longest load that is calculated: ten years.
const LASTS_MAX: Micros = Micros::from_secs(3_653 * 24 * 60 * 60);

/// Parts of the smallest limit that are decided one by one: larger limits take several permits in one decision.
const PARTS: u64 = 1_000;

/// The permits that rules admit of a steady load, from a full budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// Permits that were admitted: before the first refusal, or in the whole calculation.
    pub admitted: u64,
    /// Time until the first refusal, or until the end of the calculation.
    pub lasts: Micros,
    /// Time for which the last request that was admitted is delayed.
    pub delay: Micros,
    /// The first refusal; `None`: there was none among 20,000 decisions, or in ten years.
    pub over: Option<Over>,
}

/// The first refusal of a steady load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The place of the rule that refused.
    pub rule: usize,
    /// Time without requests after which the budget of that rule is full again.
    pub full_after: Micros,
}

impl Rules {
    /// Decides requests of one permit that come at `load`, evenly spaced, from `now`, on a key that was never seen.
    /// Limits above 1,000 are calculated to a thousandth, smaller ones exactly. `None`: a rule holds permits by id, and has
    /// no rate.
    pub fn endurance(&self, load: Rate, now: Micros) -> Option<Endurance> {
        let set = self.set();
        let limit = set.rules().iter().map(|named| named.rule.limit()).min().unwrap_or(1);
        let step_max =
            (LASTS_MAX.get() / PARTS / load.period().get()).saturating_mul(load.permits());
        let mut step = (limit / PARTS).min(step_max).max(1);
        let (mut admitted, mut delay, mut states) = (0, Micros::ZERO, States::default());
        for _ in 0..DECISIONS_MAX / set.rules().len() {
            let lasts = time_of(admitted, load);
            if lasts > LASTS_MAX {
                break;
            }
            let windows = self.windows(now.plus(lasts));
            let at = Moment::with_windows(now.plus(lasts), windows.as_slice());
            let cost = Cost::new(step).ok()?;
            let verdict = set.decide(&mut states, &Verb::Check { cost }, &at).ok()?;
            if verdict.decision.allowed() {
                admitted += step;
                delay = verdict.decision.wait();
            } else if step > 1 {
                step /= 2;
            } else {
                let full_after = verdict.decision.reset_after;
                let over = Some(Over { rule: verdict.rule, full_after });
                return Some(Endurance { admitted, lasts, delay, over });
            }
        }
        Some(Endurance { admitted, lasts: time_of(admitted, load), delay, over: None })
    }
}

/// The instant of a request after `admitted` others, rounded down to a microsecond.
fn time_of(admitted: u64, load: Rate) -> Micros {
    let us = u128::from(admitted) * u128::from(load.period().get()) / u128::from(load.permits());
    Micros::new(u64::try_from(us).unwrap_or(u64::MAX))
}
