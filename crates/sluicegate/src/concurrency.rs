//! Limits on the number of permits held at once, in this process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use sluicegate_kernel::limits::PERMITS_MAX;
use sluicegate_kernel::{Cost, RangeError};

use crate::clock::MonotonicClock;
use crate::limiter::AcquireError;
use crate::wait::{QueuePlace, WaitQueue, block_on};

/// At most `limit` permits held at once, each given back when it is dropped.
///
/// Callers that wait are served in the order in which they came, threads and tasks in one line; while
/// a caller waits, none passes it.
///
/// ```
/// use sluicegate::ConcurrencyLimiter;
///
/// let limiter = ConcurrencyLimiter::new(2)?;
/// let first = limiter.try_acquire().expect("there are two permits");
/// let second = limiter.try_acquire().expect("and this is the other");
/// assert!(limiter.try_acquire().is_none());
/// drop(first);
/// assert!(limiter.try_acquire().is_some());
/// # Ok::<(), sluicegate::RangeError>(())
/// ```
pub struct ConcurrencyLimiter {
    queue: Mutex<PermitQueue>,
}

#[derive(Debug)]
struct PermitQueue {
    limit: u64,
    held: u64,
    line: WaitQueue,
}

/// A permit of a [`ConcurrencyLimiter`]. Dropping it gives it back and calls the next in line.
#[derive(Debug)]
#[must_use = "a permit is given back as it is dropped"]
pub struct Permit<'a> {
    limiter: &'a ConcurrencyLimiter,
}

/// A [`Permit`] that can go wherever it likes, such as into a task.
#[derive(Debug)]
#[must_use = "a permit is given back as it is dropped"]
pub struct OwnedPermit {
    limiter: Arc<ConcurrencyLimiter>,
}

impl ConcurrencyLimiter {
    /// Returns a limiter that lets `limit` permits be held at once.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 2^32`.
    pub fn new(limit: u64) -> Result<Self, RangeError> {
        let limit = checked(limit)?;
        Ok(Self { queue: Mutex::new(PermitQueue { limit, held: 0, line: WaitQueue::default() }) })
    }

    /// Takes a permit, if one is free and no caller waits for it.
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        self.queue().enter(&QueuePlace::default()).then(|| Permit { limiter: self })
    }

    /// Takes a permit that is not bound to this reference, if one is free and no caller waits for it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sluicegate::ConcurrencyLimiter;
    ///
    /// let limiter = Arc::new(ConcurrencyLimiter::new(1)?);
    /// let permit = limiter.try_acquire_owned().expect("nobody else is here");
    /// std::thread::spawn(move || drop(permit)).join().expect("it only drops the permit");
    /// assert!(limiter.try_acquire().is_some());
    /// # Ok::<(), sluicegate::RangeError>(())
    /// ```
    pub fn try_acquire_owned(self: &Arc<Self>) -> Option<OwnedPermit> {
        self.queue()
            .enter(&QueuePlace::default())
            .then(|| OwnedPermit { limiter: Arc::clone(self) })
    }

    /// Waits for a permit. Dropping the future gives its place in line back; a future that is neither
    /// polled nor dropped holds up the line behind it. It needs no particular runtime.
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already.
    pub async fn acquire(&self) -> Result<Permit<'_>, AcquireError> {
        self.enter().await?;
        Ok(Permit { limiter: self })
    }

    /// Waits for a permit that is not bound to this reference.
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already.
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedPermit, AcquireError> {
        self.enter().await?;
        Ok(OwnedPermit { limiter: self })
    }

    /// Waits for a permit, blocking this thread.
    ///
    /// # Errors
    /// [`AcquireError::QueueFull`] if too many wait already.
    pub fn acquire_blocking(&self) -> Result<Permit<'_>, AcquireError> {
        let mut waiting = PermitWaiter { limiter: self, place: QueuePlace::default() };
        // The wait has no deadline, so the clock is never read.
        block_on(&MonotonicClock, |waker, _| waiting.poll(waker))?;
        Ok(Permit { limiter: self })
    }

    /// Lets `limit` in at once from now on. Permits that are held stay valid, also above a lower
    /// limit.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 2^32`; the old limit stays.
    pub fn set_limit(&self, limit: u64) -> Result<(), RangeError> {
        let limit = checked(limit)?;
        self.change(|queue| queue.limit = limit);
        Ok(())
    }

    /// Permits that may be held at once.
    pub fn limit(&self) -> u64 {
        self.queue().limit
    }

    /// Permits that are held.
    pub fn held(&self) -> u64 {
        self.queue().held
    }

    /// Callers that wait.
    pub fn waiting(&self) -> usize {
        self.queue().line.len()
    }

    async fn enter(&self) -> Result<(), AcquireError> {
        let mut waiting = PermitWaiter { limiter: self, place: QueuePlace::default() };
        std::future::poll_fn(|cx| waiting.poll(cx.waker())).await
    }

    fn release(&self) {
        self.change(|queue| queue.held -= 1);
    }

    /// Makes a change that may free a permit, then wakes the first in line.
    fn change(&self, change: impl FnOnce(&mut PermitQueue)) {
        let calls = {
            let mut queue = self.queue();
            change(&mut queue);
            queue.line.call_first()
        };
        calls.make();
    }

    /// The queue, also after a panic elsewhere: each change of it is one assignment.
    fn queue(&self) -> MutexGuard<'_, PermitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitQueue {
    /// Takes a permit, if there is one and it is the turn of `place`.
    fn enter(&mut self, place: &QueuePlace) -> bool {
        let enters = self.held < self.limit && self.line.is_turn_of(place);
        self.held += u64::from(enters);
        enters
    }
}

/// A caller that waits, or is about to. Dropping it gives its place back.
struct PermitWaiter<'a> {
    limiter: &'a ConcurrencyLimiter,
    place: QueuePlace,
}

impl PermitWaiter<'_> {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<(), AcquireError>> {
        let (result, calls) = {
            let mut queue = self.limiter.queue();
            if queue.enter(&self.place) {
                // The next may find a permit too.
                (Poll::Ready(Ok(())), queue.line.leave(&mut self.place))
            } else {
                match queue.line.wait(&mut self.place, Cost::ONE, waker) {
                    Ok(calls) => (Poll::Pending, calls),
                    Err(_) => return Poll::Ready(Err(AcquireError::QueueFull)),
                }
            }
        };
        calls.make();
        result
    }
}

impl Drop for PermitWaiter<'_> {
    fn drop(&mut self) {
        if self.place.is_taken() {
            let calls = self.limiter.queue().line.leave(&mut self.place);
            calls.make();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.limiter.release();
    }
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        self.limiter.release();
    }
}

impl fmt::Debug for ConcurrencyLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PermitQueue { limit, held, line } = &*self.queue();
        f.debug_struct("ConcurrencyLimiter")
            .field("limit", limit)
            .field("held", held)
            .field("waiting", &line.len())
            .finish()
    }
}

fn checked(limit: u64) -> Result<u64, RangeError> {
    if (1..=PERMITS_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(RangeError::new("limit", format!("`{limit}` is outside 1..={PERMITS_MAX}")))
}
