//! Calls that a store answers by an error about their key alone, such as a state that it cannot read. They are
//! counted, and logged with the policy, as operators have to find the program that wrote the state.

use std::time::Instant;

use sluicegate::internals::store::{RuleOrigin, StoreRequest};

use crate::log_pace::LogPace;

/// Counts these errors, and limits their lines in the log.
#[derive(Debug, Default)]
pub(super) struct KeyErrors {
    pace: LogPace,
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
        let Some(count) = self.pace.count(now) else { return };
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

    /// The number of errors.
    pub(super) fn total(&self) -> u64 {
        self.pace.total()
    }
}
