//! Sentinels that fail over, on command and when the master dies.

use std::time::Duration;

use sluicegate_testkit::{Client, Error, Options, SentinelOptions, Sentinels, need, until};

/// Longest wait for a failover, which takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_failover_makes_a_replica_the_master_with_the_data() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    assert_eq!(group.master().await.unwrap(), 0);
    assert_eq!((group.addresses().len(), group.nodes().len()), (3, 3));
    // One connection: `WAIT` waits for its own writes.
    let mut client = group.nodes()[0].client().await.unwrap();
    client.call(&["SET", "key", "value"]).await.unwrap();
    assert_eq!(client.call(&["WAIT", "2", "5000"]).await.unwrap().int(), 2);

    let new = group.failover().await.unwrap();
    assert_ne!(new, 0);
    assert_eq!(group.nodes()[new].cli(&["GET", "key"]).await.unwrap().text(), "value");
    // A client gets the same answer from each of them.
    for sentinel in group.addresses() {
        let mut client = Client::connect(sentinel).await.unwrap();
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME];
        let port = group.nodes()[new].address().port().to_string();
        let told = async || {
            let answer = client.call(&command).await.unwrap();
            (answer.list()[1].text() == port).then_some(())
        };
        until("the sentinel knew", PATIENCE, told).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_master_is_replaced_and_not_at_once_aware_of_it() {
    let node = Options { password: Some("secret".to_owned()), ..Options::default() };
    let options = SentinelOptions { node, ..SentinelOptions::default() };
    let mut group = need!(Sentinels::start(options).await);
    let old = group.kill_master().await.unwrap();
    let new = group.master_other_than(old).await.unwrap();
    assert_ne!(new, old);
    assert_eq!(group.master().await.unwrap(), new);
    group.nodes()[new].cli(&["SET", "key", "value"]).await.unwrap();

    // It does not know about the failover until the sentinels report it.
    group.nodes_mut()[old].restart().await.unwrap();
    let role = group.nodes()[old].cli(&["ROLE"]).await.unwrap();
    assert_eq!(role.list()[0].text(), "master");
    assert_eq!(group.master().await.unwrap(), new);
}

#[tokio::test]
async fn a_master_that_needs_replicas_takes_no_writes_without_them() {
    let options = SentinelOptions { min_replicas: Some(1), ..SentinelOptions::default() };
    let mut group = need!(Sentinels::start(options).await);
    let nodes = group.nodes_mut();
    nodes[0].cli(&["SET", "key", "value"]).await.unwrap();
    nodes[1].kill();
    nodes[2].kill();
    let refused = async || match nodes[0].cli(&["SET", "key", "value"]).await {
        Err(Error::Reply(text)) => Some(text),
        _ => None,
    };
    let refused = until("writes were refused", PATIENCE, refused).await.unwrap();
    assert!(refused.starts_with("NOREPLICAS"), "{refused}");
}
