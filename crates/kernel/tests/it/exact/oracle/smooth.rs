//! Guava's two limiters as its class comment describes them: stored permits, and the moment at
//! which the next request may pass; in rationals, rounded to 2^-160 so that they stay short.

use num_bigint::BigInt;
use num_traits::{One, Zero};
use sluicegate_kernel::Micros;

use super::{Q, ceil, positive, q, ratio, span};

/// The state of both limiters: the permits stored, and the moment at which the next request passes,
/// in µs.
#[derive(Clone, Debug)]
pub(crate) struct Smooth {
    /// µs a permit.
    pub(crate) interval: Q,
    pub(crate) max_stored: Q,
    /// µs of idle time that store one permit.
    pub(crate) cooldown: Q,
    /// Permits above which stored ones cost more, and by how much more each; none for bursty.
    pub(crate) warmup: Option<Warmup>,
    pub(crate) stored: Q,
    pub(crate) next_free: Q,
}

#[derive(Clone, Debug)]
pub(crate) struct Warmup {
    threshold: Q,
    slope: Q,
}

impl Smooth {
    /// Starts with nothing stored.
    pub(crate) fn bursty((permits, period): (u64, u64), max_burst: u64, now: u64) -> Self {
        let interval = ratio(period, permits);
        Self {
            max_stored: q(max_burst) / &interval,
            cooldown: interval.clone(),
            interval,
            warmup: None,
            stored: Q::zero(),
            next_free: q(now),
        }
    }

    /// Starts cold: all that can be stored is.
    pub(crate) fn warmup(flow: (u64, u64), warmup: u64, cold_factor: f64, now: u64) -> Self {
        let interval = ratio(flow.1, flow.0);
        let cold = &interval * Q::from_float(cold_factor).expect("a factor is finite");
        let threshold = q(warmup) / q(2) / &interval;
        let max_stored = &threshold + q(2) * q(warmup) / (&interval + &cold);
        let slope = (cold - &interval) / (&max_stored - &threshold);
        Self {
            cooldown: q(warmup) / &max_stored,
            interval,
            stored: max_stored.clone(),
            max_stored,
            warmup: Some(Warmup { threshold, slope }),
            next_free: q(now),
        }
    }

    pub(crate) fn resync(&mut self, now: u64) {
        if q(now) > self.next_free {
            let fresh = (q(now) - &self.next_free) / &self.cooldown;
            self.stored = short(&self.stored + fresh).min(self.max_stored.clone());
            self.next_free = q(now);
        }
    }

    /// The exact wait, before it is rounded up.
    pub(crate) fn wait(&self, now: u64) -> Q {
        positive(&self.next_free - q(now))
    }

    pub(crate) fn take(&mut self, cost: u64) {
        let spent = self.stored.clone().min(q(cost));
        let fresh = q(cost) - &spent;
        let time = self.time_of_stored(&spent) + fresh * &self.interval;
        self.next_free = short(&self.next_free + time);
        self.stored -= spent;
    }

    /// µs that `spent` of the stored permits take: the area under the line of intervals.
    fn time_of_stored(&self, spent: &Q) -> Q {
        let Some(Warmup { threshold, slope }) = &self.warmup else { return Q::zero() };
        let above = positive(&self.stored - threshold);
        let slow = spent.clone().min(above.clone());
        let first = &self.interval + slope * &above;
        let last = &self.interval + slope * (&above - &slow);
        &slow * (first + last) / q(2) + (spent - slow) * &self.interval
    }

    /// Gives permits back: a debt first, at the stable interval, then into the store.
    pub(crate) fn give_back(&mut self, permits: u64, now: u64) {
        let paid = self.wait(now).min(q(permits) * &self.interval);
        let left = q(permits) - &paid / &self.interval;
        self.next_free = short(&self.next_free - paid);
        self.stored = short(&self.stored + left).min(self.max_stored.clone());
    }

    pub(crate) fn reset_after(&self, now: u64) -> Micros {
        let idle = (&self.max_stored - &self.stored) * &self.cooldown;
        span(ceil(&(self.wait(now) + idle)))
    }
}

/// `x` to the nearest 2^-160 below.
fn short(x: Q) -> Q {
    let grid: BigInt = BigInt::one() << 160;
    let scaled = (x * Q::from_integer(grid.clone())).floor().to_integer();
    Q::new(scaled, grid)
}
