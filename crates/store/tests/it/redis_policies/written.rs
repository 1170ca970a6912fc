//! Policies that many writers publish at once, and faults meanwhile.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_store::redis::{
    POLICIES_KEY, Publication, PublicationPolicy, PublishError, PublishOutcome, RedisStore,
    RevisionDiff,
};
use sluicegate_store::{Executed, StoreError};
use sluicegate_testkit::{
    Cluster, ClusterOptions, FaultProxy, Faults, Options, RedisServer, SentinelOptions, Sentinels,
    need, until,
};
use tokio::task::JoinSet;

use crate::redis_policies::{
    Catalog, behind_sentinels, connect, in_cluster, of_catalog, start, there,
};

const PATIENCE: Duration = Duration::from_secs(20);
const NEXT_KEY: &str = "sg:{policies}:next";

/// Publishes until Redis has it.
async fn surely(store: &RedisStore, catalog: Catalog, since: Option<i64>) {
    let publishing = async {
        loop {
            match catalog.publish(store, since).await {
                Ok(PublishOutcome::Busy)
                | Err(PublishError::Store(StoreError::Contended { .. })) => {
                    tokio::task::yield_now().await;
                }
                other => return other.expect("it can be published"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, publishing).await.expect("somebody gets through");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writers_leave_no_revision_half_there_and_never_go_back() {
    let redis = Arc::new(need!(RedisServer::start(Options::default()).await));
    let mut writers = JoinSet::new();
    for writer in 0..6 {
        let store = connect(&redis.url()).await;
        writers.spawn(async move {
            // Some writers know the changes, some lag behind, some write all.
            let step = [1, 1, 2, 3, 7, 10][writer];
            for revision in (0..=200).step_by(step) {
                let since = (writer % 3 != 2).then_some(revision - 1);
                surely(&store, Catalog { count: 300, revision }, since).await;
            }
        });
    }
    let watching = async {
        let (mut last, mut looks) = (0, 0);
        while last < 200 {
            let Some((revision, policies)) = there(&redis).await else { continue };
            assert!(revision >= last, "{revision} after {last}");
            assert_eq!(policies, Catalog { count: 300, revision }.policies(), "at {revision}");
            (last, looks) = (revision, looks + 1);
        }
        looks
    };
    let looks = watching.await;
    writers.join_all().await;
    assert!(looks > 5, "only {looks} looks");
    let (revision, policies) = there(&redis).await.expect("a hash");
    assert_eq!((revision, policies), (200, Catalog { count: 300, revision: 200 }.policies()));
    let keys = redis.cli(&["KEYS", "*"]).await.expect("it answers");
    assert_eq!(keys.list().len(), 1, "nothing is left over: {keys:?}");
}

#[tokio::test]
async fn a_hash_that_many_find_lost_is_written_once() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let catalog = Catalog { count: 2_000, revision: 7 };
    let mut writers = JoinSet::new();
    for _ in 0..8 {
        let store = connect(&redis.url()).await;
        writers.spawn(async move { catalog.publish(&store, Some(6)).await.expect("it answers") });
    }
    let published = writers.join_all().await;
    let written = published.iter().filter(|published| **published == PublishOutcome::Written);
    assert_eq!(written.count(), 1, "{published:?}");
    let others = published.iter().all(|published| {
        matches!(published, PublishOutcome::Written | PublishOutcome::Known | PublishOutcome::Busy)
    });
    assert!(others, "{published:?}");
    assert_eq!(there(&redis).await, Some((7, catalog.policies())));
}

#[tokio::test]
async fn ten_thousand_policies_are_some_hundred_calls_and_a_change_of_one_is_two() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let calls = async |revision: i64, since| {
        let before = store.stats().calls;
        let catalog = Catalog { count: 10_000, revision };
        catalog
            .publish(&store, since)
            .await
            .map(|published| (published, store.stats().calls - before))
    };
    let (published, whole) = calls(1, None).await.expect("it answers");
    assert_eq!(published, PublishOutcome::Written);
    // One read of the head, a hundred calls of a hundred policies, a swap.
    assert_eq!(whole, 102);
    assert_eq!(calls(2, Some(1)).await, Ok((PublishOutcome::Written, 2)));
    assert_eq!(calls(2, Some(1)).await, Ok((PublishOutcome::Known, 1)));
    let (published, catching_up) = calls(200, Some(2)).await.expect("it answers");
    assert_eq!(published, PublishOutcome::Written);
    assert!(catching_up <= 110, "what is too much for one call is written whole: {catching_up}");
    let policies = Catalog { count: 10_000, revision: 200 }.policies();
    assert_eq!(there(&redis).await, Some((200, policies)));
}

#[tokio::test]
async fn policies_are_published_with_the_clock_of_the_store() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    for (revision, clock) in [(1, ScriptClock::Client), (2, ScriptClock::Server)] {
        store.set_clock(clock);
        let publication = of_catalog(revision, &[]);
        assert_eq!(store.publish(&publication).await, Ok(PublishOutcome::Written));
        let head = store.published_head().await.expect("it answers").expect("it is there");
        assert_eq!((head.revision, head.clock), (revision, clock));
    }
}

#[tokio::test]
async fn large_policies_travel_few_at_a_time() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let names: Vec<_> = (0..10).map(|place| format!("p{place}")).collect();
    let text = format!("{{\"name\":\"{}\"}}", "x".repeat(60 << 10));
    let policies = names.iter().map(|name| PublicationPolicy {
        name,
        app: "a\"b",
        is_shadow: true,
        version: 1,
        since_ms: None,
        document: &text,
    });
    let policies: Vec<_> = policies.collect();
    let publication = of_catalog(1, &policies);
    assert_eq!(store.publish(&publication).await, Ok(PublishOutcome::Written));
    assert!(store.stats().calls >= 6, "{:?}", store.stats());
    let field = redis.cli(&["HGET", POLICIES_KEY, "p9"]).await.expect("it answers").text();
    let begin = r#"{"version":1,"state":"shadow","app":"a\"b","document":{"name":"xxx"#;
    assert!(field.starts_with(begin), "{}", &field[..80]);
}

#[tokio::test]
async fn what_a_writer_left_half_staged_is_seen_by_nobody_and_is_gone_soon() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let catalog = |revision| Catalog { count: 10, revision };
    assert_eq!(catalog(1).publish(&store, None).await, Ok(PublishOutcome::Written));
    // The staging key of a writer that died.
    redis.cli(&["HSET", NEXT_KEY, "#attempt", "x", "left", "{}"]).await.expect("it answers");
    redis.cli(&["PEXPIRE", NEXT_KEY, "300"]).await.expect("it answers");
    assert_eq!(catalog(2).publish(&store, None).await, Ok(PublishOutcome::Busy));
    assert_eq!(there(&redis).await, Some((1, catalog(1).policies())));
    surely(&store, catalog(2), None).await;
    assert_eq!(there(&redis).await, Some((2, catalog(2).policies())));
    let keys = redis.cli(&["KEYS", "*"]).await.expect("it answers");
    assert_eq!(keys.list().len(), 1, "{keys:?}");
    let ttl = redis.cli(&["PTTL", POLICIES_KEY]).await.expect("it answers").int();
    assert_eq!(ttl, -1, "what is published stays");
}

#[tokio::test]
async fn a_writer_that_hangs_in_the_middle_leaves_room_for_others_and_changes_nothing_later() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let slow = connect(&format!("redis://{}", proxy.address())).await;
    let fast = connect(&redis.url()).await;
    proxy.set(Faults::delay(Duration::from_millis(50), Duration::ZERO)).await.expect("slow");
    let first = Catalog { count: 3_000, revision: 1 };
    let writing = tokio::spawn(async move { first.publish(&slow, None).await });
    let staged = async || {
        let staged = redis.cli(&["HLEN", NEXT_KEY]).await.expect("it answers").int();
        (staged > 500).then_some(())
    };
    until("some is staged", PATIENCE, staged).await.expect("it is");
    proxy.set(Faults::black_hole()).await.expect("a black hole");
    let second = Catalog { count: 3_000, revision: 2 };
    surely(&fast, second, None).await;
    assert!(writing.await.expect("it ends").is_err(), "it has no answer");
    assert_eq!(there(&redis).await, Some((2, second.policies())));
}

#[tokio::test]
async fn what_is_lost_while_it_is_staged_is_staged_again() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let store = Arc::new(connect(&format!("redis://{}", proxy.address())).await);
    for (revision, lost) in [(1, &["DEL", NEXT_KEY][..]), (2, &["HDEL", NEXT_KEY, "policy-00000"])]
    {
        let slow = Faults::delay(Duration::from_millis(20), Duration::ZERO);
        proxy.set(slow).await.expect("slow");
        let (catalog, writer) = (Catalog { count: 3_000, revision }, Arc::clone(&store));
        let writing = tokio::spawn(async move { catalog.publish(&writer, None).await });
        let staged = async || {
            let staged = redis.cli(&["HLEN", NEXT_KEY]).await.expect("it answers").int();
            (staged > 500).then_some(())
        };
        until("some is staged", PATIENCE, staged).await.expect("it is");
        redis.cli(lost).await.expect("it answers");
        proxy.set(Faults::default()).await.expect("fast");
        assert_eq!(writing.await.expect("it ends"), Ok(PublishOutcome::Written));
        assert_eq!(there(&redis).await, Some((revision, catalog.policies())));
    }
}

#[tokio::test]
async fn a_server_without_memory_changes_nothing() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    // Revision 5 removes a policy, 4 changes one: the first of the two must not be written alone.
    let catalog = |revision| Catalog { count: 10, revision };
    assert_eq!(catalog(3).publish(&store, None).await, Ok(PublishOutcome::Written));
    let memory = async |bytes: &str| {
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.expect("it answers");
        redis.cli(&["CONFIG", "SET", "maxmemory", bytes]).await.expect("it answers");
    };
    memory("1").await;
    for since in [Some(3), None] {
        let error = catalog(5).publish(&store, since).await.expect_err("there is no memory");
        assert!(error.to_string().contains("OOM"), "{error}");
        assert_eq!(there(&redis).await, Some((3, catalog(3).policies())));
    }
    memory("0").await;
    assert_eq!(catalog(5).publish(&store, Some(3)).await, Ok(PublishOutcome::Written));
    assert_eq!(there(&redis).await, Some((5, catalog(5).policies())));
}

#[tokio::test]
async fn what_cannot_be_published_is_said_by_its_place() {
    let store = start("redis://127.0.0.1:1");
    let policy = |name, document| PublicationPolicy {
        name,
        app: "a",
        is_shadow: false,
        version: 1,
        since_ms: None,
        document,
    };
    let check = async |revision, policies: &[PublicationPolicy<'_>], problem: &str| {
        let publication = of_catalog(revision, policies);
        let error = store.publish(&publication).await.expect_err("it cannot be published");
        assert_eq!(error.to_string(), problem);
    };
    check(-1, &[], "revision: `-1` is outside 0..=9007199254740991").await;
    check(1, &[policy("#a", "{}")], "policies[0].name: invalid name `#a`").await;
    let twice = [policy("a", "{}"), policy("a", "{}")];
    check(1, &twice, "policies[1].name: `a` is not in name order").await;
    let changed = Some(RevisionDiff { since: 0, names: &["a", "#revision"] });
    let publication = Publication { changed, ..of_catalog(1, &[]) };
    let error = store.publish(&publication).await.expect_err("it cannot be published");
    assert_eq!(error.to_string(), "changed.names[1]: invalid name `#revision`");
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    for (document, problem) in [("{", "is not JSON"), ("[1]", "is not a JSON object")] {
        let policies = [policy("a", document)];
        let publication = of_catalog(1, &policies);
        let error = store.publish(&publication).await.expect_err("it cannot be published");
        assert_eq!(error.to_string(), format!("policy `a`: {problem}"));
    }
    assert_eq!(there(&redis).await, None);
}

#[tokio::test]
async fn without_redis_it_fails_at_once_and_nothing_was_done() {
    let store = start("redis://127.0.0.1:1");
    store.ready().await.expect_err("nobody listens");
    let error = Catalog { count: 1, revision: 1 }.publish(&store, None).await;
    let Err(PublishError::Store(StoreError::Unavailable { executed, .. })) = error else {
        panic!("{error:?}")
    };
    assert_eq!(executed, Executed::No);
}

#[tokio::test]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    for revision in 1..4 {
        redis.script_flush().await.expect("a flush");
        let catalog = Catalog { count: 10, revision };
        assert_eq!(catalog.publish(&store, Some(revision - 1)).await, Ok(PublishOutcome::Written));
    }
    assert_eq!(store.stats().script_reloads, 3, "and each time once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_took_over_has_it_written_again() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let store = connect(&behind_sentinels(&group)).await;
    let catalog = |revision| Catalog { count: 500, revision };
    surely(&store, catalog(1), None).await;
    let new = group.failover().await.expect("a failover");
    // The last writes to the old master are not on the new one.
    group.nodes()[new].cli(&["DEL", POLICIES_KEY]).await.expect("it answers");
    let is_there = async || {
        // The old master may still accept a write, and lose it: a server asks again every few
        // seconds.
        catalog(2).publish(&store, Some(1)).await.ok();
        let there = there(&group.nodes()[new]).await;
        (there == Some((2, catalog(2).policies()))).then_some(())
    };
    until("it is there", PATIENCE, is_there).await.expect("the client follows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_it_in_one_slot_also_while_that_moves() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let store = connect(&in_cluster(&cluster)).await;
    let catalog = |revision| Catalog { count: 500, revision };
    surely(&store, catalog(1), None).await;
    surely(&store, catalog(2), Some(1)).await;
    let slot = cluster.slot_of(POLICIES_KEY).await.expect("a slot");
    assert_eq!(slot, cluster.slot_of(NEXT_KEY).await.expect("a slot"));
    let from = cluster.node_of(slot).await.expect("an owner");
    let to = (from + 1) % Cluster::MASTERS;
    let migration = cluster.begin_migration(slot, to).await.expect("a migration");
    surely(&store, catalog(3), Some(2)).await;
    migration.move_keys().await.expect("the keys move");
    surely(&store, catalog(4), Some(3)).await;
    migration.finish().await.expect("the slot moves");
    surely(&store, catalog(5), None).await;
    assert_eq!(there(&cluster.nodes()[to]).await, Some((5, catalog(5).policies())));
}

#[tokio::test]
async fn what_is_no_hash_makes_room_for_policies() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let catalog = |revision| Catalog { count: 3, revision };
    let next = format!("{POLICIES_KEY}:next");
    for (revision, key) in [(1, next.as_str()), (2, POLICIES_KEY)] {
        redis.cli(&["SET", key, "x"]).await.expect("it answers");
        assert_eq!(catalog(revision).publish(&store, None).await, Ok(PublishOutcome::Written));
        assert_eq!(there(&redis).await, Some((revision, catalog(revision).policies())));
    }
}
