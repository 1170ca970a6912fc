//! Waiting in line: the order of callers, and their wake-ups.
//!
//! **What it remembers**: for every caller that waits, its place in line, its cost and how to wake
//! it. Threads and tasks stand in the same line; a thread's waker unparks it.
//!
//! **How it goes.** Only the first in line tries to take permits. If it is refused it sleeps until
//! the instant that the refusal names; nothing is booked for it, so giving up leaves no trace. A
//! caller that passes, gives up or fails wakes the next.
//!
//! **Why no wake-up is lost.** The line lies under the same lock as the permits that its members wait
//! for. A caller tries and, if refused, leaves its waker under one lock; a change that may let a
//! caller pass is made, and the first waker taken, under one lock. So a change comes before the try,
//! which then sees it, or after the waker is there. A woken caller that is dropped instead of being
//! polled leaves the line as it is dropped, and that wakes the next.
//!
//! **Why wakers are used and dropped outside the lock.** A waker is foreign code: waking may poll
//! right here, dropping it may drop a task that stands in this very line. Either would come back for
//! the lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use sluicegate_kernel::{Cost, Micros};

use crate::clock::Clock;

/// Callers that may wait in one line: about 10 MB at most. At any rate worth limiting, a caller behind
/// them would wait very long, so it is refused at once.
pub const WAITERS_MAX: usize = 65_536;

/// A line of callers, first come, first served.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiting: BTreeMap<u64, Waiter>,
    tickets: u64,
}

#[derive(Debug)]
struct Waiter {
    cost: Cost,
    /// `None` after it was woken, until it tries again.
    waker: Option<Waker>,
}

/// A caller's place in a line. Its owner gives it to [`WaitQueue::leave`] in the end.
#[derive(Debug, Default)]
pub(crate) struct QueuePlace {
    ticket: Option<u64>,
}

/// The error of a line that has [`WAITERS_MAX`] callers already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitQueueFull;

/// Wakers to be used and dropped once the lock is released.
#[derive(Debug, Default)]
#[must_use = "someone waits to be woken"]
pub(crate) struct Calls {
    wake: Option<Waker>,
    drop: Option<Waker>,
}

impl WaitQueue {
    /// Returns whether no caller waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of callers that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether it is the turn of `place`: it is the first, or no caller waits.
    pub(crate) fn is_turn_of(&self, place: &QueuePlace) -> bool {
        match self.waiting.first_key_value() {
            None => true,
            Some((first, _)) => place.ticket == Some(*first),
        }
    }

    /// Returns the cost of the first in line; `None` if no caller waits.
    pub(crate) fn first_cost(&self) -> Option<Cost> {
        self.waiting.first_key_value().map(|(_, waiter)| waiter.cost)
    }

    /// Waits at `place`, at the end of the line if it is new, until `waker` is used.
    pub(crate) fn wait(
        &mut self,
        place: &mut QueuePlace,
        cost: Cost,
        waker: &Waker,
    ) -> Result<Calls, WaitQueueFull> {
        if place.ticket.is_none() && self.waiting.len() >= WAITERS_MAX {
            return Err(WaitQueueFull);
        }
        let ticket = *place.ticket.get_or_insert_with(|| {
            self.tickets += 1;
            self.tickets
        });
        let waiter = Waiter { cost, waker: Some(waker.clone()) };
        let before = self.waiting.insert(ticket, waiter);
        Ok(Calls { wake: None, drop: before.and_then(|waiter| waiter.waker) })
    }

    /// Leaves the line, and calls the next if `place` was the first.
    pub(crate) fn leave(&mut self, place: &mut QueuePlace) -> Calls {
        let Some(ticket) = place.ticket.take() else { return Calls::default() };
        let was_first = self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let own = self.waiting.remove(&ticket).and_then(|waiter| waiter.waker);
        let next = if was_first { self.call_first() } else { Calls::default() };
        Calls { drop: own, ..next }
    }

    /// Calls the first in line to try again, after a change that may let it pass.
    pub(crate) fn call_first(&mut self) -> Calls {
        let first = self.waiting.first_entry();
        Calls { wake: first.and_then(|mut first| first.get_mut().waker.take()), drop: None }
    }
}

impl QueuePlace {
    /// Returns whether it is in a line.
    pub(crate) fn is_taken(&self) -> bool {
        self.ticket.is_some()
    }
}

impl Calls {
    /// Makes the calls. Not to be used under a lock.
    pub(crate) fn make(self) {
        let Self { wake, drop } = self;
        std::mem::drop(drop);
        if let Some(waker) = wake {
            waker.wake();
        }
    }
}

/// Polls `step` on this thread until it is ready, and sleeps in between. `step` sets `alarm` to the
/// instant of its next poll, if it needs one without a wake-up.
pub(crate) fn block_on<R>(
    clock: &(impl Clock + ?Sized),
    mut step: impl FnMut(&Waker, &mut Option<Micros>) -> Poll<R>,
) -> R {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        let mut alarm = None;
        if let Poll::Ready(result) = step(&waker, &mut alarm) {
            return result;
        }
        // A wake-up since `step` was called makes `park` return at once.
        match alarm {
            Some(at) if !clock.wake_at(at, &waker) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a wait of a caller ends by its clock or by a wake-up"
                )]
                thread::park_timeout(Duration::from(at.since(clock.now())));
            }
            _ => thread::park(),
        }
    }
}

/// Polls `step` as a task until it is ready; `step` sets its alarm as for [`block_on`].
#[cfg(feature = "tokio")]
pub(crate) async fn wait<R>(
    clock: &(impl Clock + ?Sized),
    mut step: impl FnMut(&Waker, &mut Option<Micros>) -> Poll<R>,
) -> R {
    let mut alarm = Alarm::default();
    std::future::poll_fn(|cx| {
        loop {
            let mut look_again = None;
            if let Poll::Ready(result) = step(cx.waker(), &mut look_again) {
                return Poll::Ready(result);
            }
            let Some(at) = look_again else { return Poll::Pending };
            std::task::ready!(alarm.poll(clock, at, cx));
        }
    })
    .await
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A future that is ready when `clock` has reached an instant.
#[cfg(feature = "tokio")]
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    sleep: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
}

#[cfg(feature = "tokio")]
impl Alarm {
    /// Returns `Ready` if it is `at` or later; otherwise the task of `cx` is woken then.
    pub(crate) fn poll(
        &mut self,
        clock: &(impl Clock + ?Sized),
        at: Micros,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<()> {
        let missing = at.since(clock.now());
        if missing == Micros::ZERO {
            return Poll::Ready(());
        }
        if clock.wake_at(at, cx.waker()) {
            return Poll::Pending;
        }
        let mut sleep = Box::pin(tokio::time::sleep(missing.into()));
        let state = sleep.as_mut().poll(cx);
        self.sleep = Some(sleep);
        state
    }
}
