//! The two buckets: a level that is one rational number, and time since it last changed.

use num_traits::Zero;
use sluicegate_kernel::algorithm::Delay;
use sluicegate_kernel::limits::{SPAN_MAX_US, UNITS_MAX};
use sluicegate_kernel::{Micros, Outcome};

use super::{Oracle, Q, ceil, floor, never, positive, q, ratio, retry, span};

/// Permits on their way out at `rate` permits a µs.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    rate: Q,
    /// Permits in use when they last changed, and when that was.
    used: Option<(Q, u64)>,
}

impl Level {
    fn used(&self, now: u64) -> Q {
        match &self.used {
            Some((used, since)) => positive(used - &self.rate * q(now.saturating_sub(*since))),
            None => Q::zero(),
        }
    }

    /// µs until `permits` have flowed out.
    fn time(&self, permits: &Q) -> u64 {
        ceil(&(permits / &self.rate)).min(SPAN_MAX_US)
    }

    fn went_back(&mut self, now: u64) {
        if let Some((_, since)) = &mut self.used {
            *since = now.min(*since);
        }
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        if self.used.is_none() {
            return 0;
        }
        let used = self.used(now);
        let back = used.clone().min(q(permits));
        self.used = Some((used - &back, now));
        ceil(&back)
    }
}

/// A token bucket that refills smoothly.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    pub(crate) level: Level,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    /// Permits of debt and burst that the kernel can count to.
    pub(crate) countable: Q,
}

impl TokenBucket {
    pub(crate) fn new(flow: (u64, u64), burst: u64, initial: u64, per_permit: u64) -> Self {
        let level = Level { rate: ratio(flow.0, flow.1), used: None };
        Self { level, burst, initial, countable: ratio(UNITS_MAX, per_permit) }
    }

    /// Permits in use.
    pub(crate) fn used(&self, now: u64) -> Q {
        if self.level.used.is_none() {
            return q(self.burst - self.initial);
        }
        self.level.used(now)
    }

    /// Takes `used` permits over, as of `now`.
    pub(crate) fn with_used(mut self, used: Q, now: u64) -> Self {
        self.level.used = Some((used, now));
        self
    }
}

impl Oracle for TokenBucket {
    fn limit(&self) -> u64 {
        self.burst
    }

    fn went_back(&mut self, now: u64) {
        self.level.went_back(now);
    }

    fn ask(&self, cost: u64, max_wait: Option<u64>, now: u64) -> Outcome {
        if cost > self.burst {
            return never();
        }
        let wanted = self.used(now) + q(cost);
        let wait = self.level.time(&positive(&wanted - q(self.burst)));
        let late = wait.saturating_sub(max_wait.unwrap_or(0));
        let too_deep = self.level.time(&positive(wanted - &self.countable));
        match late.max(too_deep) {
            0 => Outcome::Allow { granted: cost, wait: span(wait) },
            us => retry(us),
        }
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.level.used = Some((self.used(now) + q(cost), now));
    }

    fn refused(&mut self, now: u64) {
        if self.level.used.is_none() && self.initial < self.burst {
            self.level.used = Some((self.used(now), now));
        }
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        self.level.give_back(permits, now)
    }

    fn remaining(&self, now: u64) -> u64 {
        floor(&(q(self.burst) - self.used(now)))
    }

    fn reset_after(&self, now: u64) -> Micros {
        span(self.level.time(&self.used(now)))
    }

    fn forget(&mut self) {
        self.level.used = None;
    }
}

/// A token bucket that gets `permits` at once at the end of each period.
#[derive(Clone, Debug)]
pub(crate) struct IntervalBucket {
    pub(crate) permits: u64,
    pub(crate) period: u64,
    pub(crate) burst: u64,
    pub(crate) initial: u64,
    /// Tokens there, below zero in debt, and when the running period began.
    pub(crate) tokens: Option<(i128, u64)>,
}

impl IntervalBucket {
    fn tokens(&self, now: u64) -> (i128, u64) {
        let Some((tokens, began)) = self.tokens else { return (self.initial.into(), now) };
        let periods = now.saturating_sub(began) / self.period;
        let tokens = tokens + i128::from(periods) * i128::from(self.permits);
        // The period of a full bucket begins with the request that finds it full.
        if tokens >= self.burst.into() {
            return (self.burst.into(), now);
        }
        (tokens, began + periods * self.period)
    }

    /// µs until there are `tokens`.
    fn time_to(&self, tokens: i128, now: u64) -> u64 {
        let (there, began) = self.tokens(now);
        if there >= tokens {
            return 0;
        }
        let missing = u128::try_from(tokens - there).unwrap();
        let periods = missing.div_ceil(self.permits.into());
        let end = u128::from(began) + periods * u128::from(self.period);
        u64::try_from(end.saturating_sub(now.into())).unwrap_or(u64::MAX).min(SPAN_MAX_US)
    }
}

impl Oracle for IntervalBucket {
    fn limit(&self) -> u64 {
        self.burst
    }

    fn went_back(&mut self, now: u64) {
        if let Some((_, began)) = &mut self.tokens {
            *began = now.min(*began);
        }
    }

    fn ask(&self, cost: u64, max_wait: Option<u64>, now: u64) -> Outcome {
        if cost > self.burst {
            return never();
        }
        let wait = self.time_to(cost.into(), now);
        let debt_max = i128::from(UNITS_MAX - self.burst);
        let too_deep = self.time_to(i128::from(cost) - debt_max, now);
        match wait.saturating_sub(max_wait.unwrap_or(0)).max(too_deep) {
            0 => Outcome::Allow { granted: cost, wait: span(wait) },
            us => retry(us),
        }
    }

    fn take(&mut self, cost: u64, now: u64) {
        let (tokens, began) = self.tokens(now);
        self.tokens = Some((tokens - i128::from(cost), began));
    }

    fn refused(&mut self, now: u64) {
        if self.tokens.is_none() && self.initial < self.burst {
            self.tokens = Some((self.initial.into(), now));
        }
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        if self.tokens.is_none() {
            return 0;
        }
        let (tokens, began) = self.tokens(now);
        let back = (i128::from(self.burst) - tokens).min(permits.into());
        self.tokens = Some((tokens + back, began));
        u64::try_from(back).unwrap()
    }

    fn remaining(&self, now: u64) -> u64 {
        u64::try_from(self.tokens(now).0.max(0)).unwrap()
    }

    fn reset_after(&self, now: u64) -> Micros {
        span(self.time_to(self.burst.into(), now))
    }

    fn forget(&mut self) {
        self.tokens = None;
    }
}

/// A leaky bucket.
#[derive(Clone, Debug)]
pub(crate) struct LeakyBucket {
    pub(crate) level: Level,
    pub(crate) burst: u64,
    pub(crate) delay: Delay,
}

impl LeakyBucket {
    pub(crate) fn new(flow: (u64, u64), burst: u64, delay: Delay) -> Self {
        Self { level: Level { rate: ratio(flow.0, flow.1), used: None }, burst, delay }
    }

    /// Water in the bucket.
    pub(crate) fn water(&self, now: u64) -> Q {
        self.level.used(now)
    }
}

impl Oracle for LeakyBucket {
    fn limit(&self) -> u64 {
        self.burst + 1
    }

    fn went_back(&mut self, now: u64) {
        self.level.went_back(now);
    }

    fn ask(&self, cost: u64, max_wait: Option<u64>, now: u64) -> Outcome {
        if cost > self.burst + 1 {
            return never();
        }
        let water = self.water(now);
        let spilled = positive(&water + q(cost) - q(self.burst + 1));
        let wait = match self.delay {
            Delay::None => 0,
            Delay::Above(n) => self.level.time(&positive(water - q(n))),
        };
        let late = max_wait.map_or(0, |max_wait| wait.saturating_sub(max_wait));
        match self.level.time(&spilled).max(late) {
            0 => Outcome::Allow { granted: cost, wait: span(wait) },
            us => retry(us),
        }
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.level.used = Some((self.water(now) + q(cost), now));
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        self.level.give_back(permits, now)
    }

    fn remaining(&self, now: u64) -> u64 {
        floor(&(q(self.burst + 1) - self.water(now)))
    }

    fn reset_after(&self, now: u64) -> Micros {
        span(self.level.time(&self.water(now)))
    }

    fn forget(&mut self) {
        self.level.used = None;
    }
}
