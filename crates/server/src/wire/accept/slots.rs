//! The connection that is ended for the next one when there are as many as there may be.
//!
//! A connection goes if it neither asked nor was answered since it was last checked: it is idle, or its
//! client sends a byte now and then to keep a place that others could use. The oldest goes first, so
//! that a flood of such connections takes the places of its own.
//!
//! ```text
//! a  b* c  d*      * active since it was last checked; the next one to check is on the left
//! b* c  d* e       a goes for e
//! d* e  b  f       c goes for f; b was active, loses its mark, and comes last
//! ```
//!
//! A write to a connection counts as an answer, except with HTTP/2, which greets every client. A wire
//! reports a request that it does not answer at once, because it is held or its store is far, when all of
//! it has come in; the wire of HTTP/2 reports every request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// The slot of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlot {
    touched: AtomicBool,
}

/// The slots that are taken.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    /// The next one to check comes first. Slots of connections that have ended are dropped now and then.
    taken: VecDeque<(AbortHandle, Arc<ConnectionSlot>)>,
    /// The number of slots at which those of ended connections are dropped.
    sweep_at: usize,
}

impl ConnectionSlot {
    /// Marks the connection as active: a request has come in whole, or something is written.
    pub(super) fn touched(&self) {
        // Mostly it is marked already: then the cache line is not written.
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn has_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
    }
}

impl ConnectionSlots {
    /// Takes `slot` for the connection behind `handle`.
    pub(super) fn take(&mut self, slot: Arc<ConnectionSlot>, handle: AbortHandle) {
        if self.taken.len() >= self.sweep_at {
            self.taken.retain(|(handle, _)| !handle.is_finished());
            self.sweep_at = (self.taken.len() * 2).max(SWEEP_AT_MIN);
        }
        self.taken.push_back((handle, slot));
    }

    /// Ends a connection that was not active since it was last checked, and returns `true`. If all were
    /// active, removes their marks and returns `false`.
    pub(super) fn evict_one(&mut self) -> bool {
        for _ in 0..self.taken.len() {
            let Some((handle, slot)) = self.taken.pop_front() else { break };
            if handle.is_finished() {
                continue;
            }
            if slot.touched.swap(false, Ordering::Relaxed) {
                self.taken.push_back((handle, slot));
                continue;
            }
            handle.abort();
            return true;
        }
        false
    }
}

/// Number of slots below which those of ended connections do not matter.
const SWEEP_AT_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    /// Slots of so many connections that do not end by themselves.
    fn slots(count: usize) -> (ConnectionSlots, Vec<Arc<ConnectionSlot>>, JoinSet<()>) {
        let (mut slots, mut connections) = (ConnectionSlots::default(), JoinSet::new());
        let taken =
            std::iter::repeat_with(Arc::default).take(count).collect::<Vec<Arc<ConnectionSlot>>>();
        for slot in &taken {
            slots.take(Arc::clone(slot), connections.spawn(std::future::pending()));
        }
        (slots, taken, connections)
    }

    #[tokio::test]
    async fn the_oldest_that_was_answered_nothing_goes_first() {
        let (mut slots, taken, mut connections) = slots(4);
        taken[0].touched();
        taken[2].touched();
        for gone in [1, 3] {
            assert!(slots.evict_one());
            connections.join_next().await.unwrap().expect_err("it was ended");
            assert_eq!(Arc::strong_count(&taken[gone]), 1, "{gone} has gone");
        }
        assert_eq!(connections.len(), 2);
    }

    #[tokio::test]
    async fn who_is_answered_between_two_looks_stays() {
        let (mut slots, taken, connections) = slots(3);
        for _ in 0..10 {
            taken.iter().for_each(|slot| slot.touched());
            assert!(!slots.evict_one());
        }
        assert_eq!(connections.len(), 3);
        assert!(slots.evict_one(), "none was answered since");
    }

    #[tokio::test]
    async fn connections_that_have_ended_take_no_room() {
        let (mut slots, _, _connections) = slots(0);
        let mut connections = JoinSet::new();
        for _ in 0..10_000 {
            slots.take(Arc::default(), connections.spawn(async {}));
            connections.join_next().await.unwrap().unwrap();
        }
        assert!(slots.taken.len() <= SWEEP_AT_MIN, "{}", slots.taken.len());
        assert!(!slots.evict_one());
    }
}
