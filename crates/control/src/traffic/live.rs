//! Traffic that a node counts itself, which is not in the catalog yet: the server that serves the API looks it up.

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
    /// `true` if `key` is only the part that can be shown.
    pub key_is_cut: bool,
    /// Least number of its refusals.
    pub refused_at_least: u64,
    /// Greatest number of its refusals.
    pub refused_at_most: u64,
}

/// Selects the content of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFilter {
    /// Policies whose counts of each second are sent.
    pub policies: Vec<String>,
    /// Policy whose decisions are sent; none: no decisions.
    pub tail: Option<String>,
    /// Result of the decisions that are sent; none: any.
    pub result: Option<String>,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveEvent {
    /// A second has ended.
    Tick {
        /// Begin of the second, in milliseconds since 1970.
        at: i64,
        /// Counts of the policies that are watched, in their order.
        counts: Vec<Counts>,
    },
    /// A decision, as JSON.
    Decision(String),
}

/// The next event, none at the end.
pub type EventFuture<'a> = Pin<Box<dyn Future<Output = Option<LiveEvent>> + Send + 'a>>;

/// A stream of live traffic.
pub trait LiveStream: Send {
    /// Returns the next event; none: the node stops. Can be dropped and called again.
    fn next(&mut self) -> EventFuture<'_>;
}

/// Traffic that a node counts itself.
pub trait LiveTraffic: Send + Sync + fmt::Debug {
    /// Returns the name of the node.
    fn node(&self) -> &str;
    /// Returns the revision of the catalog that the node decides by.
    fn revision(&self) -> i64;
    /// Returns the end of the last bucket that has ended; none: traffic is not recorded.
    fn through(&self, step: Step) -> Option<i64>;
    /// Returns the buckets that have ended, from `since` on, but for those that begin at `known`.
    fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket>;
    /// Returns the keys of `policy` that were refused most in the last minutes; none: it is not counted on its own.
    fn top(&self, policy: &str, count: usize) -> Option<Vec<RefusedKey>>;
    /// Opens a stream of what `filter` selects; none: too many policies are watched, or there are too many streams.
    fn watch(&self, filter: StreamFilter) -> Option<Box<dyn LiveStream>>;
}

/// No traffic: the catalog alone.
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
