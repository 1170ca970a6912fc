//! The demand of a holder: the permits that it should have, by the requests for a key and by its rules.
//!
//! Measured by a simulation of the protocol under twenty loads; each constant states its effect.

use sluicegate_kernel::lease::LeasingSpan;
use sluicegate_kernel::{Micros, RuleSet};
use sluicegate_policy::LeaseBounds;

/// Requests that one message should serve: a call in 96 is 1 % of them, and 1.4 % with permits that are renewed
/// before they are spent.
pub(super) const ASKS_PER_CALL: u64 = 96;

/// Shortest time for which the permits held should last: at 10,000/s one request in 1,000 calls the store, and a
/// crash loses few.
const HORIZON: Micros = Micros::from_millis(100);

/// Longest time for which the permits held should last: a slow key would hold more in vain.
const HOLD_MAX: Micros = Micros::from_millis(1_500);

/// In a window that slides, the permits held last for one of this many parts of it at most: they count
/// against the next window too.
const SLIDING_PARTS: u64 = 50;

/// Shortest term of a lease, unless its rules require a shorter one.
const TERM_MIN: Micros = Micros::from_millis(250);

/// Lowest rate that is worth a lease's messages, in thousandths of a permit per second.
const RATE_MIN: u64 = 4_000;

/// Highest rate that is concluded from the first few requests, in thousandths of a permit per second.
const FIRST_RATE_MAX: u64 = 400_000;

/// Shortest time from which demand is measured.
const MEASURED_MIN: Micros = Micros::from_millis(10);

/// Shortest time from which a rate is computed: a few requests that came together prove nothing.
const RATE_OVER_MIN: Micros = Micros::from_millis(20);

/// The limits that the rules and the policy set for one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The least limit of the rules.
    pub(super) limit: u64,
    /// Most permits of that limit for one holder.
    pub(super) share: u64,
    /// Longest term of a lease.
    pub(super) term: Micros,
    pub(super) span: LeasingSpan,
}

/// The demand for one key here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Thousandths of a permit per second.
    rate: u64,
    /// Thousandths of a permit per request.
    cost: u64,
    /// Start of the measurement of `asks` and `permits`.
    since: Micros,
    asks: u64,
    permits: u64,
}

impl Bounds {
    pub(super) fn new(rules: &RuleSet, span: LeasingSpan, policy: LeaseBounds) -> Self {
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
    /// Returns the demand of a key for which `asks` requests of `permits` in all came within `over`.
    pub(super) fn begin(asks: u64, permits: u64, over: Micros, now: Micros) -> Self {
        let rate = by_1000(permits, over.max(RATE_OVER_MIN)).min(FIRST_RATE_MAX);
        Self { rate, cost: permits * 1_000 / asks.max(1), since: now, asks: 0, permits: 0 }
    }

    /// Adds requests and their permits to the measurement.
    pub(super) fn add(&mut self, asks: u64, permits: u64) {
        self.asks += asks;
        self.permits += permits;
    }

    /// Updates the demand from the measurement: it rises by half of the difference, and falls by three tenths of it.
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

    /// Returns whether it is too low for a lease.
    pub(super) const fn is_low(&self) -> bool {
        self.rate < RATE_MIN
    }

    /// The number of permits that one message should bring.
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

    /// The term of a lease of `target` permits: twice as long as they last.
    pub(super) fn term(&self, bounds: &Bounds, target: u64) -> Micros {
        self.lasts(2 * target).max(TERM_MIN).min(bounds.term)
    }

    /// The time for which the permits of one message last.
    pub(super) fn call_lasts(&self) -> Micros {
        self.lasts(self.per_call())
    }

    /// The number of permits below which more are requested: those of 20 ms, so that the answer comes before the last.
    pub(super) fn low_water(&self, target: u64) -> u64 {
        asked_in(self.rate, RATE_OVER_MIN).max(2).min(target / 4 + 1)
    }

    /// The time without a request after which none is expected: 8 mean gaps, 50 ms to 1 s.
    pub(super) fn idle_after(&self) -> Micros {
        let gaps = self.lasts(8 * self.cost / 1_000);
        gaps.clamp(Micros::from_millis(50), Micros::SECOND)
    }

    /// The rate in permits per second, rounded up.
    pub(super) const fn rate(&self) -> u64 {
        self.rate.div_ceil(1_000)
    }

    /// The rate in requests per second.
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

/// Returns a rate in thousandths of a permit per second.
fn by_1000(permits: u64, over: Micros) -> u64 {
    permits.saturating_mul(1_000_000_000) / over.get().max(1)
}

/// Returns the permits that are requested in `span` at `rate`, thousandths of a permit per second.
fn asked_in(rate: u64, span: Micros) -> u64 {
    let requested = u128::from(rate) * u128::from(span.get()) / 1_000_000_000;
    u64::try_from(requested).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::SECOND;

    fn bounds() -> Bounds {
        let span = LeasingSpan { least: SECOND, in_steps: false, sliding: None };
        Bounds { limit: 100_000, share: 50_000, term: Micros::from_secs(2), span }
    }

    #[test]
    fn demand_is_measured_from_all_requests_since_the_last_measurement() {
        let mut demand = Demand::begin(10, 10, SECOND, Micros::ZERO);
        assert_eq!((demand.rate(), demand.cost), (10, 1_000));
        demand.add(20, 60);
        demand.add(30, 90);
        demand.measure(SECOND);
        // 150 permits of 50 requests in the second: half way from 10 to 150, and from 1 to 3 for each request.
        assert_eq!((demand.rate(), demand.cost, demand.asks_per_s()), (80, 2_000, 40));
        demand.measure(Micros::from_secs(2));
        assert_eq!((demand.rate(), demand.cost), (56, 2_000), "it falls by three tenths");
    }

    #[test]
    fn a_rate_is_rounded_up() {
        let demand = Demand::begin(1, 1, Micros::from_millis(300), Micros::ZERO);
        assert_eq!(demand.rate(), 4);
    }

    #[test]
    fn a_term_is_twice_the_time_that_its_permits_last() {
        let demand = Demand::begin(100, 100, SECOND, Micros::ZERO);
        assert_eq!(demand.term(&bounds(), 40), Micros::from_millis(800));
        assert_eq!(demand.term(&bounds(), 1), TERM_MIN);
        assert_eq!(
            demand.term(&bounds(), 1_000),
            Micros::from_secs(2),
            "no longer than the policy's"
        );
    }
}
