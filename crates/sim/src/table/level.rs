//! The excess of a rule over its limit after millions of requests, at the same cost each.
//!
//! The meter of histories looks at every instant at which an interval may begin. Requests of a table are decided
//! at one instant each, so a level is enough: the content of a bucket, or the count of a window.

use std::collections::VecDeque;

use crate::plan::{RuleSpec, WindowSpec};

/// The permits that one rule has admitted of one key.
#[derive(Clone, Debug)]
pub(super) enum Level {
    /// The usage of a bucket from which `permits` flow out in `period_us`, in units: a permit has `period_us` of
    /// them.
    Bucket { units: u64, at: u64, permits: u64, period_us: u64, burst: u64 },
    /// The instants of the permits that were admitted in the last `window_us`.
    Sliding { admitted: VecDeque<u64>, limit: u64, window_us: u64 },
    /// The permits that were admitted in this window of the store's clock.
    Aligned { window: u64, sum: u64, limit: u64, window_us: u64 },
}

impl Level {
    pub(super) fn of(spec: &RuleSpec) -> Self {
        match *spec {
            RuleSpec::TokenBucket { permits, period_us, .. }
            | RuleSpec::LeakyBucket { permits, period_us, .. } => {
                Self::Bucket { units: 0, at: 0, permits, period_us, burst: spec.limit() }
            }
            RuleSpec::Window { window: WindowSpec::Fixed, limit, window_us } => {
                Self::Aligned { window: 0, sum: 0, limit, window_us }
            }
            RuleSpec::Window { limit, window_us, .. } => {
                Self::Sliding { admitted: VecDeque::new(), limit, window_us }
            }
            RuleSpec::SmoothBursty { .. } | RuleSpec::Concurrency { .. } => {
                unreachable!("no table has them, as they are never leased")
            }
        }
    }

    /// Counts one permit that is admitted at `now`. Returns how many permits are over the limit; below 0: how
    /// many are left.
    pub(super) fn admit(&mut self, now: u64) -> i64 {
        let (used, limit) = match self {
            Self::Bucket { units, at, permits, period_us, burst } => {
                *units = units.saturating_sub((now - *at) * *permits) + *period_us;
                *at = now;
                // A part of a permit is not over: waits are rounded up to a µs.
                (*units / *period_us, *burst)
            }
            Self::Sliding { admitted, limit, window_us } => {
                while admitted.front().is_some_and(|then| then + *window_us <= now) {
                    admitted.pop_front();
                }
                admitted.push_back(now);
                (admitted.len() as u64, *limit)
            }
            Self::Aligned { window, sum, limit, window_us } => {
                if now / *window_us != *window {
                    (*window, *sum) = (now / *window_us, 0);
                }
                *sum += 1;
                (*sum, *limit)
            }
        };
        let signed = |permits| i64::try_from(permits).unwrap_or(i64::MAX);
        signed(used) - signed(limit)
    }
}
