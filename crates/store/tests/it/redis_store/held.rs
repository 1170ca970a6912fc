//! The permits of a key that are held, as Redis has them.

use sluicegate_kernel::RuleSet;
use sluicegate_store::StoreError;
use sluicegate_store::redis::codec::{ScriptClock, state_key};
use sluicegate_testkit::{Cluster, ClusterOptions, Options, RedisServer, need};

use crate::held::{Version, acquire, check, slots};
use crate::redis_store::connect;

#[tokio::test]
async fn redis_lists_the_permits_that_are_held() {
    let redis = need!(RedisServer::start(Options::default()).await);
    check(&connect(&redis.url()).await).await;
}

#[tokio::test]
async fn a_cluster_lists_the_permits_that_are_held() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let url = format!("redis+cluster://{}", cluster.addresses()[0]);
    check(&connect(&url).await).await;
}

#[tokio::test]
async fn permits_lapse_by_the_clock_of_the_server() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await.with_clock(ScriptClock::Server);
    let version = Version::new(1, RuleSet::single("slots", slots(2, 30, 0).rule));
    assert_eq!(version.decide(&store, "key", &acquire("a", 2), 0).await, 2);
    // The caller's clock is years behind.
    let held = version.held(&store, "key", 0).await.expect("the store answers");
    let lapses_s = held.permits[0].lapses_after.get().div_ceil(1_000_000);
    assert!((20..=30).contains(&lapses_s), "{lapses_s}");
}

#[tokio::test]
async fn a_state_of_a_later_version_is_not_listed_by_an_earlier_one() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (ahead, behind) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let set = |limit| RuleSet::single("slots", slots(limit, 30, 0).rule);
    let (early, late) = (Version::new(1, set(1)), Version::new(2, set(5)));
    assert_eq!(late.decide(&ahead, "key", &acquire("a", 3), 0).await, 3);
    let held = early.held(&behind, "key", 1).await;
    assert!(matches!(held, Err(StoreError::Contended { .. })), "{held:?}");
    let held = late.held(&ahead, "key", 1).await.expect("the store answers");
    assert_eq!(held.permits.len(), 1, "and the state stays as it is");
}

#[tokio::test]
async fn what_is_no_state_is_an_error_of_its_key() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let version = Version::new(1, RuleSet::single("slots", slots(2, 30, 0).rule));
    version.decide(&store, "key", &acquire("a", 1), 0).await;
    let key = state_key("p", b"key");
    redis.cli(&["APPEND", &key, "x"]).await.expect("it answers");
    let held = version.held(&store, "key", 1).await;
    assert!(matches!(held, Err(StoreError::Unreadable { .. })), "{held:?}");
    redis.cli(&["DEL", &key]).await.expect("it answers");
    redis.cli(&["RPUSH", &key, "x"]).await.expect("it answers");
    let held = version.held(&store, "key", 1).await;
    assert!(matches!(held, Err(StoreError::Unreadable { .. })), "{held:?}");
}
