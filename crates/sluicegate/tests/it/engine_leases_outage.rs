//! Permits of leases that are spent while the store does not answer count in the share that follows.
#![cfg(feature = "engine")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::Ordering;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::{Micros, Mode};

use crate::leasing::{START, World};

/// A quota, a window of which begins a second after the start.
fn quota(limit: u64, on_failure: &str) -> PolicySet {
    let text = format!(
        "policies: [{{ name: hour, on_store_failure: {on_failure}, leases: {{ max_share: 50% }}, \
         rules: [{{ name: r, fixed_window: {{ limit: {limit}, window: 1000001s }} }}] }}]"
    );
    PolicySet::new(Document::parse(&text).unwrap())
}

impl World {
    /// Returns a world without a store, in a new window of a quota of 1,000, and the permits of a lease that were
    /// spent in that window.
    async fn with_a_lease_of_the_window_before(on_failure: &str) -> (Self, u64) {
        let world = Self::new();
        world.engine.set_policies(quota(1_000, on_failure));
        world.settle().await;
        while world.engine.now() < START.plus(Micros::from_millis(980)) {
            world.check("hour", 1).await;
            world.advance(Micros::from_millis(2)).await;
        }
        world.store.0.is_silent.store(true, Ordering::Relaxed);
        world.advance(Micros::from_millis(25)).await;
        let mut spent = 0;
        while world.check("hour", 1).await.answer.mode == Mode::Leased {
            spent += 1;
        }
        assert!(spent > 20, "{spent}");
        (world, spent)
    }

    /// Checks that the share is what was not leased: which of the leased permits were spent the store does not know.
    async fn assert_that_the_share_counts(&self, spent: u64) {
        let admitted = self.admitted_from_now_on().await;
        assert!((900..=1_000 - spent).contains(&admitted), "{admitted}, and {spent} leased ones");
    }

    /// Asks for more than there is, one permit at a time; returns how many passed.
    async fn admitted_from_now_on(&self) -> u64 {
        let mut admitted = 0;
        for _ in 0..2_000 {
            admitted += self.check("hour", 1).await.answer.decision.granted();
        }
        admitted
    }
}

#[tokio::test]
async fn a_lease_that_was_forgotten_without_requests_counts_in_the_share() {
    let (world, spent) = World::with_a_lease_of_the_window_before("deny").await;
    for _ in 0..12 {
        world.advance(Micros::SECOND).await;
    }
    world.engine.set_policies(quota(1_000, "local"));
    world.assert_that_the_share_counts(spent).await;
}

#[tokio::test]
async fn a_lease_counts_in_full_under_a_limit_that_was_lowered_meanwhile() {
    let (world, spent) = World::with_a_lease_of_the_window_before("deny").await;
    world.engine.set_policies(quota(10, "local"));
    assert_eq!(world.admitted_from_now_on().await, 0);
    world.engine.set_policies(quota(1_000, "local"));
    world.assert_that_the_share_counts(spent).await;
}
