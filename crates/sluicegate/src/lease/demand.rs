//! How much a holder would like to have: from what is asked of a key here, and from its rules.
//!
//! Measured by a simulation of the protocol under twenty loads; each constant says what it is worth.

use sluicegate_kernel::lease::Span;
use sluicegate_kernel::{Micros, RuleSet};
use sluicegate_policy::LeaseBounds;

/// Asks that one message should be enough for: a call in 96 is 1 % of them, and 1.4 % with what is renewed
/// before it is spent.
pub(super) const ASKS_PER_CALL: u64 = 96;

/// What is held is enough for so long at least: at 10,000/s one call in 1,000 asks, and what a crash loses stays
/// small.
const HORIZON: Micros = Micros::from_millis(100);

/// What is held is not more than is asked for in this time: a slow key would hold it for nothing.
const HOLD_MAX: Micros = Micros::from_millis(1_500);

/// Of a window that slides, what is held is not more than is asked for in one of so many parts of it: it counts
/// against the next window too.
const SLIDING_PARTS: u64 = 50;

/// A lease lasts so long at least, unless its rules ask for less.
const TERM_MIN: Micros = Micros::from_millis(250);

/// Below so many permits a second, by 1,000, a lease is not worth its messages.
const RATE_MIN: u64 = 4_000;

/// Above so many permits a second, by 1,000, nothing is believed of the first few asks.
const FIRST_RATE_MAX: u64 = 400_000;

/// Demand is not worked out from less.
const MEASURED_MIN: Micros = Micros::from_millis(10);

/// Nor is a rate worked out of a shorter time, as a few asks that came together say nothing.
const RATE_OVER_MIN: Micros = Micros::from_millis(20);

/// What the rules and the policy let one holder have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The least limit of the rules.
    pub(super) limit: u64,
    /// Most permits of it.
    pub(super) share: u64,
    /// How long a lease lasts at most.
    pub(super) term: Micros,
    pub(super) span: Span,
}

/// What is asked of one key here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Permits a second, by 1,000.
    rate: u64,
    /// Permits an ask, by 1,000.
    cost: u64,
    /// What was asked since then.
    since: Micros,
    asks: u64,
    permits: u64,
}

impl Bounds {
    pub(super) fn new(rules: &RuleSet, span: Span, policy: LeaseBounds) -> Self {
        let LeaseBounds { share_percent, term, .. } = policy;
        let limits = rules.rules().iter().map(|named| named.rule.limit());
        let limit = limits.min().expect("a set has at least one rule");
        let share = (u128::from(limit) * u128::from(share_percent) / 100).min(u32::MAX.into());
        let share = u64::try_from(share).expect("it fits");
        let term = match span.sliding {
            Some(window) => term.min(Micros::new(window.get() * 2 / SLIDING_PARTS)),
            None => term,
        };
        Self { limit, share, term, span }
    }
}

impl Demand {
    /// Of a key that was asked for `permits` by `asks` within `over`.
    pub(super) fn begin(asks: u64, permits: u64, over: Micros, now: Micros) -> Self {
        let rate = by_1000(permits, over.max(RATE_OVER_MIN)).min(FIRST_RATE_MAX);
        Self { rate, cost: permits * 1_000 / asks.max(1), since: now, asks: 0, permits: 0 }
    }

    /// So many more were asked.
    pub(super) fn add(&mut self, asks: u64, permits: u64) {
        self.asks += asks;
        self.permits += permits;
    }

    /// Works out what is asked for now: it rises by half of the difference, and falls by three tenths of it.
    pub(super) fn measure(&mut self, now: Micros) {
        let over = now.since(self.since);
        if over <= MEASURED_MIN {
            return;
        }
        let rate = by_1000(self.permits, over);
        self.rate = match self.rate {
            0 => rate,
            old if rate > old => u64::midpoint(old, rate),
            old => (old * 7 + rate * 3) / 10,
        };
        if let Some(cost) = (self.permits * 1_000).checked_div(self.asks) {
            self.cost = u64::midpoint(self.cost, cost).max(1_000);
        }
        (self.since, self.asks, self.permits) = (now, 0, 0);
    }

    /// Whether it is too little for a lease.
    pub(super) const fn is_low(&self) -> bool {
        self.rate < RATE_MIN
    }

    /// Permits that one message should bring.
    pub(super) fn target(&self, bounds: &Bounds, now: Micros) -> u64 {
        let lately = by_1000(self.permits, now.since(self.since).max(RATE_OVER_MIN));
        let rate = self.rate.max(lately);
        let sliding = bounds.span.sliding.map(|window| window.get() / SLIDING_PARTS);
        self.per_call()
            .max(asked_in(rate, HORIZON))
            .min(asked_in(rate, HOLD_MAX))
            .min(sliding.map_or(u64::MAX, |part| asked_in(rate, Micros::new(part))))
            .min(bounds.share)
    }

    /// How long a lease of `target` permits shall last: twice as long as they are enough.
    pub(super) fn term(&self, bounds: &Bounds, target: u64) -> Micros {
        self.lasts(2 * target).max(TERM_MIN).min(bounds.term)
    }

    /// How long it takes until the permits of one message are asked for.
    pub(super) fn call_lasts(&self) -> Micros {
        self.lasts(self.per_call())
    }

    /// Permits below which more are asked for: those of 20 ms, so that the message is back before the last.
    pub(super) fn low_water(&self, target: u64) -> u64 {
        asked_in(self.rate, RATE_OVER_MIN).max(2).min(target / 4 + 1)
    }

    /// How long no ask means that none will come: 8 mean gaps.
    pub(super) fn idle_after(&self) -> Micros {
        let gaps = self.lasts(8 * self.cost / 1_000);
        gaps.clamp(Micros::from_millis(50), Micros::SECOND)
    }

    /// Permits a second, rounded up.
    pub(super) const fn rate(&self) -> u64 {
        self.rate.div_ceil(1_000)
    }

    /// Asks a second.
    pub(super) fn asks_per_s(&self) -> u64 {
        self.rate / self.cost.max(1)
    }

    fn per_call(&self) -> u64 {
        (ASKS_PER_CALL * self.cost).div_ceil(1_000)
    }

    fn lasts(&self, permits: u64) -> Micros {
        Micros::new(permits.saturating_mul(1_000_000_000) / self.rate.max(1_000))
    }
}

/// Permits a second, by 1,000.
fn by_1000(permits: u64, over: Micros) -> u64 {
    permits.saturating_mul(1_000_000_000) / over.get().max(1)
}

/// Permits that are asked for at `rate`, by 1,000, in `span`.
fn asked_in(rate: u64, span: Micros) -> u64 {
    let asked = u128::from(rate) * u128::from(span.get()) / 1_000_000_000;
    u64::try_from(asked).unwrap_or(u64::MAX)
}
