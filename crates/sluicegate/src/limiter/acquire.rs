//! Waiting for permits: as a task, as a thread, with and without a time limit.

use std::task::{Poll, Waker};
use std::time::Duration;

use sluicegate_kernel::{Ask, Cost, Decision, Micros, Outcome, Retry};

use super::fast_path::FastCheck;
use super::{AcquireError, LimiterGuard, RateLimiter};
use crate::clock::Clock;
use crate::wait::{Calls, QueuePlace, block_on};

/// Waiting with `async` needs the feature `tokio`, whose timer wakes the first in line.
#[cfg(feature = "tokio")]
impl<C: Clock> RateLimiter<C> {
    /// Takes one permit, waiting for it if need be, and returns how long that took.
    ///
    /// The wait ends early, and without a trace, when the future is dropped. A future that is neither
    /// polled nor dropped holds up the line behind it.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let limiter = sluicegate::RateLimiter::per_second(1_000)?;
    /// let waited = limiter.acquire().await?;
    /// assert!(waited.is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already.
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn acquire(&self) -> Result<Duration, AcquireError> {
        self.acquire_within(Cost::ONE, None).await
    }

    /// Takes `permits`, all of them, waiting for them if need be, and returns how long that took.
    ///
    /// # Errors
    /// [`AcquireError::Cost`] unless `1 <= permits <= 2^31`; [`AcquireError::CostAboveLimit`] at once
    /// if they can never pass; [`AcquireError::QueueFull`] if too many wait already.
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn acquire_n(&self, permits: u32) -> Result<Duration, AcquireError> {
        self.acquire_within(Cost::new(permits.into())?, None).await
    }

    /// Takes `permits`, waiting for up to `timeout`, and returns how long that took. It gives up as soon
    /// as it is the first in line and knows that it would be too late.
    ///
    /// # Errors
    /// As [`acquire_n`](Self::acquire_n), and [`AcquireError::TooSlow`].
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn try_acquire_within(
        &self,
        permits: u32,
        timeout: impl Into<Micros>,
    ) -> Result<Duration, AcquireError> {
        self.acquire_within(Cost::new(permits.into())?, Some(timeout.into())).await
    }

    async fn acquire_within(
        &self,
        cost: Cost,
        patience: Option<Micros>,
    ) -> Result<Duration, AcquireError> {
        if self.passes_at_once(cost) {
            return Ok(Duration::ZERO);
        }
        let mut waiting = AcquireWaiter::new(self, cost, patience);
        crate::wait::wait(&self.clock, |waker, look_again| waiting.poll(waker, look_again)).await
    }
}

impl<C: Clock> RateLimiter<C> {
    /// Takes one permit, blocking this thread for it if need be, and returns how long that took.
    ///
    /// ```
    /// let limiter = sluicegate::RateLimiter::per_second(1_000)?;
    /// let waited = limiter.acquire_blocking()?;
    /// assert!(waited.is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already.
    pub fn acquire_blocking(&self) -> Result<Duration, AcquireError> {
        self.pass_blocking(Cost::ONE, None)
    }

    /// Takes `permits`, all of them, blocking this thread if need be, and returns how long that took.
    ///
    /// # Errors
    /// [`AcquireError::Cost`] unless `1 <= permits <= 2^31`; [`AcquireError::CostAboveLimit`] at once
    /// if they can never pass; [`AcquireError::QueueFull`] if too many wait already.
    pub fn acquire_n_blocking(&self, permits: u32) -> Result<Duration, AcquireError> {
        self.pass_blocking(Cost::new(permits.into())?, None)
    }

    /// Takes `permits`, blocking this thread for up to `timeout`, and returns how long that took. It
    /// gives up as soon as it is the first in line and knows that it would be too late.
    ///
    /// # Errors
    /// As [`acquire_n_blocking`](Self::acquire_n_blocking), and [`AcquireError::TooSlow`].
    pub fn try_acquire_within_blocking(
        &self,
        permits: u32,
        timeout: impl Into<Micros>,
    ) -> Result<Duration, AcquireError> {
        self.pass_blocking(Cost::new(permits.into())?, Some(timeout.into()))
    }

    fn pass_blocking(
        &self,
        cost: Cost,
        patience: Option<Micros>,
    ) -> Result<Duration, AcquireError> {
        if self.passes_at_once(cost) {
            return Ok(Duration::ZERO);
        }
        let mut waiting = AcquireWaiter::new(self, cost, patience);
        block_on(&self.clock, |waker, look_again| waiting.poll(waker, look_again))
    }

    fn passes_at_once(&self, cost: Cost) -> bool {
        matches!(self.lane.take(cost.get(), || self.clock.now().get()), FastCheck::Taken { .. })
    }
}

/// A caller that waits, or is about to. Dropping it gives its place back.
struct AcquireWaiter<'a, C: Clock> {
    limiter: &'a RateLimiter<C>,
    terms: WaitTerms,
    place: QueuePlace,
}

/// The permits for which a caller waits, and its longest wait.
#[derive(Debug)]
pub(crate) struct WaitTerms {
    pub(crate) cost: Cost,
    patience: Option<Micros>,
    started: Option<Micros>,
}

impl<'a, C: Clock> AcquireWaiter<'a, C> {
    fn new(limiter: &'a RateLimiter<C>, cost: Cost, patience: Option<Micros>) -> Self {
        Self { limiter, terms: WaitTerms::new(cost, patience), place: QueuePlace::default() }
    }

    /// Asks for the permits, if it is its turn. When pending, sets `look_again` to the instant of the next poll,
    /// unless `waker` is used before.
    fn poll(
        &mut self,
        waker: &Waker,
        look_again: &mut Option<Micros>,
    ) -> Poll<Result<Duration, AcquireError>> {
        let mut held = self.limiter.hold();
        let (result, calls) = match self.ask(&mut held) {
            Ok(passed) => (Poll::Ready(passed), held.desk.line.leave(&mut self.place)),
            Err(at) => match held.desk.line.wait(&mut self.place, self.terms.cost, waker) {
                Ok(calls) => {
                    *look_again = at;
                    (Poll::Pending, calls)
                }
                Err(_) => (Poll::Ready(Err(AcquireError::QueueFull)), Calls::default()),
            },
        };
        held.release(calls);
        result
    }

    fn ask(&mut self, held: &mut LimiterGuard<'_, C>) -> Asked {
        let now = held.now;
        // A wait that the rule requires (a leaky bucket's) is spent in line too, unbooked.
        let ask = Ask::reserve(self.terms.cost, Micros::ZERO);
        let its_turn = held.desk.line.is_turn_of(&self.place);
        let budget = &mut held.desk.budget;
        let decision = if its_turn { budget.take(&ask, now) } else { budget.peek(&ask, now) };
        self.terms.after(&decision, its_turn, now)
    }
}

/// `Ok`: the wait is over, with this result. `Err`: the instant of the next try, if the caller is not called before.
pub(crate) type Asked = Result<Result<Duration, AcquireError>, Option<Micros>>;

impl WaitTerms {
    pub(crate) const fn new(cost: Cost, patience: Option<Micros>) -> Self {
        Self { cost, patience, started: None }
    }

    /// Returns the effect of `decision`, which took the permits if it is the caller's turn, else only peeked.
    pub(crate) fn after(&mut self, decision: &Decision, its_turn: bool, now: Micros) -> Asked {
        let started = *self.started.get_or_insert(now);
        let retry_after = match decision.outcome {
            Outcome::Allow { .. } if its_turn => return Ok(Ok(now.since(started).into())),
            Outcome::Allow { .. } => Micros::ZERO,
            Outcome::Deny { retry: Retry::After(span) } => span,
            Outcome::Deny { retry: Retry::Never } => {
                let (cost, limit) = (self.cost.get(), decision.limit);
                return Ok(Err(AcquireError::CostAboveLimit { cost, limit }));
            }
        };
        let at = now.plus(retry_after);
        match self.patience.map(|patience| started.plus(patience)) {
            Some(deadline) if now >= deadline || (its_turn && at > deadline) => {
                Ok(Err(AcquireError::TooSlow { retry_after }))
            }
            deadline => Err(if its_turn { Some(at) } else { deadline }),
        }
    }
}

impl<C: Clock> Drop for AcquireWaiter<'_, C> {
    fn drop(&mut self) {
        if self.place.is_taken() {
            let mut held = self.limiter.hold();
            let calls = held.desk.line.leave(&mut self.place);
            held.release(calls);
        }
    }
}
