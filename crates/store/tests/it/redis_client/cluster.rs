//! Slots that move and nodes that die.

use std::time::Duration;

use sluicegate_store::redis::{ConnectError, RedisConfig, RedisError, acl};
use sluicegate_testkit::{Cluster, ClusterOptions, need};
use tokio::time::Instant;

use crate::redis_client::{
    Load, Record, ask, back_after, connect, count, is_slow, number, start, until,
};

/// The slot of the keys of the load's first caller.
const HOT: &str = "sg:{load-0}";

fn url(cluster: &Cluster) -> String {
    let hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    format!("redis+cluster://{}", hosts.join(","))
}

fn failures(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.result.is_err()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_go_to_the_nodes_that_own_them() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let client = connect(&format!("{}?deadline_ms=1000&connections=1", url(&cluster))).await;
    for key in 0..100 {
        assert_eq!(count(&client, format!("{{k{key}}}")).await, Ok(1));
    }
    let blob = b"blob";
    let ttl = Duration::from_secs(9);
    client.set(b"sg:rules:x", blob, ttl, client.deadline()).await.expect("a write");
    let found = client.get(b"sg:rules:x", client.deadline()).await.expect("a read");
    assert_eq!(found.as_deref(), Some(&blob[..]));
    assert_eq!(client.stats().redirects, 0, "the map is right from the start");
    for node in 0..Cluster::MASTERS {
        let keys = cluster.nodes()[node].cli(&["DBSIZE"]).await.expect("an answer").int();
        assert!(keys > 10, "node {node} has {keys} keys");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_slot_that_moves_under_load_is_followed_without_an_error() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let client = connect(&format!("{}?deadline_ms=500", url(&cluster))).await;
    let slot = cluster.slot_of(HOT).await.expect("a slot");
    let load = Load::start(&client, 4, Duration::from_micros(500));
    for _ in 0..10 {
        let from = cluster.node_of(slot).await.expect("an owner");
        let to = (from + 1) % Cluster::MASTERS;
        let migration = cluster.begin_migration(slot, to).await.expect("a migration");
        tokio::time::sleep(Duration::from_millis(20)).await;
        migration.move_keys().await.expect("the keys move");
        // The old node answers ASK for the keys that are gone.
        tokio::time::sleep(Duration::from_millis(20)).await;
        migration.finish().await.expect("the slot moves");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let records = load.stop().await;
    assert!(failures(&records).is_empty(), "{:?}", failures(&records)[0]);
    let stats = client.stats();
    assert!(stats.redirects >= 20, "each move gave an ASK and a MOVED at least: {stats:?}");
    let mut sum = 0;
    for caller in 0..4 {
        let key = ask(format!("{{load-{caller}}}"), "0");
        sum += number(&client.eval(key, client.deadline()).await.expect("a count"));
    }
    assert_eq!(sum, records.len() as u64, "each call counted exactly once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_fails_its_own_slots_at_once_and_no_others() {
    let options = ClusterOptions::default();
    let mut cluster = need!(Cluster::start(options).await);
    for node in 0..Cluster::MASTERS {
        let partial = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        cluster.nodes()[node].cli(&partial).await.expect("an answer");
    }
    let client = connect(&format!("{}?deadline_ms=20&connections=1", url(&cluster))).await;
    let slot = cluster.slot_of(HOT).await.expect("a slot");
    let dead = cluster.kill_node_of(slot).await.expect("a death");
    until("the death was noticed", async || {
        matches!(count(&client, "{load-0}").await, Err(RedisError::Unavailable { .. }))
    })
    .await;
    let begun = Instant::now();
    let mut others = 0;
    for key in 0..200 {
        let key = format!("{{k{key}}}");
        let slot = cluster.slot_of(&format!("sg:{key}")).await.expect("a slot");
        let owner = cluster.node_of(slot).await.expect("an owner");
        let result = count(&client, &key).await;
        if owner == dead {
            let failed = result.expect_err("its node is dead");
            let is_away = matches!(failed, RedisError::Unavailable { .. });
            assert!(is_away || is_slow(&failed), "{failed:?}");
        } else {
            others += 1;
            let is_served = result == Ok(1) || result.as_ref().is_err_and(is_slow);
            assert!(is_served, "{key} lives on node {owner}: {result:?}");
        }
    }
    assert!(others > 50, "{others}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    cluster.nodes_mut()[dead].restart().await.expect("it comes back");
    // It does so after two seconds, as every master that has just started.
    until("it served again", async || {
        let info = cluster.nodes()[dead].cli(&["CLUSTER", "INFO"]).await.expect("an answer");
        info.text().contains("cluster_state:ok")
    })
    .await;
    let restarted = Instant::now();
    until("its slots were back", async || count(&client, "{load-0}").await.is_ok()).await;
    assert!(restarted.elapsed() < Duration::from_secs(1), "{:?}", restarted.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_found() {
    let options = ClusterOptions { replicas: 1, ..ClusterOptions::default() };
    let mut cluster = need!(Cluster::start(options).await);
    let client = connect(&format!("{}?deadline_ms=20", url(&cluster))).await;
    let slot = cluster.slot_of(HOT).await.expect("a slot");
    let load = Load::start(&client, 2, Duration::from_millis(1));
    let dead = cluster.kill_node_of(slot).await.expect("a death");
    let replica = dead + Cluster::MASTERS;
    until_patient("the replica took over", async || {
        let role = cluster.nodes()[replica].cli(&["ROLE"]).await.expect("an answer");
        role.list()[0].text() == "master"
    })
    .await;
    let there = load.now();
    until_patient("the service was back", async || count(&client, "{load-0}").await.is_ok()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let records = load.stop().await;
    let back = back_after(&records, there);
    assert!(back < Duration::from_secs(2), "{back:?}");
}

/// Waits like [`until`], but longer: a cluster takes its time to agree.
async fn until_patient(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(15);
    while !happened().await {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_cluster_of_which_nobody_answers_is_said() {
    let client = start("redis+cluster://127.0.0.1:1?deadline_ms=500");
    let error = client.ready().await.expect_err("nobody listens");
    let cause = "cannot connect to 127.0.0.1:1: Connection refused (os error 111)";
    assert_eq!(error, ConnectError::NoNode { cause: cause.into() });
    let error = count(&client, "a").await.expect_err("nobody listens");
    assert_eq!(error, RedisError::from(ConnectError::NoNode { cause: cause.into() }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_least_privileged_user_suffices_in_a_cluster() {
    let own = "redis+cluster://app:pw@h";
    let config: RedisConfig = own.parse().expect("a good URL");
    let line = acl(&config).replace("PASSWORD", "pw");
    let mut options = ClusterOptions::default();
    options.node.users.push(line.strip_prefix("user ").expect("an ACL line").to_owned());
    let cluster = need!(Cluster::start(options).await);
    let url = url(&cluster).replace("://", "://app:pw@");
    let client = connect(&format!("{url}?deadline_ms=1000")).await;
    assert_eq!(count(&client, "{load-0}").await, Ok(1));
    let slot = cluster.slot_of(HOT).await.expect("a slot");
    let to = (cluster.node_of(slot).await.expect("an owner") + 1) % Cluster::MASTERS;
    let migration = cluster.begin_migration(slot, to).await.expect("a migration");
    migration.move_keys().await.expect("the keys move");
    assert_eq!(count(&client, "{load-0}").await, Ok(2), "ASK is followed");
    migration.finish().await.expect("the slot moves");
    assert_eq!(count(&client, "{load-0}").await, Ok(3), "MOVED is followed");
}
