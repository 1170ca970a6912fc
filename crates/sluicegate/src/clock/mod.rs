//! Time, passed in: the clocks that limiters and engines read, and one for tests.
//!
//! | Clock | One reading | Goes back | For |
//! |---|---|---|---|
//! | [`MonotonicClock`] | about 24 ns | never | limiters in one process; the default |
//! | [`QuantaClock`] (feature `quanta`) | about 10 ns | never | the same, on the processor's counter |
//! | [`CachedClock`] | under 1 ns | never | very hot limiters that can do with a coarse time |
//! | [`SteadyClock`] | about 26 ns | never | engines: windows that follow the calendar or the epoch |
//! | [`WallClock`] | about 36 ns | when it is set | timestamps of events |
//! | [`ManualClock`] | – | never | tests: it moves when a test moves it |

mod cached;
mod manual;
#[cfg(feature = "quanta")]
mod quanta;
mod steady;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Instant, SystemTime};

pub use cached::CachedClock;
pub use manual::{ClockError, ManualClock};
use sluicegate_kernel::Micros;
pub use steady::SteadyClock;

#[cfg(feature = "quanta")]
pub use self::quanta::QuantaClock;

/// A source of time in microseconds. Only [`now`](Self::now) must be written.
///
/// Each clock chooses its own zero, but epoch-aligned and calendar windows need a clock that counts
/// from the Unix epoch, such as [`SteadyClock`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Micros;

    /// Returns whether [`now`](Self::now) never returns less than it returned before, to any thread that
    /// could know of it. A limiter on such a clock decides without a lock.
    fn is_monotonic(&self) -> bool {
        false
    }

    /// Microseconds since some instant of the past, by a clock that cannot be set, never goes back, and
    /// goes on while the machine sleeps; leases end by it. `None`, the default: the clock has no such time, and
    /// an engine on it leases nothing.
    fn steady(&self) -> Option<Micros> {
        None
    }

    /// Returns whether an engine delays requests by this clock alone: a replay decides a day of traffic in seconds.
    /// `false`, the default, lets delayed requests sleep in real time. A clock that returns `true` keeps the promise
    /// of [`wake_at`](Self::wake_at).
    fn is_virtual(&self) -> bool {
        false
    }

    /// Promises to wake `waker` when the clock reaches `at`; waking too early or twice is fine.
    ///
    /// `false`, the default, promises nothing: the clock follows real time, and a caller that waits sleeps
    /// for the time that is missing by [`now`](Self::now).
    fn wake_at(&self, at: Micros, waker: &Waker) -> bool {
        let _ = (at, waker);
        false
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    #[inline]
    fn now(&self) -> Micros {
        (**self).now()
    }

    fn is_monotonic(&self) -> bool {
        (**self).is_monotonic()
    }

    #[inline]
    fn steady(&self) -> Option<Micros> {
        (**self).steady()
    }

    fn is_virtual(&self) -> bool {
        (**self).is_virtual()
    }

    fn wake_at(&self, at: Micros, waker: &Waker) -> bool {
        (**self).wake_at(at, waker)
    }
}

/// Microseconds since the Unix epoch, by the system's clock. It may be set, also backwards: each step
/// forward fills budgets, so limits go by [`SteadyClock`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the clock that everyone else is told about")]
    fn now(&self) -> Micros {
        let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Rounded down: the future has not come yet.
        Micros::new(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    #[inline]
    fn steady(&self) -> Option<Micros> {
        Some(steady::since_boot())
    }
}

/// Microseconds since the first reading in this process, by a clock that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

static START: OnceLock<Instant> = OnceLock::new();

impl Clock for MonotonicClock {
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "the clock that everyone else is told about")]
    fn now(&self) -> Micros {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(*START.get_or_init(|| now));
        // Rounded down: the future has not come yet.
        Micros::new(elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros()))
    }

    fn is_monotonic(&self) -> bool {
        true
    }

    #[inline]
    fn steady(&self) -> Option<Micros> {
        Some(steady::since_boot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let clock = MonotonicClock;
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
