//! Booking permits ahead of time.

use std::time::Duration;

use sluicegate_kernel::{Ask, Cost, Decision, Micros, Outcome, Retry, State};

use super::{AcquireError, RateLimiter};
use crate::clock::Clock;

/// Permits that are booked: go on after [`wait`](Self::wait), or [`cancel`](Self::cancel).
///
/// Dropping it leaves the booking as it is.
#[derive(Debug)]
#[must_use = "the permits are reserved: wait, or cancel the reservation"]
pub struct Reservation<'a, C: Clock> {
    limiter: &'a RateLimiter<C>,
    decision: Decision,
    ready_at: Micros,
    undo: Option<Undo>,
}

/// The states that are needed to cancel a booking.
#[derive(Debug)]
struct Undo {
    rule_changes: u64,
    before: Option<State>,
    after: Option<State>,
}

impl<C: Clock> RateLimiter<C> {
    /// Takes `permits` at once by booking the future: the reservation contains the wait before
    /// going on, at most `max_wait`. Token buckets, leaky buckets and Guava's limiters can do that;
    /// under the others it passes now or not at all. While callers wait in line it is refused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sluicegate::RateLimiter;
    ///
    /// let limiter = RateLimiter::per_second(10)?;
    /// let all = limiter.reserve(10, Duration::ZERO)?;
    /// let next = limiter.reserve(1, Duration::from_secs(1))?;
    /// assert!(next.wait() > Duration::ZERO && next.wait() <= Duration::from_millis(100));
    /// assert!(next.cancel(), "nobody has booked after it");
    /// assert!(!all.cancel(), "its time has come");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TooSlow`] if it would have to wait for longer; [`AcquireError::Cost`] and
    /// [`AcquireError::CostAboveLimit`] as for [`try_acquire_n`](Self::try_acquire_n).
    pub fn reserve(
        &self,
        permits: u32,
        max_wait: impl Into<Micros>,
    ) -> Result<Reservation<'_, C>, AcquireError> {
        let cost = Cost::new(permits.into())?;
        let ask = Ask::reserve(cost, max_wait.into());
        let mut held = self.hold();
        let (now, before) = (held.now, held.desk.budget.state().cloned());
        let decision = match held.refused_behind_line(&ask) {
            Some(refused) => refused,
            None => held.desk.budget.take(&ask, now),
        };
        let wait = match decision.outcome {
            Outcome::Allow { wait, .. } => wait,
            Outcome::Deny { retry: Retry::After(retry_after) } => {
                return Err(AcquireError::TooSlow { retry_after });
            }
            Outcome::Deny { retry: Retry::Never } => {
                let (cost, limit) = (cost.get(), decision.limit);
                return Err(AcquireError::CostAboveLimit { cost, limit });
            }
        };
        // Settled first, so that the state has the form in which `cancel` will find it.
        held.settle();
        let undo = (wait > Micros::ZERO).then(|| Undo {
            rule_changes: held.desk.budget.rule_changes(),
            before,
            after: held.desk.budget.state().cloned(),
        });
        drop(held);
        Ok(Reservation { limiter: self, decision, ready_at: now.plus(wait), undo })
    }
}

impl<C: Clock> Reservation<'_, C> {
    /// The wait from the booking until going on.
    pub fn wait(&self) -> Duration {
        self.decision.wait().into()
    }

    /// The instant at which to go on, by the limiter's clock.
    pub fn ready_at(&self) -> Micros {
        self.ready_at
    }

    /// The decision that booked it.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Gives all of it back, as if it had never been booked, and returns whether it did. That is possible
    /// until its time has come, and only if nothing else was taken or given back since, because later
    /// bookings wait for this one. `false`: the booking stands.
    pub fn cancel(self) -> bool {
        let Self { limiter, decision: _, ready_at, undo } = self;
        let Some(Undo { rule_changes, before, after }) = undo else { return false };
        let mut held = limiter.hold();
        let budget = &mut held.desk.budget;
        let untouched = budget.rule_changes() == rule_changes && budget.state() == after.as_ref();
        let in_time = untouched && held.now < ready_at;
        if in_time {
            held.desk.budget.restore(before);
            held.call_first();
        }
        in_time
    }
}
