//! Nodes note in Redis that they live: they are counted, and a Redis that forgets is noticed.

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_store::redis::{Fleet, FleetPresence, RedisStore};
use sluicegate_testkit::{Options, RedisServer, need};

use crate::redis_store::{ask_as, bucket, connect, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

async fn note(store: &RedisStore, presence: &mut FleetPresence, seconds: u64) -> (u32, bool) {
    let now = NOW.plus(Micros::from_secs(seconds));
    let Fleet { nodes, has_forgotten, .. } =
        store.record_presence(presence, now).await.expect("the server of the test is there");
    (nodes, has_forgotten)
}

#[tokio::test]
async fn nodes_that_live_are_counted_and_one_that_is_silent_for_long_is_not() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let (mut one, mut other) = (FleetPresence::new(1), FleetPresence::new(2));
    assert_eq!(note(&store, &mut one, 0).await, (1, false));
    assert_eq!(note(&store, &mut other, 1).await, (2, false));
    assert_eq!(note(&store, &mut one, 15).await, (2, false));
    assert_eq!(note(&store, &mut one, 17).await, (1, false), "the other was seen 16 s ago");
    assert_eq!(note(&store, &mut other, 60).await, (1, false), "and is known when it comes back");
}

#[tokio::test]
async fn a_redis_that_has_forgotten_is_noticed_by_every_node_once() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let (mut one, mut other) = (FleetPresence::new(1), FleetPresence::new(2));
    for presence in [&mut one, &mut other] {
        assert!(!note(&store, presence, 0).await.1);
    }
    redis.cli(&["FLUSHALL"]).await.expect("an answer");
    for presence in [&mut one, &mut other] {
        assert!(note(&store, presence, 1).await.1);
        assert!(!note(&store, presence, 2).await.1);
    }
}

#[tokio::test]
async fn a_replica_that_lacks_the_last_notes_is_noticed() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, mut one) = (connect(&redis.url()).await, FleetPresence::new(1));
    assert!(!note(&store, &mut one, 0).await.1);
    let keys = redis.cli(&["KEYS", "*"]).await.expect("an answer");
    let key = keys.list()[0].text();
    redis.cli(&["COPY", &key, "earlier"]).await.expect("an answer");
    assert!(!note(&store, &mut one, 1).await.1);
    redis.cli(&["COPY", "earlier", &key, "REPLACE"]).await.expect("an answer");
    assert!(note(&store, &mut one, 2).await.1, "its note is the one of before");
    assert!(!note(&store, &mut one, 3).await.1);
}

#[tokio::test]
async fn a_node_that_stops_is_not_counted_and_is_named_for_as_long_as_a_silent_one_counts() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let (mut one, mut other) = (FleetPresence::new(1), FleetPresence::new(2));
    note(&store, &mut one, 0).await;
    note(&store, &mut other, 0).await;
    store.record_leave(&other, NOW).await.expect("the server of the test is there");
    for (seconds, left) in [(1, 1), (14, 1), (16, 0)] {
        let now = NOW.plus(Micros::from_secs(seconds));
        let fleet = store.record_presence(&mut one, now).await.expect("it is there");
        assert_eq!(fleet, Fleet { nodes: 1, left, has_forgotten: false }, "after {seconds} s");
    }
}

/// Another server, which has never seen the version before, gets an edit.
#[tokio::test]
async fn an_edit_after_redis_has_forgotten_finds_the_rules_of_before() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, mut one) = (connect(&redis.url()).await, FleetPresence::new(1));
    let check = |cost| Verb::Check { cost: Cost::new(cost).expect("a cost") };
    let (before, edited) = (bucket(1, 100), bucket(1, 200));
    let (one_more, ten_more) = (check(1), check(10));
    let ask = |store, seconds, rules, verb| async move {
        ask_as(version(seconds), store, b"k", (rules, verb), NOW).await.expect("an answer").decision
    };
    ask(&store, 1, &before, &one_more).await;
    assert!(!note(&store, &mut one, 0).await.1);
    redis.cli(&["FLUSHALL"]).await.expect("an answer");
    assert!(note(&store, &mut one, 1).await.1);
    ask(&store, 1, &before, &ten_more).await;
    let other = connect(&redis.url()).await;
    assert_eq!(ask(&other, 2, &edited, &one_more).await.remaining, 200 - 11);
}
