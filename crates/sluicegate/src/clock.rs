//! Time, passed in: the clocks that limiters and engines read, and one for tests.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use sluicegate_kernel::Micros;

/// Tells the time in microseconds.
///
/// What zero means is the clock's own affair, but epoch-aligned and calendar windows need a clock
/// that counts from the Unix epoch, such as [`WallClock`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present instant.
    fn now(&self) -> Micros;
}

/// Microseconds since the Unix epoch, by the system's clock. It may be set, also backwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the clock that everyone else is told about")]
    fn now(&self) -> Micros {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(Micros::ZERO, Micros::from)
    }
}

/// Microseconds since this process first asked, by a clock that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

static START: OnceLock<Instant> = OnceLock::new();

impl Clock for MonotonicClock {
    #[expect(clippy::disallowed_methods, reason = "the clock that everyone else is told about")]
    fn now(&self) -> Micros {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(*START.get_or_init(|| now));
        // Rounded down: the future has not come yet.
        Micros::new(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is told to go on, for tests.
///
/// ```
/// use sluicegate::{Clock, ManualClock, Micros};
///
/// let clock = ManualClock::default();
/// clock.advance(Micros::SECOND);
/// assert_eq!(clock.now(), Micros::new(1_000_000));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
}

/// A [`ManualClock`] was told to go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("now: `{to}` is before `{now}`, a manual clock only goes forward")]
pub struct ClockError {
    /// Where it stands.
    pub now: Micros,
    /// Where it was told to go.
    pub to: Micros,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Micros) -> Self {
        Self { now: AtomicU64::new(now.get()) }
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: Micros) {
        let step = |now: u64| Some(now.saturating_add(span.get()));
        self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).ok();
    }

    /// Moves on to `to`.
    ///
    /// # Errors
    /// [`ClockError`] if that is in the past; the clock stays where it is.
    pub fn set(&self, to: Micros) -> Result<(), ClockError> {
        let forward = |now: u64| (now <= to.get()).then_some(to.get());
        match self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, forward) {
            Ok(_) => Ok(()),
            Err(now) => Err(ClockError { now: Micros::new(now), to }),
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_refuses_to_go_back_and_says_so() {
        let clock = ManualClock::at(Micros::new(10));
        let error = clock.set(Micros::new(9)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "now: `9us` is before `10us`, a manual clock only goes forward"
        );
        assert_eq!(clock.now(), Micros::new(10));
    }

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let clock = MonotonicClock;
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
