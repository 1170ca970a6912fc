//! One budget for one process.
//!
//! Read it in this order: [`RateLimiter`] here, `budget` (rule and state, and the kernel deciding on
//! them), `fast_path` (the lane: the same for the commonest rule, without a lock), `acquire` (waiting
//! for permits), `reservation` (booking them ahead).
//!
//! A smooth token bucket is decided in the lane: one atomic word. Everything else — another
//! algorithm, a booking, a refund, a change of the rule, callers that wait — closes the lane, is
//! decided by the kernel under a lock, and opens the lane again if it can.

mod acquire;
mod budget;
mod error;
mod fast_path;
mod reservation;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use acquire::{Asked, WaitTerms};
pub use error::{AcquireError, LimiterError};
pub use reservation::Reservation;
use sluicegate_kernel::{
    Ask, Cost, Decision, Micros, Moment, Outcome, Rate, Retry, Rule, TokenBucket,
};

use self::budget::LimiterBudget;
use self::fast_path::{FastCheck, FastPath, Terms};
use crate::clock::{Clock, MonotonicClock};
use crate::wait::{Calls, WaitQueue};

/// The atomics of the lane, in one place so that a model checker can replace them.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

/// One budget, shared by all holders of a reference to it.
///
/// ```
/// use sluicegate::RateLimiter;
///
/// let limiter = RateLimiter::per_second(100)?;
/// if limiter.try_acquire() {
///     // at most 100 at once, and 100 a second
/// }
/// # Ok::<(), sluicegate::LimiterError>(())
/// ```
///
/// Every rule is supported, except `concurrency` and calendar windows:
///
/// ```
/// use sluicegate::{LeakyBucket, Micros, Rate, RateLimiter, SlidingWindow};
///
/// let hourly = RateLimiter::new(SlidingWindow::new(1_000, Micros::from_secs(3_600), 60)?)?;
/// assert!(hourly.try_acquire_n(600)?);
/// assert!(!hourly.try_acquire_n(600)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Callers that wait (`acquire`, [`acquire_blocking`](Self::acquire_blocking)) are served in the order
/// in which they came, threads and tasks in one line; while a caller waits, none passes it.
/// Nothing is booked for them, so a future that is dropped leaves no trace. Timers ring up
/// to a millisecond late: for waiters to reach the full rate, let the burst be worth some of them.
///
/// A smooth token bucket on a clock that never goes back is decided without a lock, in about the
/// time it takes to read the clock.
pub struct RateLimiter<C = MonotonicClock> {
    lane: FastPath,
    desk: Mutex<LimiterState>,
    clock: C,
}

/// The part of a limiter under its lock.
#[derive(Debug)]
struct LimiterState {
    budget: LimiterBudget,
    line: WaitQueue,
}

/// The desk, with the lane closed for as long as it is held.
struct LimiterGuard<'a, C: Clock> {
    limiter: &'a RateLimiter<C>,
    desk: MutexGuard<'a, LimiterState>,
    now: Micros,
    settled: bool,
}

impl RateLimiter {
    /// Returns a limiter of at most `permits` at once and `permits` a second, on the monotonic clock.
    ///
    /// # Errors
    /// [`LimiterError::Range`] unless `1 <= permits <= 2^32`.
    pub fn per_second(permits: u64) -> Result<Self, LimiterError> {
        Self::new(TokenBucket::new(Rate::per_second(permits)?, permits)?)
    }

    /// Returns a limiter under `rule`, on the monotonic clock.
    ///
    /// # Errors
    /// [`LimiterError`] for a concurrency rule or a calendar window.
    pub fn new(rule: impl Into<Rule>) -> Result<Self, LimiterError> {
        Self::with_clock(rule, MonotonicClock)
    }
}

impl<C: Clock> RateLimiter<C> {
    /// Returns a limiter under `rule`, with the time of `clock`.
    ///
    /// # Errors
    /// [`LimiterError`] for a concurrency rule or a calendar window.
    pub fn with_clock(rule: impl Into<Rule>, clock: C) -> Result<Self, LimiterError> {
        let rule = servable(rule.into())?;
        let desk = LimiterState {
            budget: LimiterBudget::new(rule, clock.now()),
            line: WaitQueue::default(),
        };
        let limiter = Self { lane: FastPath::closed(), desk: Mutex::new(desk), clock };
        drop(limiter.hold());
        Ok(limiter)
    }

    /// Takes one permit, if it may pass now; returns whether it did.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        match self.lane.take(1, || self.clock.now().get()) {
            FastCheck::Taken { .. } => true,
            FastCheck::Refused { .. } => false,
            FastCheck::Closed => self.passes_at_desk(),
        }
    }

    /// Takes `permits`, all of them, if they may pass now; returns whether they did.
    ///
    /// # Errors
    /// [`AcquireError::Cost`] unless `1 <= permits <= 2^31`; [`AcquireError::CostAboveLimit`] if they
    /// can never pass under this rule.
    pub fn try_acquire_n(&self, permits: u32) -> Result<bool, AcquireError> {
        let cost = Cost::new(permits.into())?;
        let taking = self.lane.take(cost.get(), || self.clock.now().get());
        let decision = match taking {
            FastCheck::Taken { .. } => return Ok(true),
            FastCheck::Refused { used, terms } => refused(cost, used, &terms),
            FastCheck::Closed => self.decide(&Ask::reserve(cost, Micros::ZERO)),
        };
        match decision.outcome {
            Outcome::Deny { retry: Retry::Never } => {
                Err(AcquireError::CostAboveLimit { cost: cost.get(), limit: decision.limit })
            }
            Outcome::Deny { .. } => Ok(false),
            Outcome::Allow { .. } => Ok(true),
        }
    }

    /// Takes `cost`, or refuses, and returns the decision with the permits that are left.
    ///
    /// Under a leaky bucket that delays, an allowed decision has a
    /// [`wait`](Decision::wait): delay the request by it. (The other methods count
    /// that as not passing now.)
    pub fn check(&self, cost: Cost) -> Decision {
        match self.lane.take(cost.get(), || self.clock.now().get()) {
            FastCheck::Taken { used, terms } => {
                let granted = Outcome::Allow { granted: cost.get(), wait: Micros::ZERO };
                decision(granted, used, &terms)
            }
            FastCheck::Refused { used, terms } => refused(cost, used, &terms),
            FastCheck::Closed => self.decide(&Ask::check(cost)),
        }
    }

    /// Takes the permits that are left now, up to `cost`; [`Decision::granted`] is their number.
    pub fn at_most(&self, cost: Cost) -> Decision {
        let mut held = self.hold();
        let now = held.now;
        match held.refused_behind_line(&Ask::reserve(Cost::ONE, Micros::ZERO)) {
            Some(refused) => refused,
            None => held.desk.budget.take_up_to(cost, now),
        }
    }

    /// Returns the answer that [`check`](Self::check) would give; changes nothing.
    pub fn peek(&self, cost: Cost) -> Decision {
        let desk = lock(&self.desk);
        let in_lane = desk.budget.peek_closed(&self.lane);
        let budget = in_lane.as_ref().unwrap_or(&desk.budget);
        let (ask, now) = (Ask::check(cost), self.clock.now());
        refused_behind_line(&desk.line, budget, &ask, now).unwrap_or_else(|| budget.peek(&ask, now))
    }

    /// Gives `cost` back, never above full. The decision contains the number of permits, a part of a permit
    /// counting as one.
    pub fn refund(&self, cost: Cost) -> Decision {
        let mut held = self.hold();
        let now = held.now;
        let decision = held.desk.budget.refund(cost, now);
        held.call_first();
        decision
    }

    /// Puts `rule` in force from now on. Usage is kept (Guava's stored permits are
    /// rescaled), and the first caller in line asks again under the new rule.
    ///
    /// # Errors
    /// [`LimiterError`] for a concurrency rule or a calendar window; the old rule stays.
    pub fn set_rule(&self, rule: impl Into<Rule>) -> Result<(), LimiterError> {
        let rule = servable(rule.into())?;
        let mut held = self.hold();
        let now = held.now;
        held.desk.budget.set_rule(rule, now);
        held.call_first();
        Ok(())
    }

    /// Changes only the rate of a rule that has one (buckets and Guava's two); for other
    /// rules there is [`set_rule`](Self::set_rule).
    ///
    /// # Errors
    /// [`LimiterError::NoRate`] if the rule has none; it stays as it is.
    pub fn set_rate(&self, rate: Rate) -> Result<(), LimiterError> {
        let mut held = self.hold();
        let now = held.now;
        let old = held.desk.budget.rule();
        let rule = old.with_rate(rate).ok_or(LimiterError::NoRate(old.algorithm()))??;
        held.desk.budget.set_rule(rule, now);
        held.call_first();
        Ok(())
    }

    /// The rule in force.
    pub fn rule(&self) -> Rule {
        lock(&self.desk).budget.rule().clone()
    }

    /// Number of callers that wait.
    pub fn waiting(&self) -> usize {
        lock(&self.desk).line.len()
    }

    /// The clock of the limiter.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Decides under the lock; not inlined, so that the code of the lane stays small enough to be.
    #[cold]
    #[inline(never)]
    fn passes_at_desk(&self) -> bool {
        self.decide(&Ask::reserve(Cost::ONE, Micros::ZERO)).allowed()
    }

    fn decide(&self, ask: &Ask) -> Decision {
        let mut held = self.hold();
        let now = held.now;
        match held.refused_behind_line(ask) {
            Some(refused) => refused,
            None => held.desk.budget.take(ask, now),
        }
    }

    /// Closes the lane and takes the lock; the time is read after both.
    fn hold(&self) -> LimiterGuard<'_, C> {
        let mut desk = lock(&self.desk);
        desk.budget.close(&self.lane);
        LimiterGuard { limiter: self, desk, now: self.clock.now(), settled: false }
    }
}

impl<C: Clock> LimiterGuard<'_, C> {
    /// Opens the lane if it can be; otherwise leaves it closed. After this the budget must not be used:
    /// the state in the lane must not be overwritten from here.
    fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        if self.desk.line.is_empty() && self.limiter.clock.is_monotonic() {
            self.desk.budget.open(&self.limiter.lane, self.now);
        }
    }

    fn refused_behind_line(&self, ask: &Ask) -> Option<Decision> {
        refused_behind_line(&self.desk.line, &self.desk.budget, ask, self.now)
    }

    /// Releases the lock and wakes the first in line.
    fn call_first(mut self) {
        let calls = self.desk.line.call_first();
        self.release(calls);
    }

    /// Releases the lock and makes `calls`.
    fn release(self, calls: Calls) {
        drop(self);
        calls.make();
    }
}

impl<C: Clock> Drop for LimiterGuard<'_, C> {
    fn drop(&mut self) {
        self.settle();
    }
}

impl<C: Clock> fmt::Debug for RateLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let desk = lock(&self.desk);
        f.debug_struct("RateLimiter")
            .field("rule", desk.budget.rule())
            .field("waiting", &desk.line.len())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// The desk, also after a panic elsewhere: the state is written in one assignment.
fn lock(desk: &Mutex<LimiterState>) -> MutexGuard<'_, LimiterState> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn servable(rule: Rule) -> Result<Rule, LimiterError> {
    if rule.holds_permits() {
        return Err(LimiterError::Permits);
    }
    if rule.calendar().is_some() {
        return Err(LimiterError::Calendar);
    }
    Ok(rule)
}

/// Returns the refusal of a caller that has not waited, while others wait: not before the first of them.
fn refused_behind_line(
    line: &WaitQueue,
    budget: &LimiterBudget,
    ask: &Ask,
    now: Micros,
) -> Option<Decision> {
    let first = Ask::reserve(line.first_cost()?, Micros::ZERO);
    let soonest = Retry::After(Micros::new(1));
    let retry_of = |ask| match budget.peek(ask, now).outcome {
        Outcome::Deny { retry } => retry.max(soonest),
        Outcome::Allow { .. } => soonest,
    };
    let retry = match (retry_of(ask), retry_of(&first)) {
        // A first in line that can never pass is about to leave.
        (own, Retry::Never) => own,
        (own, first) => own.max(first),
    };
    Some(budget.decision(Outcome::Deny { retry }, &Moment::new(now)))
}

/// Returns the refusal of `cost` by a bucket in the lane.
fn refused(cost: Cost, used: u64, terms: &Terms) -> Decision {
    let weight = cost.get().saturating_mul(terms.per_permit);
    let retry = if weight > terms.depth {
        Retry::Never
    } else {
        Retry::After(time_for(used + weight - terms.depth, terms))
    };
    decision(Outcome::Deny { retry }, used, terms)
}

/// Returns `outcome` with the rest of a bucket in the lane, equal to the kernel's decision.
fn decision(outcome: Outcome, used: u64, terms: &Terms) -> Decision {
    Decision {
        outcome,
        limit: terms.depth / terms.per_permit,
        remaining: terms.depth.saturating_sub(used) / terms.per_permit,
        reset_after: time_for(used, terms),
    }
}

fn time_for(units: u64, terms: &Terms) -> Micros {
    Micros::new(units.div_ceil(terms.per_us)).capped()
}
