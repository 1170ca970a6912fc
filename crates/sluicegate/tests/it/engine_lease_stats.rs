//! The counts of permits that an engine leases, and their return.
#![cfg(all(feature = "engine", feature = "tokio"))]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use std::sync::{Arc, Mutex};

use sluicegate::internals::LeaseStats;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::StoreError;
use sluicegate::{Cost, Engine, LEASE_PATIENCE, ManualClock, Micros, Mode, Request, Verb};
use sluicegate_kernel::lease::{Leased, Message};
use sluicegate_kernel::{LeaseReply, Moment};
use sluicegate_store::{Store, StoreAnswer, StoreRequest};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

const POLICIES: &str =
    "policies: [{ name: p, rules: [{ token_bucket: { rate: 2000/s, burst: 2000 } }] }]";

/// A store of one key, which answers a message about leases once `answers` has room for that.
#[derive(Debug)]
struct OneKey {
    leased: Mutex<Leased>,
    answers: Semaphore,
}

#[derive(Clone, Debug)]
struct Shared(Arc<OneKey>);

impl Store for Shared {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let mut leased = self.0.leased.lock().unwrap();
        Ok(request.rules.decide_beside(&mut leased, request.verb, at).unwrap().into())
    }

    fn leases(&self) -> bool {
        true
    }

    async fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        let reply = request.rules.lease(&mut self.0.leased.lock().unwrap(), message, at);
        self.0.answers.acquire().await.unwrap().forget();
        Ok(reply)
    }
}

impl Shared {
    /// Permits that are leased.
    fn held(&self) -> u64 {
        self.0.leased.lock().unwrap().leases.held()
    }
}

/// Returns an engine whose clock stands still, on such a store.
fn engine() -> (Arc<Engine<Shared>>, Shared) {
    let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
    let store = Shared(Arc::new(OneKey { leased: Mutex::default(), answers: Semaphore::new(0) }));
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    let engine = Engine::new(policies, store.clone(), clock);
    (Arc::new(engine.with_leases(LEASE_PATIENCE)), store)
}

async fn check(engine: &Arc<Engine<Shared>>) -> Mode {
    let request = Request::new("p", Some(b"k"), Verb::Check { cost: Cost::ONE });
    let admission = engine.turn().decide(&request).await.unwrap();
    assert!(admission.way.passes());
    admission.answer.mode
}

/// Returns the count of permits with this `fate`.
fn permits(stats: &LeaseStats, fate: &str) -> u64 {
    stats.permits[LeaseStats::FATES.iter().position(|name| *name == fate).unwrap()]
}

#[tokio::test]
async fn every_permit_that_was_granted_is_counted_as_spent_or_returned() {
    let (engine, store) = engine();
    store.0.answers.add_permits(1_000);
    let keeper = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.keep_leases().await }
    });
    yield_now().await;
    let mut leased = 0;
    for _ in 0..500 {
        leased += u64::from(check(&engine).await == Mode::Leased);
    }
    assert!(leased > 480, "{leased} of 500 are leased");
    engine.return_leases();
    keeper.await.unwrap();
    assert_eq!(store.held(), 0);
    let stats = engine.lease_stats().unwrap();
    assert_eq!(permits(&stats, "spent"), leased);
    assert_eq!(permits(&stats, "granted"), leased + permits(&stats, "returned"), "{stats:?}");
    assert_eq!((permits(&stats, "lapsed"), permits(&stats, "void")), (0, 0));
    let [first, _, _, end] = stats.messages;
    assert_eq!((first, end), ([1, 0, 0], [1, 0, 0]), "{stats:?}");
    assert!(stats.waits >= 1 && stats.keys == 1, "{stats:?}");
}

#[tokio::test]
async fn permits_that_come_while_a_process_stops_go_back() {
    let (engine, store) = engine();
    let keeper = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.keep_leases().await }
    });
    yield_now().await;
    let asking = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move {
            for _ in 0..8 {
                check(&engine).await;
            }
        }
    });
    while store.held() == 0 {
        yield_now().await;
    }
    engine.return_leases();
    // The request that waited is decided by the store.
    asking.await.unwrap();
    assert!(store.held() > 0);
    store.0.answers.add_permits(2);
    keeper.await.unwrap();
    assert_eq!(store.held(), 0);
}

#[tokio::test]
async fn permits_are_requested_before_the_last_is_taken() {
    let (engine, store) = engine();
    store.0.answers.add_permits(1_000);
    let keeper = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.keep_leases().await }
    });
    for _ in 0..500 {
        yield_now().await;
        check(&engine).await;
    }
    let stats = engine.lease_stats().unwrap();
    let [_, [more, ..], ..] = stats.messages;
    assert!(stats.waits == 1 && more >= 2, "only the first request waits: {stats:?}");
    keeper.abort();
}
