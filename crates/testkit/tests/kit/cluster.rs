//! Three masters, the migration of a slot between two of them, and one that dies.

use std::time::Duration;

use sluicegate_testkit::{Cluster, ClusterOptions, Error, Options, need, until};

/// Longest wait for a failover, which takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The answer's text, also if it is an error.
async fn ask(cluster: &Cluster, node: usize, command: &[&str]) -> String {
    match cluster.nodes()[node].cli(command).await {
        Ok(reply) => reply.text(),
        Err(Error::Reply(text)) => text,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn every_slot_is_served_by_one_of_three_masters() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    assert_eq!(cluster.addresses().len(), 3);
    for (slot, node) in [(0, 0), (5_461, 1), (10_921, 1), (10_922, 2), (16_383, 2)] {
        assert_eq!(cluster.node_of(slot).await.unwrap(), node, "slot {slot}");
    }
    let (a, b) = (cluster.slot_of("{a}1").await.unwrap(), cluster.slot_of("a").await.unwrap());
    assert_eq!((a, b), (15_495, 15_495));
    let moved = ask(&cluster, 0, &["GET", "a"]).await;
    assert_eq!(moved, format!("MOVED 15495 {}", cluster.addresses()[2]));
    // The node that is asked need not be well.
    cluster.nodes()[0].stop_process().unwrap();
    let node = tokio::time::timeout(Duration::from_secs(5), cluster.node_of(0)).await.unwrap();
    assert_eq!(node.unwrap(), 0);
}

#[tokio::test]
async fn a_slot_moves_step_by_step_through_ask_to_moved() {
    let node = Options { password: Some("secret".to_owned()), ..Options::default() };
    let options = ClusterOptions { node, ..ClusterOptions::default() };
    let cluster = need!(Cluster::start(options).await);
    let slot = cluster.slot_of("{a}").await.unwrap();
    let (from, to) = (cluster.node_of(slot).await.unwrap(), 0);
    let (old, new) = (cluster.addresses()[from], cluster.addresses()[to]);
    for index in 0..250 {
        ask(&cluster, from, &["SET", &format!("{{a}}{index}"), "value"]).await;
    }

    let migration = cluster.begin_migration(slot, to).await.unwrap();
    assert_eq!(migration.from(), from);
    // Present keys are served there; requests for absent ones are sent to the other master.
    assert_eq!(ask(&cluster, from, &["GET", "{a}1"]).await, "value");
    assert_eq!(ask(&cluster, from, &["GET", "{a}new"]).await, format!("ASK {slot} {new}"));
    assert_eq!(ask(&cluster, to, &["GET", "{a}1"]).await, format!("MOVED {slot} {old}"));

    assert_eq!(migration.move_keys().await.unwrap(), 250);
    assert_eq!(ask(&cluster, from, &["GET", "{a}1"]).await, format!("ASK {slot} {new}"));
    assert_eq!(cluster.node_of(slot).await.unwrap(), from);

    migration.finish().await.unwrap();
    assert_eq!(cluster.node_of(slot).await.unwrap(), to);
    assert_eq!(ask(&cluster, to, &["GET", "{a}1"]).await, "value");
    for other in [1, 2] {
        assert_eq!(ask(&cluster, other, &["GET", "{a}1"]).await, format!("MOVED {slot} {new}"));
    }
    cluster.migrate_slot(slot, from).await.unwrap();
    assert_eq!(ask(&cluster, from, &["GET", "{a}1"]).await, "value");
}

#[tokio::test]
async fn a_replica_takes_the_place_of_a_master_that_died() {
    let options = ClusterOptions { replicas: 1, ..ClusterOptions::default() };
    let mut cluster = need!(Cluster::start(options).await);
    let slot = cluster.slot_of("a").await.unwrap();
    let dead = cluster.kill_node_of(slot).await.unwrap();
    assert_eq!(dead, 2);
    let taken = async || Some(cluster.node_of(slot).await.unwrap()).filter(|&node| node != dead);
    let heir = until("somebody took the slot", PATIENCE, taken).await.unwrap();
    assert_eq!(heir, dead + Cluster::MASTERS);
    cluster.settled().await.unwrap();
    assert_eq!(ask(&cluster, heir, &["SET", "a", "1"]).await, "OK");
}
