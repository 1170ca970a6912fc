//! Listeners receive published revisions, through all faults of connections.

use std::time::Duration;

use sluicegate_store::redis::{POLICIES_CHANNEL, PublishOutcome, RedisStore, Revisions};
use sluicegate_testkit::{
    Cluster, ClusterOptions, FaultProxy, Faults, Options, RedisServer, SentinelOptions, Sentinels,
    need, until,
};
use tokio::time::timeout;

use crate::redis_policies::{Catalog, behind_sentinels, connect, in_cluster, start};

const PATIENCE: Duration = Duration::from_secs(20);

/// Publishes numbers on the channel, from `first` on, until one of them is received: that connection
/// is ready.
async fn hears(revisions: &mut Revisions, redis: &RedisServer, first: i64) -> i64 {
    let mut number = first;
    let said = async || {
        number += 1;
        let text = number.to_string();
        redis.cli(&["PUBLISH", POLICIES_CHANNEL, &text]).await.ok()?;
        timeout(Duration::from_millis(20), revisions.next()).await.ok()
    };
    until("it is heard", PATIENCE, said).await.expect("the listener is there")
}

async fn publish(store: &RedisStore, revision: i64) {
    let catalog = Catalog { count: 10, revision };
    assert_eq!(catalog.publish(store, Some(revision - 1)).await, Ok(PublishOutcome::Written));
}

/// Returns whether no revision comes for a moment.
async fn is_quiet(revisions: &mut Revisions) -> bool {
    timeout(Duration::from_millis(50), revisions.next()).await.is_err()
}

#[tokio::test]
async fn who_listens_hears_the_latest_of_what_is_published() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (writer, listener) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let mut revisions = listener.revisions();
    hears(&mut revisions, &redis, 100).await;
    while !is_quiet(&mut revisions).await {}
    publish(&writer, 1).await;
    assert_eq!(revisions.next().await, 1);
    for revision in 2..=5 {
        publish(&writer, revision).await;
    }
    let latest = async || (revisions.next().await == 5).then_some(());
    until("the latest is heard", PATIENCE, latest).await.expect("it is");
    assert!(is_quiet(&mut revisions).await, "each is heard once at most");
    redis.cli(&["PUBLISH", POLICIES_CHANNEL, "nonsense"]).await.expect("it answers");
    assert!(is_quiet(&mut revisions).await, "what is no number is not heard");
}

#[tokio::test]
async fn a_listener_that_never_asks_keeps_one_revision() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let mut revisions = store.revisions();
    hears(&mut revisions, &redis, 0).await;
    for number in 1_000..2_000 {
        let number = number.to_string();
        redis.cli(&["PUBLISH", POLICIES_CHANNEL, &number]).await.expect("it answers");
    }
    let mut heard = 0;
    let latest = async || {
        heard += 1;
        (revisions.next().await == 1_999).then_some(())
    };
    until("the latest is heard", PATIENCE, latest).await.expect("it is");
    assert!(heard < 10, "{heard} were kept");
}

#[tokio::test]
async fn a_listener_comes_back_with_its_server() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let store = start(&redis.url());
    let mut revisions = store.revisions();
    hears(&mut revisions, &redis, 0).await;
    redis.restart().await.expect("it comes back");
    assert!(hears(&mut revisions, &redis, 10_000).await > 10_000);
}

#[tokio::test]
async fn a_listener_notices_a_black_hole() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let store = start(&format!("redis://{}", proxy.address()));
    let mut revisions = store.revisions();
    hears(&mut revisions, &redis, 0).await;
    // A connection that has once lost a byte stays silent for good: the listener must make another.
    proxy.set(Faults::black_hole()).await.expect("a black hole");
    redis.cli(&["PUBLISH", POLICIES_CHANNEL, "1"]).await.expect("it answers");
    assert!(is_quiet(&mut revisions).await, "it is lost");
    proxy.set(Faults::default()).await.expect("a good network");
    assert!(hears(&mut revisions, &redis, 10_000).await > 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_follows_the_master() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let store = connect(&behind_sentinels(&group)).await;
    let mut revisions = store.revisions();
    let old = group.master().await.expect("a master");
    hears(&mut revisions, &group.nodes()[old], 0).await;
    group.nodes()[old].stop_process().expect("it hangs");
    let new = group.master_other_than(old).await.expect("a failover");
    assert!(hears(&mut revisions, &group.nodes()[new], 10_000).await > 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_it_is_heard_at_every_node() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let writer = connect(&in_cluster(&cluster)).await;
    // Each knows one node only, at first.
    let mut listeners = Vec::new();
    for node in cluster.nodes() {
        let store = start(&format!("redis+cluster://{}", node.address()));
        let mut revisions = store.revisions();
        hears(&mut revisions, node, 100).await;
        listeners.push((store, revisions));
    }
    let mut revision = 0;
    for (_store, revisions) in &mut listeners {
        // The first may be on its way while others still say their numbers.
        let published = async || {
            revision += 1;
            publish(&writer, revision).await;
            let heard = timeout(Duration::from_millis(200), revisions.next()).await;
            heard.is_ok_and(|heard| heard == revision).then_some(())
        };
        until("it is heard", PATIENCE, published).await.expect("it is");
    }
}
