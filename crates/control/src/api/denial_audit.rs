//! Limits on audit entries about denied attempts: each entry is kept for ever, and no principal may fill
//! the audit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sluicegate::{Cost, KeyedRateLimiter};

/// Entries a minute of one principal, and of all unauthenticated callers together.
pub(super) const NOTED: u64 = 60;

/// Maximum number of principals whose suppressed entries are counted.
const COUNTED_MAX: usize = 10_000;

/// Limiter of audit entries about denied attempts.
#[derive(Debug)]
pub(super) struct DenialAudit {
    limiter: KeyedRateLimiter<str>,
    /// Number of suppressed entries since the last one, by principal.
    unnoted: Mutex<HashMap<String, u64>>,
}

impl DenialAudit {
    pub(super) fn new(limiter: KeyedRateLimiter<str>) -> Self {
        Self { limiter, unnoted: Mutex::default() }
    }

    /// Counts an entry of `who`: returns how many were suppressed since the last one; `None` if this one is suppressed too.
    pub(super) fn suppressed(&self, who: &str) -> Option<u64> {
        let is_noted = self.limiter.check(who, Cost::ONE).allowed();
        let mut unnoted = self.unnoted.lock().unwrap_or_else(PoisonError::into_inner);
        if is_noted {
            return Some(unnoted.remove(who).unwrap_or(0));
        }
        let has_room = unnoted.len() < COUNTED_MAX;
        match unnoted.get_mut(who) {
            Some(count) => *count += 1,
            None if has_room => {
                unnoted.insert(who.to_owned(), 1);
            }
            None => {}
        }
        None
    }
}
