//! Sentinels that fail over, because they are told to and because they must.

use sluicegate_testkit::{Client, Error, Options, Reply, SentinelOptions, Sentinels, need};

#[tokio::test]
async fn a_failover_makes_a_replica_the_master_with_the_data() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let mut group = group;
    assert_eq!(group.master().await.unwrap(), 0);
    assert_eq!((group.addresses().len(), group.nodes().len()), (3, 3));
    group.nodes()[0].cli(&["SET", "key", "value"]).await.unwrap();
    assert_eq!(group.nodes()[0].cli(&["WAIT", "2", "5000"]).await.unwrap().int(), 2);

    let new = group.failover().await.unwrap();
    assert_ne!(new, 0);
    assert_eq!(group.nodes()[new].cli(&["GET", "key"]).await.unwrap().text(), "value");
    // A client that asks any of them is told the same.
    for sentinel in group.addresses() {
        let mut client = Client::connect(sentinel).await.unwrap();
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME];
        while client.call(&command).await.unwrap().list()[1].text()
            != group.nodes()[new].address().port().to_string()
        {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_dead_master_is_replaced_and_returns_as_a_replica() {
    let node = Options { password: Some("secret".to_owned()), ..Options::default() };
    let options = SentinelOptions { node, ..SentinelOptions::default() };
    let mut group = need!(Sentinels::start(options).await);
    let old = group.kill_master().await.unwrap();
    let new = group.master_other_than(old).await.unwrap();
    assert_ne!(new, old);
    group.nodes()[new].cli(&["SET", "key", "value"]).await.unwrap();

    group.nodes()[old].restart().await.unwrap();
    let node = &group.nodes()[old];
    while node.cli(&["ROLE"]).await.unwrap().list()[0].text() != "slave"
        || node.cli(&["GET", "key"]).await.unwrap() == Reply::Nil
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(group.master().await.unwrap(), new);
}

#[tokio::test]
async fn a_master_that_needs_replicas_takes_no_writes_without_them() {
    let options = SentinelOptions { min_replicas: Some(1), ..SentinelOptions::default() };
    let mut group = need!(Sentinels::start(options).await);
    let nodes = group.nodes();
    nodes[0].cli(&["SET", "key", "value"]).await.unwrap();
    nodes[1].kill();
    nodes[2].kill();
    let refused = async {
        loop {
            match nodes[0].cli(&["SET", "key", "value"]).await {
                Err(Error::Reply(text)) => break text,
                other => drop(other.unwrap()),
            }
        }
    };
    let patience = std::time::Duration::from_secs(10);
    let refused = tokio::time::timeout(patience, refused).await.unwrap();
    assert!(refused.starts_with("NOREPLICAS"), "{refused}");
}
