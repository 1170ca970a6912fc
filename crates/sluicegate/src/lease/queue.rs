//! Requests that wait for the permits of a message.

use std::collections::VecDeque;

use sluicegate_kernel::Verdict;
use sluicegate_store::StoreError;
use tokio::sync::oneshot;

use super::LeasedDecision;

/// Most requests of one key that wait for an answer, some 200 bytes each; the next asks the store itself.
const WAITERS_MAX: usize = 1_024;

/// The outcome of a request that waited.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    /// The request took its permits.
    Taken(LeasedDecision),
    /// The request is refused.
    Refused(Verdict),
    /// The request has to ask the store itself.
    Ask,
    /// The store did not answer.
    Failed(StoreError),
}

/// The receiver on which a request waits for its outcome.
pub(crate) type QueueTicket = oneshot::Receiver<WaitOutcome>;

/// The requests that wait, first come first.
#[derive(Debug, Default)]
pub(super) struct LeaseQueue(VecDeque<Waiter>);

#[derive(Debug)]
struct Waiter {
    cost: u32,
    tell: oneshot::Sender<WaitOutcome>,
}

impl LeaseQueue {
    /// Returns a place for a request of `cost`; `None` if the queue is full.
    pub(super) fn join(&mut self, cost: u32) -> Option<QueueTicket> {
        if self.0.len() >= WAITERS_MAX {
            self.0.retain(|waiter| !waiter.tell.is_closed());
        }
        if self.0.len() >= WAITERS_MAX {
            return None;
        }
        let (tell, place) = oneshot::channel();
        self.0.push_back(Waiter { cost, tell });
        Some(place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the permits for which all wait, and those of the first.
    pub(super) fn needs(&mut self) -> (u32, u32) {
        self.0.retain(|waiter| !waiter.tell.is_closed());
        let need = self.0.iter().fold(0_u32, |need, waiter| need.saturating_add(waiter.cost));
        (need, self.0.front().map_or(0, |first| first.cost))
    }

    /// Serves them in turn, as long as `take` gives one its permits. Ends early with the cost of one that went away
    /// and has taken its permits: serve the others once these are put back.
    pub(super) fn serve(
        &mut self,
        mut take: impl FnMut(u32) -> Option<LeasedDecision>,
    ) -> Option<u32> {
        while let Some(first) = self.0.front() {
            match take(first.cost) {
                Some(taken) => {
                    let Waiter { cost, tell } = self.0.pop_front().expect("it was there");
                    if tell.send(WaitOutcome::Taken(taken)).is_err() {
                        return Some(cost);
                    }
                }
                // One that went away holds up no other.
                None if first.tell.is_closed() => drop(self.0.pop_front()),
                None => break,
            }
        }
        None
    }

    /// Answers all that wait.
    pub(super) fn answer(&mut self, outcome: impl Fn(u32) -> WaitOutcome) {
        for Waiter { cost, tell } in self.0.drain(..) {
            // One that went away needs no answer.
            tell.send(outcome(cost)).ok();
        }
    }
}
