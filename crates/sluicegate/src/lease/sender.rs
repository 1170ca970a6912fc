//! The only sender of the messages that are due; it passes answers to the requests that wait for them.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_kernel::{LeaseReply, Micros};
use sluicegate_store::{KeyHash, StoreError};
use tokio::time::Sleep;

use super::{Lease, LeasedBudget, Leasing, OutgoingMessage};
use crate::clock::Clock;

/// Interval at which spending is marked, and leases are found that are idle or about to end.
const TICK: Micros = Micros::from_millis(25);

/// Time for which a process that stops waits until its permits are taken back.
const RETURNED_WITHIN: Micros = Micros::from_millis(250);

/// The result of a message.
#[derive(Debug)]
pub(crate) enum Delivered {
    /// The message was not sent.
    NotSent,
    /// The message was sent, and its answer is ignored.
    Ignored,
    /// The store answered, or did not in time.
    Replied(Result<LeaseReply, StoreError>),
}

/// Guard of the sender. Once it is dropped, requests that wait are served otherwise, and no permit is used any more.
struct SenderGuard<'a>(&'a Leasing);

impl Leasing {
    /// Keeps the leases, with `deliver` to send a message about the key of a lease, and `forgotten` to take in the permits
    /// of a lease that is forgotten before the store has answered about them. Ends some time after
    /// [`stop`](Self::stop), when all permits are given back or 250 ms have passed.
    pub(crate) async fn keep<D>(
        &self,
        deliver: impl Fn(Arc<Lease>, OutgoingMessage) -> D,
        forgotten: impl Fn(KeyHash, &LeasedBudget, u64),
    ) where
        D: Future<Output = (Arc<Lease>, Delivered)>,
    {
        if self.clock.steady().is_none() || self.has_sender.swap(true, Ordering::Relaxed) {
            return;
        }
        let _guard = SenderGuard(self);
        let mut under_way = FuturesUnordered::new();
        let mut tick = Pause::new(TICK);
        let mut until = None;
        loop {
            let now = self.now();
            if tick.is_over(&*self.clock) {
                self.tick(now, &forgotten);
                tick = Pause::new(TICK);
            }
            if self.is_stopping.load(Ordering::Relaxed) && until.is_none() {
                until = Some(now.plus(RETURNED_WITHIN));
                self.leave(now);
            }
            for lease in self.take_due() {
                if let Some(outgoing) = lease.next_message(now) {
                    under_way.push(deliver(lease, outgoing));
                }
            }
            if until.is_some_and(|until| under_way.is_empty() || now >= until) {
                return;
            }
            let is_busy = self.table.len() > 0;
            let mut woken = pin!(self.wake.notified());
            let delivered = poll_fn(|cx| {
                // First, since the others may be ready all the time.
                if is_busy && tick.poll(&*self.clock, cx).is_ready() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(Some(delivered)) = under_way.poll_next_unpin(cx) {
                    return Poll::Ready(Some(delivered));
                }
                woken.as_mut().poll(cx).map(|()| None)
            });
            if let Some((lease, delivered)) = delivered.await {
                let now = self.now();
                lease.on_reply(&delivered, now);
                // A message was under way when the process began to stop: the permits that it brought go back, too.
                if until.is_some() && lease.locked().leave(&lease.cell, now) {
                    self.due(&lease);
                }
            }
        }
    }

    /// Gives all permits back, and leases no more.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    fn tick(&self, now: Micros, forgotten: impl Fn(KeyHash, &LeasedBudget, u64)) {
        let mut is_any_over = false;
        self.table.each(|lease| {
            let mut state = lease.locked();
            if state.tick(&lease.cell, now) {
                self.due(lease);
            }
            is_any_over |= state.is_over(&lease.cell, now);
        });
        if is_any_over {
            self.table.sweep(|lease| {
                let mut state = lease.locked();
                let is_over = state.is_over(&lease.cell, now);
                if is_over {
                    self.numbered.fetch_max(state.number(), Ordering::Relaxed);
                    let permits = state.retire(&lease.cell);
                    if permits > 0 {
                        forgotten(lease.key(), state.subject(), permits.into());
                    }
                }
                is_over
            });
        }
    }

    fn leave(&self, now: Micros) {
        self.table.each(|lease| {
            if lease.locked().leave(&lease.cell, now) {
                self.due(lease);
            }
        });
    }
}

impl Drop for SenderGuard<'_> {
    fn drop(&mut self) {
        let Self(leasing) = self;
        leasing.has_sender.store(false, Ordering::Relaxed);
        let now = leasing.now();
        leasing.table.each(|lease| {
            lease.locked().leave(&lease.cell, now);
            lease.cell.stop();
        });
    }
}

/// A span of time, by the engine's clock if that wakes sleepers, otherwise by the runtime's.
#[derive(Debug)]
struct Pause {
    span: Micros,
    until: Option<Micros>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The waker that the clock uses.
    alarm: Option<Waker>,
    is_over: bool,
}

impl Pause {
    fn new(span: Micros) -> Self {
        Self { span, until: None, sleep: None, alarm: None, is_over: false }
    }

    /// Returns whether it is over by the last poll or by the clock.
    fn is_over(&self, clock: &dyn Clock) -> bool {
        self.is_over || self.until.is_some_and(|until| clock.now() >= until)
    }

    fn poll(&mut self, clock: &dyn Clock, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.sleep {
            self.is_over |= sleep.as_mut().poll(cx).is_ready();
        } else {
            let until = *self.until.get_or_insert_with(|| clock.now().plus(self.span));
            if clock.now() >= until {
                self.is_over = true;
            } else if self.alarm.as_ref().is_some_and(|alarm| alarm.will_wake(cx.waker())) {
                // It is set.
            } else if clock.wake_at(until, cx.waker()) {
                self.alarm = Some(cx.waker().clone());
            } else {
                let mut sleep = Box::pin(tokio::time::sleep(self.span.into()));
                self.is_over |= sleep.as_mut().poll(cx).is_ready();
                (self.sleep, self.until) = (Some(sleep), None);
            }
        }
        if self.is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}
