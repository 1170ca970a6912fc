//! Clients that use another protocol than that of their address. Their connection is closed, most of them show no
//! reason, and the operator looks in the log.

use std::time::Instant;

use crate::config::Listen;
use crate::log_pace::LogPace;

/// The clients of a listener that use another protocol, counted for its log.
#[derive(Debug, Default)]
pub(crate) struct ForeignClients {
    address: String,
    pace: LogPace,
}

impl ForeignClients {
    /// Creates the count of a listener at `address`.
    pub(crate) fn new(address: Option<&Listen>) -> Self {
        let address = address.map(Listen::to_string).unwrap_or_default();
        Self { address, pace: LogPace::default() }
    }

    /// Logs a client whose connection is closed, at most one in ten seconds: `found` is its protocol, `advice` the
    /// address where it belongs.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    pub(crate) fn log(&self, found: &str, advice: &str) {
        let Some(count) = self.pace.count(Instant::now()) else { return };
        let address = &self.address;
        tracing::warn!(
            "{address}: a client speaks {found}, its connection is closed ({count} such connections since the last \
             line); {advice}"
        );
    }
}
