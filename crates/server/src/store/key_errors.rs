//! Decisions that a store refuses because the state of their key cannot be read: counted, and logged with the
//! policy, as operators have to find the program that wrote the state.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluicegate::store::{RuleOrigin, StoreRequest};

/// Between two lines of the log at least: a hot key is asked for thousands of times a second.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// How many there were, and what the log says of them.
#[derive(Debug, Default)]
pub(super) struct UnreadableStates {
    total: AtomicU64,
    logged: Mutex<Logged>,
}

/// The last line of the log.
#[derive(Debug, Default)]
struct Logged {
    at: Option<Instant>,
    /// How many there were then.
    total: u64,
}

impl UnreadableStates {
    /// Counts one at `now`, and logs it unless another one was logged a moment ago.
    pub(super) fn record(
        &self,
        store: &str,
        request: &StoreRequest<'_>,
        reason: &str,
        now: Instant,
    ) {
        self.total.fetch_add(1, Relaxed);
        let Some(count) = self.due(now) else { return };
        let of = match request.origin {
            RuleOrigin::Policy { .. } => format!("policy `{}`", request.policy),
            RuleOrigin::Caller => "limits of a caller".to_owned(),
        };
        tracing::warn!(
            "store {store}: unreadable key of {of}: {reason}; decisions since the last such line: {count}; \
             `sluicegate reset POLICY KEY` forgets the state"
        );
    }

    /// How many there were since the last line, if another one is due at `now`.
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

    /// How many there were.
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
        let (states, begin) = (UnreadableStates::default(), Instant::now());
        let count = |after: u64| {
            states.total.fetch_add(1, Relaxed);
            states.due(begin + Duration::from_millis(after))
        };
        let counts = [0, 1, 9_999, 10_000, 10_001, 30_000].map(count);
        assert_eq!(counts, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
