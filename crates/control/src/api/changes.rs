//! Limits on changes. Every change is kept with the state before it, so without them the right to change
//! something would be the right to fill the disk.

use std::num::NonZeroU32;
use std::sync::Arc;

use sluicegate::{Clock, Cost, KeyedRateLimiter, Micros};

use super::attempts::limiter;
use super::problem::ApiProblem;
use crate::access::{Action, Actor};
use sluicegate_policy::{Finding, finding};

/// Changes of one account or token in a minute, unless configured otherwise. A person makes a few
/// and a pipeline some dozens; one that runs wild adds 43,000 entries of under a KB a day to the audit.
const PER_MINUTE: u32 = 30;

/// Minutes whose changes may be made at once: a pipeline sends all its changes at its start.
const AT_ONCE_MINUTES: u64 = 10;

/// Bytes that are sent for changes in one app: at once, and in an hour. Twice the largest body at once, and
/// 384 MiB in a day.
const BYTES_MAX: u64 = 16 << 20;

/// Limiters of changes.
#[derive(Debug)]
pub(super) struct Changes {
    of_actor: KeyedRateLimiter<str>,
    per_minute: u64,
    bytes_of_app: KeyedRateLimiter<str>,
}

impl Changes {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        let per_minute = NonZeroU32::new(PER_MINUTE).expect("some may be made");
        Self::per_minute(per_minute, clock)
    }

    /// Creates limiters that allow this many changes of one account or token in a minute.
    pub(super) fn per_minute(per_minute: NonZeroU32, clock: &Arc<dyn Clock>) -> Self {
        let per_minute = u64::from(per_minute.get());
        let at_once = AT_ONCE_MINUTES * per_minute;
        Self {
            of_actor: limiter(at_once, per_minute, Micros::from_secs(60), clock),
            per_minute,
            bytes_of_app: limiter(BYTES_MAX, BYTES_MAX, Micros::from_secs(60 * 60), clock),
        }
    }

    /// Counts a change by `actor`. Unauthenticated actors are not counted; a sign-in counts once the account is known.
    ///
    /// # Errors
    /// 429 if it has changed too much lately.
    pub(super) fn count(&self, actor: &Actor, action: Action) -> Result<(), ApiProblem> {
        // Signing out is always possible.
        if matches!(actor, Actor::Nobody) || action == Action::SignOut || !action.writes() {
            return Ok(());
        }
        let (at_once, a_minute) = (AT_ONCE_MINUTES * self.per_minute, self.per_minute);
        take(&self.of_actor, &actor.key(), Cost::ONE, || {
            finding!(
                "too_many_changes",
                "limit reached: at most {at_once} changes at once and {a_minute} a minute per account \
                 or token (`catalog.changes_per_minute`)",
                at_once,
                a_minute
            )
        })
    }

    /// Counts the bytes that are sent for a change in `app`.
    ///
    /// # Errors
    /// 429 if they are too many.
    pub(super) fn count_bytes(&self, app: &str, bytes: usize) -> Result<(), ApiProblem> {
        // A body is smaller than the largest cost.
        let Ok(cost) = Cost::new(bytes as u64) else { return Ok(()) };
        take(&self.bytes_of_app, app, cost, || {
            finding!(
                "too_many_bytes_of_changes",
                "limit reached: at most {max} bytes of changes an hour per app",
                max = BYTES_MAX
            )
        })
    }
}

fn take(
    limiter: &KeyedRateLimiter<str>,
    key: &str,
    cost: Cost,
    problem: impl FnOnce() -> Finding,
) -> Result<(), ApiProblem> {
    let decision = limiter.check(key, cost);
    if decision.allowed() {
        return Ok(());
    }
    let seconds = decision.retry_after().map_or(60, |span| span.ceil_secs().max(1));
    Err(ApiProblem::again_in(seconds, problem()))
}
