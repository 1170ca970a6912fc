//! What a store that has forgotten is reminded of.
//!
//! A store loses what it was given by a failover, a restart without its file, or an operator. When it is
//! noticed, every key is full again there, while this engine still knows what the store last said. For a
//! while the first request of each key takes that along: the store raises what is in use to it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::Micros;
use sluicegate_store::KeyHash;

/// For how long the store is reminded: what a key used longer ago is known from other requests by then.
const REPAIR_SPAN: Micros = Micros::from_secs(60);

/// Keys of which the store is reminded at most, 24 bytes each; it is not reminded of more.
const REMINDED_MAX: usize = 250_000;

/// Whether the store has forgotten, and what it was reminded of since.
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
    /// The store was found at `now` to have forgotten something.
    pub(super) fn begin(&self, now: Micros) {
        let mut reminded = self.lock();
        *reminded = Reminded { until: now.plus(REPAIR_SPAN), keys: HashSet::new() };
        self.is_due.store(true, Ordering::Release);
    }

    /// Whether the store is to be reminded of this key now.
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

    /// The store was reminded of this key.
    pub(super) fn done(&self, key: KeyHash) {
        self.lock().keys.insert(key);
    }

    /// What was done, also after a panic elsewhere: keys are noted in one step.
    fn lock(&self) -> MutexGuard<'_, Reminded> {
        self.reminded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
