//! Counters of a client's actions, for an exporter of metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// The actions of a client since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls made, of scripts and of plain commands.
    pub calls: u64,
    /// Packets of calls sent; several decisions may travel in one.
    pub batches: u64,
    /// Connections made after the first of their kind.
    pub reconnects: u64,
    /// Times the script was loaded again because the server did not have it any more.
    pub script_reloads: u64,
    /// Redirections followed in a cluster.
    pub redirects: u64,
    /// Calls that failed with [`RedisError::Timeout`](super::RedisError::Timeout).
    pub timeouts: u64,
    /// Calls that failed with [`CallEffect::Unknown`](super::CallEffect::Unknown).
    pub unknown_outcomes: u64,
    /// Refunds of late grants to callers that had given up; one may be of several grants.
    pub late_grants: u64,
}

/// The counters of [`Stats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) calls: Counter,
    pub(super) batches: Counter,
    pub(super) reconnects: Counter,
    pub(super) script_reloads: Counter,
    pub(super) redirects: Counter,
    pub(super) timeouts: Counter,
    pub(super) unknown_outcomes: Counter,
    pub(super) late_grants: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counters {
    pub(super) fn read(&self) -> Stats {
        let Self {
            calls,
            batches,
            reconnects,
            script_reloads,
            redirects,
            timeouts,
            unknown_outcomes,
            late_grants,
        } = self;
        Stats {
            calls: calls.get(),
            batches: batches.get(),
            reconnects: reconnects.get(),
            script_reloads: script_reloads.get(),
            redirects: redirects.get(),
            timeouts: timeouts.get(),
            unknown_outcomes: unknown_outcomes.get(),
            late_grants: late_grants.get(),
        }
    }
}

impl Counter {
    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
