//! Waiting for permits of a key: as a task, as a thread, with and without a time limit.

use std::hash::Hash;
use std::task::{Poll, Waker};
use std::time::Duration;

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_store::KeyHash;

use super::KeyedRateLimiter;
use crate::limiter::{AcquireError, Asked, WaitTerms};
use crate::wait::{Calls, QueuePlace, WaitQueue, block_on};

/// Waiting with `async` needs the feature `tokio`, whose timer wakes the first in line.
#[cfg(feature = "tokio")]
impl<K: Hash + ?Sized> KeyedRateLimiter<K> {
    /// Takes one permit of `key`, waiting for it if need be, and returns how long that took.
    ///
    /// The wait ends early, and without a trace, when the future is dropped. A future that is neither
    /// polled nor dropped holds up the line behind it, that of its key alone.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate::{KeyedRateLimiter, TokenBucket};
    ///
    /// let rule = TokenBucket::new("1000/s".parse()?, 1)?;
    /// let limiter = KeyedRateLimiter::<str>::new(rule, 100_000)?;
    /// let waited = limiter.acquire("alice").await?;
    /// assert!(waited.is_zero());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already, over all keys.
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn acquire(&self, key: &K) -> Result<Duration, AcquireError> {
        self.acquire_within(key, Cost::ONE, None).await
    }

    /// Takes `permits` of `key`, all of them, waiting for them if need be, and returns how long that took.
    ///
    /// # Errors
    /// [`AcquireError::Cost`] unless `1 <= permits <= 2^31`; [`AcquireError::CostAboveLimit`] at once
    /// if they can never pass; [`AcquireError::QueueFull`] if too many wait already, over all keys.
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn acquire_n(&self, key: &K, permits: u32) -> Result<Duration, AcquireError> {
        self.acquire_within(key, Cost::new(permits.into())?, None).await
    }

    /// Takes `permits` of `key`, waiting for up to `timeout`, and returns how long that took. It gives up as
    /// soon as it is the first in line and knows that it would be too late.
    ///
    /// # Errors
    /// As [`acquire_n`](Self::acquire_n), and [`AcquireError::TooSlow`].
    ///
    /// # Panics
    /// Where it has to wait outside a tokio runtime with its timer enabled.
    pub async fn try_acquire_within(
        &self,
        key: &K,
        permits: u32,
        timeout: impl Into<Micros>,
    ) -> Result<Duration, AcquireError> {
        self.acquire_within(key, Cost::new(permits.into())?, Some(timeout.into())).await
    }

    async fn acquire_within(
        &self,
        key: &K,
        cost: Cost,
        patience: Option<Micros>,
    ) -> Result<Duration, AcquireError> {
        let mut waiting = KeyWaiter::new(self, key, cost, patience)?;
        crate::wait::wait(&self.clock, |waker, look_again| waiting.poll(waker, look_again)).await
    }
}

impl<K: Hash + ?Sized> KeyedRateLimiter<K> {
    /// Takes one permit of `key`, blocking this thread for it if need be, and returns how long that took.
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already, over all keys.
    pub fn acquire_blocking(&self, key: &K) -> Result<Duration, AcquireError> {
        self.acquire_within_blocking(key, Cost::ONE, None)
    }

    /// Takes `permits` of `key`, blocking this thread for up to `timeout`, and returns how long that took. It
    /// gives up as soon as it is the first in line and knows that it would be too late.
    ///
    /// # Errors
    /// [`AcquireError::Cost`] unless `1 <= permits <= 2^31`; [`AcquireError::CostAboveLimit`] at once
    /// if they can never pass; [`AcquireError::QueueFull`] if too many wait already, over all keys;
    /// [`AcquireError::TooSlow`].
    pub fn try_acquire_within_blocking(
        &self,
        key: &K,
        permits: u32,
        timeout: impl Into<Micros>,
    ) -> Result<Duration, AcquireError> {
        self.acquire_within_blocking(key, Cost::new(permits.into())?, Some(timeout.into()))
    }

    fn acquire_within_blocking(
        &self,
        key: &K,
        cost: Cost,
        patience: Option<Micros>,
    ) -> Result<Duration, AcquireError> {
        let mut waiting = KeyWaiter::new(self, key, cost, patience)?;
        block_on(&self.clock, |waker, look_again| waiting.poll(waker, look_again))
    }
}

/// A caller that waits for a key, or is about to. Dropping it gives its place back.
struct KeyWaiter<'a, K: Hash + ?Sized> {
    limiter: &'a KeyedRateLimiter<K>,
    key: KeyHash,
    terms: WaitTerms,
    place: QueuePlace,
}

impl<'a, K: Hash + ?Sized> KeyWaiter<'a, K> {
    fn new(
        limiter: &'a KeyedRateLimiter<K>,
        key: &K,
        cost: Cost,
        patience: Option<Micros>,
    ) -> Result<Self, AcquireError> {
        if !limiter.lines.enter() {
            return Err(AcquireError::QueueFull);
        }
        let (key, terms) = (limiter.store.hash_of(key), WaitTerms::new(cost, patience));
        Ok(Self { limiter, key, terms, place: QueuePlace::default() })
    }

    /// Asks for the permits, if it is its turn. When pending, sets `look_again` to the instant of the next poll,
    /// unless `waker` is used before.
    fn poll(
        &mut self,
        waker: &Waker,
        look_again: &mut Option<Micros>,
    ) -> Poll<Result<Duration, AcquireError>> {
        let (limiter, key) = (self.limiter, self.key);
        let (result, calls) = limiter.lines.with(key, |line| match self.ask(line) {
            Ok(passed) => (Poll::Ready(passed), line.leave(&mut self.place)),
            Err(at) => match line.wait(&mut self.place, self.terms.cost, waker) {
                Ok(calls) => {
                    *look_again = at;
                    (Poll::Pending, calls)
                }
                Err(_) => (Poll::Ready(Err(AcquireError::QueueFull)), Calls::default()),
            },
        });
        calls.make();
        result
    }

    fn ask(&mut self, line: &WaitQueue) -> Asked {
        let (now, cost) = (self.limiter.clock.now(), self.terms.cost);
        let its_turn = line.is_turn_of(&self.place);
        let verb = match its_turn {
            // A wait that the rule requires (a leaky bucket's) is spent in line too, unbooked.
            true => Verb::Reserve { cost, max_wait: Micros::ZERO },
            false => Verb::Peek { cost },
        };
        let decision = self.limiter.decide(self.key, &verb, now).decision;
        self.terms.after(&decision, its_turn, now)
    }
}

impl<K: Hash + ?Sized> Drop for KeyWaiter<'_, K> {
    fn drop(&mut self) {
        if self.place.is_taken() {
            self.limiter.lines.with(self.key, |line| line.leave(&mut self.place)).make();
        }
        self.limiter.lines.exit();
    }
}
