//! Comparison of the policies of an app with a draft, on the requests of a log. The server of the API runs it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use serde::Serialize;
use sluicegate_policy::{KeyAttribute, PolicySet};
use utoipa::ToSchema;
use uuid::Uuid;

/// Time for which a log is kept, in milliseconds: as long as a person works at one draft.
const KEPT_MS: i64 = 15 * 60 * 1_000;

/// Maximum size of all logs that a node keeps, in bytes: two of the largest, or many of ordinary size.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Smallest size that a log counts as, so that there are at most 1,024.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// Input of a comparison.
pub struct ToCompare {
    /// The policies of the app.
    pub today: PolicySet,
    /// The policies with the draft.
    pub draft: PolicySet,
    /// The policy that guards all lines; none: all that match it, or the only one.
    pub policy: Option<String>,
    /// Attributes that form the keys; none: those of the policies.
    pub key: Option<Vec<KeyAttribute>>,
    /// An access log, plain or gzip.
    pub log: Bytes,
    /// Checked often; `true` ends the comparison, which is then incomplete.
    pub is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Results of the policies of an app and of a draft, on the requests of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Comparison {
    /// Lines that a policy guards, today or in the draft.
    pub requests: u64,
    /// Refused by the policies of the app.
    pub refused_today: u64,
    /// Refused by the draft.
    pub refused_new: u64,
    /// Refused by the draft only.
    pub newly_refused: u64,
    /// Refused by the policies of the app only.
    pub no_longer_refused: u64,
    /// Lines that no policy guards.
    pub unguarded: u64,
    /// Policies of the draft that match lines and were not decided, because `policy` names another one.
    pub undecided_policies: Vec<ComparedUndecided>,
    /// Number of times that a policy was not decided because more than 16 match one line.
    pub policies_left_out: u64,
    /// Lines that were not decided: they are not of an access log.
    pub errors: u64,
    /// Lines that came too late to be put in the order of time.
    pub late: u64,
    /// Budgets that were forgotten although they were not full; more than 0: the counts are not exact.
    pub evicted: u64,
    /// `true` if all of the log was compared.
    pub complete: bool,
    /// Time of the first request, in µs since 1970; null: there is none.
    pub first_at_us: Option<u64>,
    /// Time of the last request, in µs since 1970; null: there is none.
    pub last_at_us: Option<u64>,
    /// The policies by name.
    pub policies: Vec<ComparedPolicy>,
    /// At most 10 keys: those that are newly refused most.
    pub keys_newly_refused: Vec<ComparedKey>,
    /// At most 10 keys: those that are no longer refused most.
    pub keys_no_longer_refused: Vec<ComparedKey>,
    /// Maximum excess of the counts of keys.
    pub keys_excess: u64,
    /// Results over time.
    pub timeline: ComparedTimeline,
}

/// Results of one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedPolicy {
    /// The name.
    pub policy: String,
    /// By the policies of the app.
    pub today: ComparedCounts,
    /// By the draft.
    pub new: ComparedCounts,
    /// Refused by the draft only.
    pub newly_refused: u64,
    /// Refused by the policies of the app only.
    pub no_longer_refused: u64,
}

/// Requests of one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedCounts {
    /// Requests that the policy guards.
    pub requests: u64,
    /// Requests that are refused.
    pub refused: u64,
}

/// A policy that was not decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedUndecided {
    /// The name.
    pub policy: String,
    /// Number of lines that it matches.
    pub lines: u64,
}

/// A key for which the draft decides otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedKey {
    /// The policy.
    pub policy: String,
    /// The key; null: the budget that all share.
    pub key: Option<String>,
    /// Number of its requests that are decided otherwise.
    pub requests: u64,
}

/// Results over time, in buckets of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedTimeline {
    /// Length of a bucket, in µs.
    pub bucket_us: u64,
    /// At most 400 buckets, from the first request to the last.
    pub buckets: Vec<ComparedBucket>,
}

/// Results in one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ComparedBucket {
    /// Begin of the bucket, in µs since 1970.
    pub at_us: u64,
    /// By the policies of the app.
    pub today: BucketCounts,
    /// By the draft.
    pub new: BucketCounts,
}

/// Requests in one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct BucketCounts {
    /// Requests that pass.
    pub allowed: u64,
    /// Requests that are refused.
    pub refused: u64,
}

/// Reason why nothing can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIfError {
    /// The log holds events, not lines of an access log.
    Events,
    /// The log cannot be read at all.
    Unreadable(String),
    /// Neither side has a policy of this name.
    UnknownPolicy(String),
    /// One side has this many policies, none with a `match`, and none was chosen.
    PolicyMissing(usize),
    /// Logs do not have this attribute, which keys are made of.
    NotLogged(String),
    /// No what-if on this server.
    Unavailable,
}

/// Runs policies on logs.
pub trait WhatIf: Send + Sync + fmt::Debug {
    /// Compares both sides. Takes seconds, and blocks the thread.
    ///
    /// # Errors
    /// [`WhatIfError`].
    fn compare(&self, question: ToCompare) -> Result<Comparison, WhatIfError>;
}

/// No what-if: the catalog alone.
#[derive(Clone, Copy, Debug)]
pub struct NoWhatIf;

impl WhatIf for NoWhatIf {
    fn compare(&self, _: ToCompare) -> Result<Comparison, WhatIfError> {
        Err(WhatIfError::Unavailable)
    }
}

/// The last logs that were sent, one of each actor.
#[derive(Debug, Default)]
pub(super) struct KeptLogs(Mutex<Vec<KeptLog>>);

#[derive(Debug)]
struct KeptLog {
    id: String,
    /// Key of the actor that sent it.
    owner: String,
    bytes: Bytes,
    /// Time until which it is kept, in milliseconds since 1970.
    until: i64,
}

impl KeptLogs {
    /// Keeps `bytes` for `owner` in place of the log before, and returns the id. The oldest logs make room.
    pub(super) fn keep(&self, owner: String, bytes: Bytes, now: i64) -> String {
        let id = Uuid::new_v4().simple().to_string();
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|log| log.owner != owner && now < log.until);
        let size = |log: &KeptLog| log.bytes.len().max(KEPT_BYTES_MIN);
        logs.push(KeptLog { id: id.clone(), owner, bytes, until: now + KEPT_MS });
        while logs.iter().map(size).sum::<usize>() > KEPT_BYTES_MAX {
            logs.remove(0);
        }
        id
    }

    /// Returns the log of `owner` with this id, if it is still kept.
    pub(super) fn get(&self, owner: &str, id: &str, now: i64) -> Option<Bytes> {
        self.forget(now);
        let logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = logs.iter().find(|log| log.owner == owner && log.id == id);
        found.map(|log| log.bytes.clone())
    }

    /// Forgets logs whose time is over.
    pub(super) fn forget(&self, now: i64) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|log| now < log.until);
    }
}

impl fmt::Debug for ToCompare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToCompare").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(length: usize) -> Bytes {
        Bytes::from(vec![b'x'; length])
    }

    #[test]
    fn a_log_is_kept_for_its_owner_for_a_quarter_of_an_hour() {
        let logs = KeptLogs::default();
        let id = logs.keep("account:a".to_owned(), bytes(5), 1_000);
        assert_eq!(logs.get("account:a", &id, 1_000 + KEPT_MS - 1), Some(bytes(5)));
        assert_eq!(logs.get("account:b", &id, 1_000), None);
        assert_eq!(logs.get("account:a", &id, 1_000 + KEPT_MS), None);
        assert_eq!(logs.get("account:a", &id, 1_000), None, "it was forgotten");
    }

    #[test]
    fn the_next_log_of_an_owner_takes_the_place_of_the_one_before() {
        let logs = KeptLogs::default();
        let before = logs.keep("account:a".to_owned(), bytes(5), 0);
        let after = logs.keep("account:a".to_owned(), bytes(6), 0);
        assert_eq!(logs.get("account:a", &before, 0), None);
        assert_eq!(logs.get("account:a", &after, 0), Some(bytes(6)));
    }

    #[test]
    fn the_oldest_logs_make_room() {
        let logs = KeptLogs::default();
        let names: Vec<_> = (0..1_100).map(|owner| format!("account:{owner}")).collect();
        let ids: Vec<_> = names.iter().map(|name| logs.keep(name.clone(), bytes(0), 0)).collect();
        let kept = names.iter().zip(&ids).map(|(name, id)| logs.get(name, id, 0).is_some());
        let kept: Vec<_> = kept.collect();
        let most = KEPT_BYTES_MAX / KEPT_BYTES_MIN;
        assert_eq!(kept.iter().filter(|is_kept| **is_kept).count(), most);
        assert!(kept[1_100 - most..].iter().all(|is_kept| *is_kept));
        let id = logs.keep("account:large".to_owned(), bytes(KEPT_BYTES_MAX), 0);
        assert!(logs.get("account:large", &id, 0).is_some());
        assert!(logs.get(&names[1_099], &ids[1_099], 0).is_none());
    }
}
