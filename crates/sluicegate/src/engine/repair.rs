//! Restores usage in a store that has lost data.
//!
//! A store loses data by a failover, a restart without its file, or an operator. When that is
//! noticed, every key is full again there, while this engine still knows the store's last reports. For a
//! while the first request of each key carries that usage: the store raises its own to it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::Micros;
use sluicegate_store::KeyHash;

/// Time for which usage is restored: older usage of a key is known from its other requests by then.
const REPAIR_SPAN: Micros = Micros::from_secs(60);

/// Most keys whose usage is restored, 24 bytes each; the others' is not.
const REMINDED_MAX: usize = 250_000;

/// The state of a repair: whether one is due, and the keys that are done.
#[derive(Debug, Default)]
pub(super) struct Repair {
    is_due: AtomicBool,
    reminded: Mutex<Reminded>,
}

#[derive(Debug, Default)]
struct Reminded {
    until: Micros,
    keys: HashSet<KeyHash>,
}

impl Repair {
    /// Begins a repair after the store was found at `now` to have lost data.
    pub(super) fn begin(&self, now: Micros) {
        let mut reminded = self.lock();
        *reminded = Reminded { until: now.plus(REPAIR_SPAN), keys: HashSet::new() };
        self.is_due.store(true, Ordering::Release);
    }

    /// Returns whether the usage of this key has to be restored now.
    pub(super) fn is_due(&self, key: KeyHash, now: Micros) -> bool {
        if !self.is_due.load(Ordering::Acquire) {
            return false;
        }
        let mut reminded = self.lock();
        if now >= reminded.until || reminded.keys.len() >= REMINDED_MAX {
            *reminded = Reminded::default();
            self.is_due.store(false, Ordering::Release);
            return false;
        }
        !reminded.keys.contains(&key)
    }

    /// Records that the usage of this key was restored.
    pub(super) fn done(&self, key: KeyHash) {
        self.lock().keys.insert(key);
    }

    /// The keys that are done, also after a panic elsewhere: each is recorded in one step.
    fn lock(&self) -> MutexGuard<'_, Reminded> {
        self.reminded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
