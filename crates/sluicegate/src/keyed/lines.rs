//! The lines of callers that wait, one for each key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::Cost;
use sluicegate_store::KeyHash;

use crate::wait::{WAITERS_MAX, WaitQueue};

/// A line for each key that callers wait for; keys without one cost nothing.
#[derive(Debug, Default)]
pub(super) struct KeyLines {
    lines: Mutex<HashMap<KeyHash, WaitQueue>>,
    /// Callers that wait or are about to. It is raised before they first ask, so that a refund that comes after their
    /// refusal sees them, and looks for them under the lock.
    waiting: AtomicUsize,
}

impl KeyLines {
    /// Counts one more caller; `false` if [`WAITERS_MAX`] wait already, over all keys.
    pub(super) fn enter(&self) -> bool {
        let enter = |waiting| (waiting < WAITERS_MAX).then_some(waiting + 1);
        self.waiting.try_update(Ordering::SeqCst, Ordering::SeqCst, enter).is_ok()
    }

    /// Counts one caller less.
    pub(super) fn exit(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Callers that wait or are about to.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// The cost of the first in line for `key`; `None` if no caller waits for it.
    pub(super) fn first_cost(&self, key: KeyHash) -> Option<Cost> {
        if self.waiting() == 0 {
            return None;
        }
        self.lock().get(&key)?.first_cost()
    }

    /// Calls the first in line for `key` to ask again, after its budget may have grown.
    pub(super) fn call_first(&self, key: KeyHash) {
        if self.waiting() == 0 {
            return;
        }
        let calls = self.lock().get_mut(&key).map(WaitQueue::call_first);
        if let Some(calls) = calls {
            calls.make();
        }
    }

    /// Runs `step` on the line for `key`, and removes the line when it is empty.
    pub(super) fn with<R>(&self, key: KeyHash, step: impl FnOnce(&mut WaitQueue) -> R) -> R {
        let mut lines = self.lock();
        let line = lines.entry(key).or_default();
        let result = step(line);
        if line.is_empty() {
            lines.remove(&key);
        }
        result
    }

    /// The lines, also after a panic elsewhere: a line is changed in one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, WaitQueue>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
