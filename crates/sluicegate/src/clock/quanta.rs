//! The clock on the processor's own counter.

use sluicegate_kernel::Micros;

use super::Clock;

/// Microseconds since it was made, read from the processor's counter where there is a dependable
/// one (`rdtsc`, `cntvct_el0`), otherwise from the system's monotonic clock.
///
/// The first one of a process is calibrated against the system's clock for up to 200 ms; the two
/// then drift apart by some parts in a million, as two quartzes do.
///
/// ```
/// use sluicegate::{QuantaClock, Rate, RateLimiter, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(100)?, 100)?;
/// let limiter = RateLimiter::with_clock(rule, QuantaClock::new())?;
/// assert!(limiter.try_acquire());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantaClock {
    source: quanta::Clock,
    zero: u64,
    /// µs per count of the source, as a fraction of 2^64: a count is always shorter than 1 µs.
    us_per_count: u64,
}

impl QuantaClock {
    /// A clock that stands at zero now.
    pub fn new() -> Self {
        let source = quanta::Clock::new();
        let zero = source.raw();
        // So many counts (days, at GHz) that nothing is lost in rounding them to ns.
        let counts = 1 << 50;
        let us = u128::from(source.delta_as_nanos(0, counts)) << 64;
        let us_per_count = u64::try_from(us / 1_000 / u128::from(counts)).unwrap_or(u64::MAX);
        Self { source, zero, us_per_count }
    }
}

impl Default for QuantaClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for QuantaClock {
    #[inline]
    fn now(&self) -> Micros {
        let counts = self.source.raw().saturating_sub(self.zero);
        // Rounded down: the future has not come yet.
        let us = (u128::from(counts) * u128::from(self.us_per_count)) >> 64;
        Micros::new(u64::try_from(us).expect("the high half of 128 bits is 64 bits"))
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_zero_and_never_goes_back() {
        let clock = QuantaClock::new();
        let mut last = clock.now();
        assert!(last < Micros::SECOND, "{last}");
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{last} then {now}");
            last = now;
        }
    }
}
