//! A clock that one thread reads for all others.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sluicegate_kernel::{Micros, RangeError};

use super::{Clock, MonotonicClock};

/// Shortest interval: below it the thread would do little else than read the clock.
const INTERVAL_US_MIN: u64 = 50;

/// Longest interval: above it a limiter of some permits a second would visibly stutter.
const INTERVAL_US_MAX: u64 = 1_000_000;

/// Microseconds since it was made, as a thread of its own last read them: one load per reading.
///
/// The time it gives is late by at most `lag`: the interval, plus how late the system lets the
/// thread run. So a limiter refills up to `lag` late, and in any span Δ of real time it admits at
/// most `burst + rate·(Δ + lag)`, where an exact clock gives `burst + rate·Δ`. With 1 ms and
/// 1,000 permits a second, that is one permit.
///
/// The thread is called `sluicegate-clock` and ends when the clock is dropped.
///
/// ```
/// use std::time::Duration;
/// use sluicegate::{CachedClock, Rate, RateLimiter, TokenBucket};
///
/// let clock = CachedClock::new(Duration::from_millis(1))?;
/// let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(100)?, 100)?, clock)?;
/// assert!(limiter.try_acquire());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CachedClock {
    shared: Arc<CachedTime>,
    interval: Duration,
    thread: Option<JoinHandle<()>>,
}

/// The time in a cache line of its own: all threads read it, and one writes it.
#[repr(align(128))]
struct CachedTime {
    now: AtomicU64,
    stop: AtomicBool,
}

impl CachedClock {
    /// Returns a clock that is read anew every `interval`, 50 µs to 1 s. 1 ms is a good one.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the interval is outside that range; another error if the thread does not
    /// start.
    pub fn new(interval: Duration) -> io::Result<Self> {
        let interval_us = Micros::from(interval).get();
        if !(INTERVAL_US_MIN..=INTERVAL_US_MAX).contains(&interval_us) {
            let problem =
                format!("`{interval_us}` is outside {INTERVAL_US_MIN}..={INTERVAL_US_MAX}");
            let error = RangeError::new("interval in µs", problem);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        let shared = Arc::new(CachedTime { now: AtomicU64::new(0), stop: AtomicBool::new(false) });
        let zero = MonotonicClock.now();
        let upkeep = {
            let shared = Arc::clone(&shared);
            move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    let now = MonotonicClock.now().since(zero);
                    shared.now.store(now.get(), Ordering::Relaxed);
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the upkeep of a clock sleeps between readings"
                    )]
                    thread::park_timeout(interval);
                }
            }
        };
        let thread = thread::Builder::new().name("sluicegate-clock".to_owned()).spawn(upkeep);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot start the clock thread: {error}"))
        };
        Ok(Self { shared, interval, thread: Some(thread.map_err(named)?) })
    }

    /// The interval at which the time is read.
    pub fn interval(&self) -> Duration {
        self.interval
    }
}

impl Clock for CachedClock {
    #[inline]
    fn now(&self) -> Micros {
        Micros::new(self.shared.now.load(Ordering::Relaxed))
    }

    /// `true`: one thread writes, and all see one variable in one order.
    fn is_monotonic(&self) -> bool {
        true
    }
}

impl Drop for CachedClock {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does nothing that could panic, and there is no caller to report to while the clock is dropped.
            thread.join().ok();
        }
    }
}

impl fmt::Debug for CachedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedClock")
            .field("now", &self.now())
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_out_of_range_is_named() {
        let error = CachedClock::new(Duration::from_secs(2)).unwrap_err();
        assert_eq!(error.to_string(), "interval in µs: `2000000` is outside 50..=1000000");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(CachedClock::new(Duration::ZERO).is_err());
    }

    #[test]
    fn it_goes_on_by_itself_and_its_thread_ends_with_it() {
        let clock = CachedClock::new(Duration::from_micros(50)).unwrap();
        let first = clock.now();
        // Bounded by the thread's next reading, which needs no more than to be scheduled.
        while clock.now() == first {
            thread::yield_now();
        }
        let shared = Arc::clone(&clock.shared);
        drop(clock);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread has let go of it");
    }
}
