//! Why a limiter cannot be made, and why a caller did not pass.

use sluicegate_kernel::{Micros, RangeError};

use crate::wait::WAITERS_MAX;

/// A rule that a [`RateLimiter`](crate::RateLimiter) cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// A number is outside its range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// A concurrency rule hands out permits; use [`ConcurrencyLimiter`](crate::ConcurrencyLimiter).
    #[error("rule: `concurrency` is not supported; use `ConcurrencyLimiter`")]
    Permits,
    /// A calendar window needs a time zone; use an engine.
    #[error("rule: a calendar window needs a policy; use the engine")]
    Calendar,
    /// The present rule has no rate; give it another rule.
    #[error("rate: a `{0}` rule has no rate; use a limiter with another rule")]
    NoRate(&'static str),
}

/// Why permits were not acquired. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The number of permits is no cost: not within 1..=2^31.
    #[error(transparent)]
    Cost(#[from] RangeError),
    /// More permits than the rule ever lets pass at once.
    #[error("cost: `{cost}` exceeds the limit of {limit}")]
    CostAboveLimit {
        /// What was asked for.
        cost: u64,
        /// The most that ever passes.
        limit: u64,
    },
    /// [`WAITERS_MAX`] callers wait already.
    #[error("limit reached: at most {WAITERS_MAX} callers can wait")]
    QueueFull,
    /// It would not pass within the time given.
    #[error("not allowed within the given time; retry {retry_after} after it")]
    TooSlow {
        /// How much longer it would have to wait, at least.
        retry_after: Micros,
    },
}
