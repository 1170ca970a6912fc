//! The clock of tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use sluicegate_kernel::Micros;

use super::Clock;

/// Alarms that a [`ManualClock`] keeps. Each caller that waits has one, and one that gave up leaves
/// it behind, so this is far more than a test needs; beyond it the oldest rings early, which is
/// harmless: a caller that is woken reads the clock again.
const ALARMS_MAX: usize = 4_096;

/// Lead of a new clock's steady time over `now`: code that confuses the two fails its tests.
const STEADY_AHEAD: Micros = Micros::from_secs(1_000_000);

/// A clock that stands still until you move it on, for tests. Its steady time is eleven days ahead, because
/// the two clocks of a machine differ, and moves alone with [`suspend`](Self::suspend). A task that waits for an
/// instant is woken by the call that reaches it, so no test has to sleep.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate::{Clock, ManualClock, Micros, Rate, RateLimiter, TokenBucket};
///
/// let clock = Arc::new(ManualClock::default());
/// let rule = TokenBucket::new(Rate::per_second(1)?, 1)?;
/// let limiter = RateLimiter::with_clock(rule, clock.clone())?;
/// assert!(limiter.try_acquire());
/// assert!(!limiter.try_acquire());
/// clock.advance(Micros::SECOND);
/// assert_eq!(clock.now(), Micros::new(1_000_000));
/// assert!(limiter.try_acquire());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    /// Lead of the steady time over `now`, µs.
    suspended: AtomicU64,
    alarms: Mutex<Vec<PendingWake>>,
}

#[derive(Debug)]
struct PendingWake {
    at: Micros,
    waker: Waker,
}

/// The error of a [`ManualClock`] that is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("now: `{to}` is before `{now}`; a manual clock cannot go back")]
pub struct ClockError {
    /// The instant at which it stands.
    pub now: Micros,
    /// The instant to which it was set.
    pub to: Micros,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::at(Micros::ZERO)
    }
}

impl ManualClock {
    /// Returns a clock that stands at `now`.
    pub fn at(now: Micros) -> Self {
        Self {
            now: AtomicU64::new(now.get()),
            suspended: AtomicU64::new(STEADY_AHEAD.get()),
            alarms: Mutex::default(),
        }
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: impl Into<Micros>) {
        let span = span.into().get();
        let step = |now: u64| Some(now.saturating_add(span));
        self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).ok();
        self.ring();
    }

    /// Lets `span` pass by the steady time alone, as if the machine had slept and its wall clock had not
    /// noticed.
    pub fn suspend(&self, span: impl Into<Micros>) {
        self.suspended.fetch_add(span.into().get(), Ordering::SeqCst);
    }

    /// Moves on to `to`.
    ///
    /// # Errors
    /// [`ClockError`] if that is in the past; the clock stays where it is.
    #[doc(hidden)]
    pub fn set(&self, to: Micros) -> Result<(), ClockError> {
        let forward = |now: u64| (now <= to.get()).then_some(to.get());
        match self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, forward) {
            Ok(_) => {
                self.ring();
                Ok(())
            }
            Err(now) => Err(ClockError { now: Micros::new(now), to }),
        }
    }

    /// Wakes all that wait for an instant that has come.
    fn ring(&self) {
        let now = self.now();
        let due: Vec<PendingWake> = {
            let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
            alarms.extract_if(.., |alarm| alarm.at <= now).collect()
        };
        // Outside the lock: a caller that is woken may set its next alarm at once.
        for alarm in due {
            alarm.waker.wake();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::SeqCst))
    }

    fn is_monotonic(&self) -> bool {
        true
    }

    fn steady(&self) -> Option<Micros> {
        let ahead = Micros::new(self.suspended.load(Ordering::SeqCst));
        Some(self.now().plus(ahead))
    }

    fn wake_at(&self, at: Micros, waker: &Waker) -> bool {
        let waker = waker.clone();
        let early = {
            let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
            // Under the lock that `ring` takes after it has moved the time: either the new time is
            // seen here, or the new alarm is seen there.
            if self.now() >= at {
                Some(PendingWake { at, waker })
            } else {
                let oldest = (alarms.len() >= ALARMS_MAX).then(|| alarms.remove(0));
                alarms.push(PendingWake { at, waker });
                oldest
            }
        };
        if let Some(alarm) = early {
            alarm.waker.wake();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_manual_clock_refuses_to_go_back_and_says_so() {
        let clock = ManualClock::at(Micros::new(10));
        let error = clock.set(Micros::new(9)).unwrap_err();
        assert_eq!(error.to_string(), "now: `9us` is before `10us`; a manual clock cannot go back");
        assert_eq!(clock.now(), Micros::new(10));
    }

    #[test]
    fn whoever_waits_is_woken_by_the_call_that_reaches_the_instant() {
        let (clock, count) = (ManualClock::default(), Arc::new(Count::default()));
        assert!(clock.wake_at(Micros::new(10), &count.clone().into()));
        clock.advance(Micros::new(9));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        clock.advance(Micros::new(1));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(clock.wake_at(Micros::new(5), &count.clone().into()));
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "that instant is past");
    }

    #[test]
    fn alarms_are_bounded_and_the_oldest_rings_early() {
        let (clock, count) = (ManualClock::default(), Arc::new(Count::default()));
        for _ in 0..=ALARMS_MAX {
            clock.wake_at(Micros::SECOND, &count.clone().into());
        }
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
