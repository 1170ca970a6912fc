//! The pace of lines in the log about what clients cause: counted always, logged at most once in ten seconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two lines of one kind: a client can cause thousands a second.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Counts events, and decides when a line of the log is due.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    total: AtomicU64,
    logged: Mutex<LastLine>,
}

/// The last line of the log.
#[derive(Debug, Default)]
struct LastLine {
    at: Option<Instant>,
    /// The number of events at that time.
    total: u64,
}

impl LogPace {
    /// Counts one more at `now`. Returns the number since the last line, if another line is due.
    pub(crate) fn count(&self, now: Instant) -> Option<u64> {
        self.total.fetch_add(1, Relaxed);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.at.is_some_and(|at| now.saturating_duration_since(at) < LOG_EVERY) {
            return None;
        }
        let total = self.total();
        let count = total - logged.total;
        *logged = LastLine { at: Some(now), total };
        Some(count)
    }

    /// The number of events.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "spans are added to it, nothing is measured")]
    fn the_log_has_a_line_each_ten_seconds_that_counts_those_since_the_last_one() {
        let (pace, begin) = (LogPace::default(), Instant::now());
        let count = |after: u64| pace.count(begin + Duration::from_millis(after));
        let counts = [0, 1, 9_999, 10_000, 10_001, 30_000].map(count);
        assert_eq!(counts, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
