//! The answers of a rule when arithmetic is free: the semantics of each algorithm once more, in big
//! rationals and plain lists, with every verb spelled out here and not taken from the kernel.

pub(crate) mod buckets;
pub(crate) mod permits;
pub(crate) mod smooth;
pub(crate) mod windows;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::{Decision, Micros, Outcome, Retry, Verb};

/// An exact number.
pub(crate) type Q = BigRational;

pub(crate) fn q(n: u64) -> Q {
    Q::from_integer(BigInt::from(n))
}

pub(crate) fn ratio(numerator: u64, denominator: u64) -> Q {
    Q::new(BigInt::from(numerator), BigInt::from(denominator))
}

/// `x`, or 0 if it is negative.
pub(crate) fn positive(x: Q) -> Q {
    if x.is_negative() { Q::zero() } else { x }
}

/// `x` rounded down; below zero, zero.
pub(crate) fn floor(x: &Q) -> u64 {
    if x.is_negative() { 0 } else { x.floor().to_integer().to_u64().unwrap_or(u64::MAX) }
}

/// `x` rounded up; below zero, zero.
pub(crate) fn ceil(x: &Q) -> u64 {
    if x.is_negative() { 0 } else { x.ceil().to_integer().to_u64().unwrap_or(u64::MAX) }
}

/// A span of `us`, as long as a decision reports one.
pub(crate) fn span(us: u64) -> Micros {
    Micros::new(us.min(SPAN_MAX_US))
}

/// One key's budget under one rule, decided naively.
///
/// `now` is the time of the clock. If it is earlier than before, [`went_back`](Self::went_back)
/// comes first: nothing is added to the budget and nothing stays taken for ever.
pub(crate) trait Oracle: Clone {
    /// The largest cost that ever passes at once.
    fn limit(&self) -> u64;
    /// The clock may have gone back to `now`.
    fn went_back(&mut self, now: u64);
    /// Decides whether `cost` passes; `max_wait` is `None` for a plain check.
    fn ask(&self, cost: u64, max_wait: Option<u64>, now: u64) -> Outcome;
    /// Takes `cost`, which passed.
    fn take(&mut self, cost: u64, now: u64);
    /// The first request of a key may be refused; a budget that starts below full fills from then.
    fn refused(&mut self, _now: u64) {}
    /// Gives `permits` back, never above full, and returns how many; a part counts as one.
    fn give_back(&mut self, permits: u64, now: u64) -> u64;
    /// Permits left.
    fn remaining(&self, now: u64) -> u64;
    /// The largest cost that passes at once, where that is not what is left.
    fn available(&self, now: u64) -> u64 {
        self.remaining(now)
    }
    /// The time until the budget is full again.
    fn reset_after(&self, now: u64) -> Micros;
    /// Forgets the key, as if it had never been seen.
    fn forget(&mut self);
}

/// Returns the answer of `oracle` to `verb`, which changes it as the verb does.
pub(crate) fn answer(oracle: &mut impl Oracle, verb: &Verb, now: u64) -> Decision {
    if let Verb::Peek { cost } = verb {
        let mut seen = oracle.clone();
        seen.went_back(now);
        let outcome = seen.ask(cost.get(), None, now);
        return report(&seen, outcome, now);
    }
    oracle.went_back(now);
    let outcome = match *verb {
        Verb::Check { cost } => ask_and_take(oracle, cost.get(), None, now),
        Verb::Reserve { cost, max_wait } => {
            ask_and_take(oracle, cost.get(), Some(max_wait.get()), now)
        }
        Verb::AtMost { cost } => {
            let cost = cost.get().min(oracle.available(now)).max(1);
            ask_and_take(oracle, cost, None, now)
        }
        Verb::Refund { cost } => {
            let granted = oracle.give_back(cost.get(), now);
            Outcome::Allow { granted, wait: Micros::ZERO }
        }
        Verb::Reset => {
            oracle.forget();
            Outcome::Allow { granted: 0, wait: Micros::ZERO }
        }
        Verb::Peek { .. }
        | Verb::Acquire { .. }
        | Verb::Wait { .. }
        | Verb::Leave { .. }
        | Verb::Release { .. }
        | Verb::Renew { .. } => {
            unreachable!("peek is answered above; permits have an oracle of their own")
        }
    };
    report(oracle, outcome, now)
}

fn ask_and_take(oracle: &mut impl Oracle, cost: u64, max_wait: Option<u64>, now: u64) -> Outcome {
    let outcome = oracle.ask(cost, max_wait, now);
    match outcome {
        Outcome::Allow { granted, .. } => oracle.take(granted, now),
        Outcome::Deny { .. } => oracle.refused(now),
    }
    outcome
}

fn report(oracle: &impl Oracle, outcome: Outcome, now: u64) -> Decision {
    Decision {
        outcome,
        limit: oracle.limit(),
        remaining: oracle.remaining(now),
        reset_after: oracle.reset_after(now),
    }
}

pub(crate) fn pass(granted: u64) -> Outcome {
    Outcome::Allow { granted, wait: Micros::ZERO }
}

pub(crate) fn never() -> Outcome {
    Outcome::Deny { retry: Retry::Never }
}

pub(crate) fn retry(us: u64) -> Outcome {
    Outcome::Deny { retry: Retry::After(span(us)) }
}
