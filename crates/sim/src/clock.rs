//! Clocks that the world sets.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::{Clock, Micros};

/// The instant of the Unix epoch, in µs, at which every history begins: in 2026.
pub(crate) const BEGIN: u64 = 1_770_000_000_000_000;

/// A node's clock: the world sets it before the node runs.
#[derive(Debug, Default)]
pub(crate) struct SimClock(AtomicU64);

impl SimClock {
    /// Sets it, µs of true time.
    pub(crate) fn set(&self, now: u64) {
        self.0.store(BEGIN + now, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::Relaxed))
    }
}
