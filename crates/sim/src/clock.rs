//! Clocks that the world sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use sluicegate::{Clock, Micros};

/// The instant of the Unix epoch, in µs, at which every history begins: in 2026.
pub(crate) const BEGIN: u64 = 1_770_000_000_000_000;

/// A node's clock: the world sets it before the node runs, and wakes those that wait for it.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    now: AtomicU64,
    /// Who is to be woken since the world looked, and when, µs of true time.
    alarms: Mutex<Vec<(u64, Waker)>>,
}

impl SimClock {
    /// Sets it, µs of true time.
    pub(crate) fn set(&self, now: u64) {
        self.now.store(BEGIN + now, Ordering::Relaxed);
    }

    /// Alarms that were set since the last look.
    pub(crate) fn take_alarms(&self) -> Vec<(u64, Waker)> {
        std::mem::take(&mut *self.alarms.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Option<Micros> {
        Some(self.now())
    }

    fn wake_at(&self, at: Micros, waker: &Waker) -> bool {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.push((at.get().saturating_sub(BEGIN), waker.clone()));
        true
    }
}
