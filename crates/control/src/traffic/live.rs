//! What a node counts itself, which is not in the catalog yet: the server that serves the API looks it up.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;

use serde::Serialize;
use utoipa::ToSchema;

use super::{Bucket, Counts, Step};

/// A key that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct RefusedKey {
    /// The key, or a hash of it (`admin.keys`); null: the budget that all share.
    pub key: Option<String>,
    /// Whether `key` is only the part that can be shown.
    pub key_is_cut: bool,
    /// It was refused so often at least.
    pub refused_at_least: u64,
    /// It was refused so often at most.
    pub refused_at_most: u64,
}

/// What a stream is to have.
#[derive(Clone, Debug, Default)]
pub struct StreamFilter {
    /// The policies whose counts of each second are wanted.
    pub policies: Vec<String>,
    /// The policy whose decisions are wanted.
    pub tail: Option<String>,
    /// Only decisions that came to this.
    pub result: Option<String>,
}

/// What happens while somebody watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    /// A second has ended.
    Tick {
        /// Its begin, in milliseconds since 1970.
        at: i64,
        /// Counts of the policies that are watched, in their order.
        counts: Vec<Counts>,
    },
    /// A decision, as JSON.
    Decision(String),
}

/// The next event, none at the end.
pub type EventFuture<'a> = Pin<Box<dyn Future<Output = Option<LiveEvent>> + Send + 'a>>;

/// What is watched.
pub trait LiveStream: Send {
    /// The next event; none: the node stops. Can be dropped and asked for again.
    fn next(&mut self) -> EventFuture<'_>;
}

/// What a node counts itself.
pub trait LiveTraffic: Send + Sync + fmt::Debug {
    /// The name of the node.
    fn node(&self) -> &str;
    /// The revision of the catalog that the node decides by.
    fn revision(&self) -> i64;
    /// The end of the last bucket that has ended; none: nothing is recorded.
    fn through(&self, step: Step) -> Option<i64>;
    /// The buckets that have ended, from `since` on, but for those that begin at `known`.
    fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket>;
    /// The keys of `policy` that were refused most in the last minutes; none: it is not counted on its own.
    fn top(&self, policy: &str, count: usize) -> Option<Vec<RefusedKey>>;
    /// Watches what `filter` says; none: too many policies are watched, or too many watch.
    fn watch(&self, filter: StreamFilter) -> Option<Box<dyn LiveStream>>;
}

/// Nothing is counted: the catalog alone.
#[derive(Clone, Copy, Debug)]
pub struct NoTraffic;

impl LiveTraffic for NoTraffic {
    fn node(&self) -> &str {
        ""
    }

    fn revision(&self) -> i64 {
        0
    }

    fn through(&self, _: Step) -> Option<i64> {
        None
    }

    fn buckets(&self, _: Step, _: i64, _: &BTreeSet<i64>) -> Vec<Bucket> {
        Vec::new()
    }

    fn top(&self, _: &str, _: usize) -> Option<Vec<RefusedKey>> {
        None
    }

    fn watch(&self, _: StreamFilter) -> Option<Box<dyn LiveStream>> {
        None
    }
}
