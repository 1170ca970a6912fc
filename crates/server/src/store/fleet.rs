//! The servers that share the store, and losses of its data.
//!
//! Each server records in Redis that it is alive. The answer has the number of live servers, by which `local`
//! divides the limits, and says whether Redis has lost data, which the servers then restore as far as they know it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sluicegate::Engine;
use sluicegate::internals::Observer;
use sluicegate::internals::store::redis::{Fleet, FleetPresence};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::AnyStore;

/// Interval between records that a server is alive: a store that lost data is noticed within a second,
/// also if one record is lost.
const NOTE_EVERY: Duration = Duration::from_millis(250);

/// Consecutive answers with fewer nodes before the lower number counts: 15 s. Shares that are too small
/// refuse too much; shares that are too large let too much pass.
const FEWER_AFTER: u32 = 60;

/// The state of the fleet, as the last answers have it.
#[derive(Debug, Default)]
pub(crate) struct FleetStatus {
    live: AtomicU32,
    shared_by: AtomicU32,
    forgotten: AtomicU64,
}

/// The number of live nodes, while some records may still be missing.
#[derive(Debug, Default)]
struct LiveNodes {
    nodes: u32,
    fewer: u32,
    /// The number of nodes that have stopped and are not among `nodes` any more.
    left: u32,
}

impl FleetStatus {
    /// The number of live servers; 0: unknown.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Relaxed)
    }

    /// The number of servers by which limits are divided while the store does not answer.
    pub(crate) fn shared_by(&self) -> u32 {
        self.shared_by.load(Relaxed)
    }

    /// The number of times that the store was found to have lost data.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }
}

/// Records that this server is alive, and acts on the answers, until `stop`. `configured` is the number of
/// servers; `None`: as many as are alive.
pub(crate) async fn run<O: Observer>(
    engine: &Engine<AnyStore, O>,
    configured: Option<NonZeroU32>,
    stop: &CancellationToken,
) {
    let Some(redis) = engine.store().on_redis() else { return };
    let status = redis.fleet();
    status.shared_by.store(configured.map_or(1, NonZeroU32::get), Relaxed);
    let (mut presence, mut lives) = (FleetPresence::new(fastrand::u64(..)), LiveNodes::default());
    loop {
        if let Ok(Fleet { nodes, left, has_forgotten }) =
            redis.record_presence(&mut presence, engine.now()).await
        {
            if has_forgotten {
                status.forgotten.fetch_add(1, Relaxed);
                tracing::error!("store: data was lost; restoring known usage for a minute");
                engine.remind_store();
            }
            if let Some(live) = lives.see(nodes, left) {
                status.live.store(live.get(), Relaxed);
                match configured {
                    None => {
                        engine.set_nodes(live);
                        status.shared_by.store(live.get(), Relaxed);
                    }
                    Some(configured) if configured < live => tracing::warn!(
                        "store.nodes: is {configured}, but {live} servers share the store: while \
                         it is unavailable, they would exceed the limits"
                    ),
                    Some(_) => {}
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            // A store that comes back may have lost data: that is found out before requests use it.
            () = redis.reconnected() => {}
            () = sleep(NOTE_EVERY) => {}
        }
    }
    // Without an answer, others count this server for another 15 to 30 s.
    redis.record_leave(&presence, engine.now()).await.ok();
}

impl LiveNodes {
    /// Returns the number of live nodes, if an answer changes it. The answer has `nodes`, and
    /// `left`: those that have stopped lately, and are not waited for.
    fn see(&mut self, nodes: u32, left: u32) -> Option<NonZeroU32> {
        if nodes == self.nodes {
            *self = Self { nodes, fewer: 0, left };
            return None;
        }
        self.fewer += 1;
        // Nodes that stopped long ago are not counted in `left` any more.
        self.left = self.left.min(left);
        let is_missing = nodes.saturating_add(left - self.left) < self.nodes;
        if is_missing && self.fewer < FEWER_AFTER {
            return None;
        }
        *self = Self { nodes, fewer: 0, left };
        NonZeroU32::new(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_more_counts_at_once_and_one_less_when_it_stays_away() {
        let mut lives = LiveNodes::default();
        let seen = |lives: &mut LiveNodes, nodes| lives.see(nodes, 0).map(NonZeroU32::get);
        assert_eq!(seen(&mut lives, 3), Some(3));
        assert_eq!(seen(&mut lives, 3), None);
        assert_eq!(seen(&mut lives, 4), Some(4));
        for _ in 0..FEWER_AFTER - 1 {
            assert_eq!(seen(&mut lives, 1), None, "a store that has forgotten knows one at first");
        }
        assert_eq!(seen(&mut lives, 4), None);
        for _ in 0..FEWER_AFTER - 1 {
            assert_eq!(seen(&mut lives, 3), None);
        }
        assert_eq!(seen(&mut lives, 3), Some(3));
    }

    #[test]
    fn a_node_that_has_left_is_not_waited_for_and_a_silent_one_is() {
        let mut lives = LiveNodes::default();
        let seen = |lives: &mut LiveNodes, nodes, left| lives.see(nodes, left).map(NonZeroU32::get);
        assert_eq!(seen(&mut lives, 3, 0), Some(3));
        assert_eq!(seen(&mut lives, 1, 1), None, "one has left, and one is silent");
        assert_eq!(seen(&mut lives, 2, 1), Some(2));
        assert_eq!(seen(&mut lives, 2, 1), None);
    }

    #[test]
    fn a_node_that_has_left_does_not_hide_another_that_falls_silent() {
        let mut lives = LiveNodes::default();
        let seen = |lives: &mut LiveNodes, nodes, left| lives.see(nodes, left).map(NonZeroU32::get);
        assert_eq!(seen(&mut lives, 5, 0), Some(5));
        assert_eq!(seen(&mut lives, 4, 1), Some(4));
        for _ in 0..FEWER_AFTER - 1 {
            assert_eq!(seen(&mut lives, 3, 1), None, "one is silent, and nobody else has left");
        }
        assert_eq!(seen(&mut lives, 3, 0), Some(3));
        assert_eq!(seen(&mut lives, 2, 1), Some(2), "the first note of leave is forgotten");
        assert_eq!(seen(&mut lives, 3, 1), Some(3), "a node was started");
        assert_eq!(seen(&mut lives, 2, 2), Some(2), "a rolling restart goes on");
    }
}
