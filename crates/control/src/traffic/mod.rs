//! Results of requests over time: counts of each policy in buckets of 10 s and 5 min.
//!
//! ```text
//! counters of a node ─▶ its rings ─ every 10 s, every 5 min ─▶ rows of the catalog (`codec`) ─▶ admin API
//!                          └──── buckets without a row yet ────────────────────────────────────┘
//! ```
//!
//! Nodes never call one another: each writes its counts to the catalog, and every node returns those of
//! all.

mod codec;
mod live;

use std::ops::Range;

use serde::Deserialize;

pub use codec::{BODY_BYTES_MAX, pack, unpack};
pub use live::{
    EventFuture, LiveEvent, LiveStream, LiveTraffic, NoTraffic, RefusedKey, StreamFilter,
};

/// The counts of a policy. `without_store` counts decisions of the others: those that were made without the
/// store. `shed` counts requests that were not checked against any limit, because the store was overloaded: metrics
/// have them under the result that the policy gave them, with the mode `shed`. New counts come last: rows of the
/// catalog have these places.
pub const RESULTS: [&str; 9] = [
    "allowed",
    "held",
    "shadowed",
    "degraded",
    "diverted",
    "refused",
    "error",
    "without_store",
    "shed",
];

/// The results of single decisions: the first ones of [`RESULTS`].
pub const EVENT_RESULTS: [&str; 7] =
    ["allowed", "held", "shadowed", "degraded", "diverted", "refused", "error"];

/// The place of decisions without the store among [`RESULTS`].
pub const WITHOUT_STORE: usize = 7;

/// The place of requests that met an overload among [`RESULTS`].
pub const SHED: usize = 8;

/// Name of the joined counts of policies that are not kept on their own. No policy's name has brackets.
pub const OTHER: &str = "(other)";

/// Counts in the order of [`RESULTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; RESULTS.len()]);

/// Length of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Step {
    /// Ten seconds, kept for an hour.
    #[serde(rename = "10s")]
    Fine,
    /// Five minutes, kept for a day.
    #[serde(rename = "5m")]
    Coarse,
}

/// Counts of all policies from `at` on, for one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Begin, in milliseconds since 1970: a multiple of the step.
    pub at: i64,
    /// Policies that had traffic.
    pub policies: Vec<PolicyCounts>,
}

/// Counts of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// The name of the policy, or one in brackets.
    pub policy: String,
    /// Number of decisions by result.
    pub counts: Counts,
    /// The keys that were refused most in the last minutes.
    pub top: Vec<RefusedKey>,
}

/// Bytes of a node's name in the name of a run: a column has room for 128, and `@` and a time take 14.
const NODE_BYTES_KEPT: usize = 114;

/// Returns the name for rows of a run of `node` that began or ended at `at` within a bucket: another run may have
/// rows of the same bucket.
pub fn run_name(node: &str, at: i64) -> String {
    format!("{}@{at}", kept(node))
}

/// Returns whether rows with the name `name` are of `node`.
pub fn is_run_of(name: &str, node: &str) -> bool {
    let of_run = |(begin, at): (&str, &str)| at.parse::<u64>().is_ok() && begin == kept(node);
    name == node || name.rsplit_once('@').is_some_and(of_run)
}

fn kept(node: &str) -> &str {
    &node[..node.floor_char_boundary(NODE_BYTES_KEPT)]
}

impl Counts {
    /// Returns whether all counts are 0.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; RESULTS.len()]
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        for (count, more) in self.0.iter_mut().zip(more.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Returns these counts without `others`; never below zero.
    #[must_use]
    pub fn less(&self, others: &Self) -> Self {
        let mut counts = *self;
        for (count, other) in counts.0.iter_mut().zip(others.0) {
            *count = count.saturating_sub(other);
        }
        counts
    }

    /// Returns the counts since the counters had the values `earlier`. A counter that went back began anew.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = *self;
        for (count, earlier) in counts.0.iter_mut().zip(earlier.0) {
            *count = count.checked_sub(earlier).unwrap_or(*count);
        }
        counts
    }

    /// Returns the requests that were over the limit, whatever their result. Overload is not a limit.
    pub fn over_the_limit(&self) -> u64 {
        self.sum(2..6)
    }

    /// Returns all requests for permits: decisions without the store are in another count as well.
    pub fn decided(&self) -> u64 {
        self.sum(0..WITHOUT_STORE).saturating_add(self.0[SHED])
    }

    fn sum(&self, results: Range<usize>) -> u64 {
        self.0[results].iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Step {
    /// Both steps.
    pub const ALL: [Self; 2] = [Self::Fine, Self::Coarse];

    /// Returns the length of a bucket, in milliseconds.
    pub const fn ms(self) -> i64 {
        match self {
            Self::Fine => 10_000,
            Self::Coarse => 300_000,
        }
    }

    /// Returns the number of buckets that are kept.
    pub const fn buckets(self) -> usize {
        match self {
            Self::Fine => 360,
            Self::Coarse => 288,
        }
    }

    /// Returns the time for which buckets are kept, in milliseconds.
    pub const fn kept_ms(self) -> i64 {
        match self {
            Self::Fine => 60 * 60 * 1_000,
            Self::Coarse => 24 * 60 * 60 * 1_000,
        }
    }

    /// Returns the begin of the bucket that contains `at`.
    pub const fn floor(self, at: i64) -> i64 {
        at - at.rem_euclid(self.ms())
    }
}
