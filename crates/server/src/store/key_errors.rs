//! Calls that a store answers by an error about their key alone, such as a state that it cannot read. They are
//! counted, and logged with the policy, as operators have to find the program that wrote the state.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluicegate::store::{RuleOrigin, StoreRequest};

/// Minimum time between two lines of the log: a hot key is asked for thousands of times a second.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts such errors, and limits their lines in the log.
#[derive(Debug, Default)]
pub(super) struct KeyErrors {
    total: AtomicU64,
    logged: Mutex<Logged>,
}

/// The last line of the log.
#[derive(Debug, Default)]
struct Logged {
    at: Option<Instant>,
    /// How many errors there were then.
    total: u64,
}

impl KeyErrors {
    /// Counts the error `reason` at `now`, and logs it unless there was a line a moment ago.
    pub(super) fn record(
        &self,
        store: &str,
        request: &StoreRequest<'_>,
        reason: &str,
        now: Instant,
    ) {
        self.total.fetch_add(1, Relaxed);
        let Some(count) = self.due(now) else { return };
        match request.origin {
            RuleOrigin::Policy { .. } => {
                let policy = request.policy;
                tracing::warn!(
                    "store {store}: error of a key of policy `{policy}`: {reason} ({count} since the last line)"
                );
            }
            // Callers choose their names.
            RuleOrigin::Caller => {
                tracing::warn!(
                    "store {store}: error of a key of no policy: {reason} ({count} since the last line)"
                );
            }
        }
    }

    /// How many errors there were since the last line, if another one is due at `now`.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.at.is_some_and(|at| now.saturating_duration_since(at) < LOG_EVERY) {
            return None;
        }
        let total = self.total();
        let count = total - logged.total;
        *logged = Logged { at: Some(now), total };
        Some(count)
    }

    /// How many errors there were.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "spans are added to it, nothing is measured")]
    fn the_log_has_a_line_each_ten_seconds_that_counts_those_since_the_last_one() {
        let (errors, begin) = (KeyErrors::default(), Instant::now());
        let count = |after: u64| {
            errors.total.fetch_add(1, Relaxed);
            errors.due(begin + Duration::from_millis(after))
        };
        let counts = [0, 1, 9_999, 10_000, 10_001, 30_000].map(count);
        assert_eq!(counts, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
