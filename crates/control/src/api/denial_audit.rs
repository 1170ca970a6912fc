//! How much is noted of those who try what is not for them: each entry is kept for ever, and nobody is
//! to fill the audit with theirs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sluicegate::{Cost, KeyedRateLimiter};

/// Entries a minute of one of them, and of all who did not say who they are.
pub(super) const NOTED: u64 = 60;

/// Of how many it is counted how often they were not noted. Of others it is not known.
const COUNTED_MAX: usize = 10_000;

/// Those who tried what is not for them.
#[derive(Debug)]
pub(super) struct DenialAudit {
    limiter: KeyedRateLimiter<str>,
    /// How often each was not noted since they were.
    unnoted: Mutex<HashMap<String, u64>>,
}

impl DenialAudit {
    pub(super) fn new(limiter: KeyedRateLimiter<str>) -> Self {
        Self { limiter, unnoted: Mutex::default() }
    }

    /// Whether it is noted that `who` tried again, and how often that was not since the last time.
    pub(super) fn turn(&self, who: &str) -> Option<u64> {
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
