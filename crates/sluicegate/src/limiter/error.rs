//! Errors of a limiter that cannot be made, and of a caller that did not pass.

use sluicegate_kernel::{Micros, RangeError, RuleSetError};

use crate::wait::WAITERS_MAX;

/// A rule that a limiter cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// A number is outside its range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The names of rules are not good, or there are too many rules.
    #[error("rules: {0}")]
    Rules(#[from] RuleSetError),
    /// A concurrency rule hands out permits; use [`ConcurrencyLimiter`](crate::ConcurrencyLimiter), or an engine
    /// for permits of each key.
    #[error(
        "rule: `concurrency` is not supported; use `ConcurrencyLimiter`, or the engine for keys"
    )]
    Permits,
    /// A calendar window needs a time zone; use an engine.
    #[error("rule: a calendar window needs a policy; use the engine")]
    Calendar,
    /// The limiter's rule has no rate; set another rule.
    #[error("rate: a `{0}` rule has no rate; use a limiter with another rule")]
    NoRate(&'static str),
}

/// The reason for which permits were not acquired. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The number of permits is outside 1..=2^31.
    #[error(transparent)]
    Cost(#[from] RangeError),
    /// More permits than the rule ever lets pass at once.
    #[error("cost: `{cost}` exceeds the limit of {limit}")]
    CostAboveLimit {
        /// The requested permits.
        cost: u64,
        /// The most that ever passes.
        limit: u64,
    },
    /// [`WAITERS_MAX`] callers wait already.
    #[error("limit reached: at most {WAITERS_MAX} callers can wait")]
    QueueFull,
    /// The permits would not pass within the given time.
    #[error("not allowed within the given time; retry {retry_after} after it")]
    TooSlow {
        /// Least time, from the error on, after which another try can pass.
        retry_after: Micros,
    },
}
