//! The users with the fewest rights: their own tasks work, and other commands are refused.

use sluicegate_store::redis::{
    CALLS_CHANNEL, POLICIES_CHANNEL, POLICIES_KEY, PublishError, PublishOutcome, RedisConfig, acl,
    program_acl,
};
use sluicegate_testkit::{Client, Cluster, ClusterOptions, Error, Options, RedisServer, need};

use crate::redis_policies::{Catalog, connect, in_cluster, start, there};

/// Returns the lines for the two users, as the kit expects them.
fn users(url: &str) -> Vec<String> {
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let line = |line: String| {
        let line = line.replace("PASSWORD", "pw");
        line.strip_prefix("user ").expect("an ACL line begins with `user`").to_owned()
    };
    vec![line(acl(&config)), line(program_acl(&config))]
}

async fn log_in(redis: &RedisServer, user: &str) -> Client {
    let mut client = Client::connect(redis.address()).await.expect("a connection");
    client.call(&["AUTH", user, "pw"]).await.expect("a login");
    client
}

async fn is_refused(client: &mut Client, command: &[&str]) {
    match client.call(command).await {
        Err(Error::Reply(reply)) => assert!(reply.starts_with("NOPERM"), "{command:?}: {reply}"),
        other => panic!("{command:?}: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_publishes_and_listens_with_its_rights() {
    let options = Options { users: users("redis://server:pw@h"), ..Options::default() };
    let redis = need!(RedisServer::start(options).await);
    let store = connect(&format!("redis://server:pw@{}", redis.address())).await;
    let catalog = |revision| Catalog { count: 300, revision };
    for (revision, since) in [(1, None), (2, Some(1)), (5, Some(2)), (200, None)] {
        assert_eq!(catalog(revision).publish(&store, since).await, Ok(PublishOutcome::Written));
    }
    assert_eq!(there(&redis).await, Some((200, catalog(200).policies())));
    let mut client = log_in(&redis, "server").await;
    is_refused(&mut client, &["PUBLISH", "other", "1"]).await;
    is_refused(&mut client, &["HSET", "other", "a", "b"]).await;
    client.call(&["SUBSCRIBE", POLICIES_CHANNEL]).await.expect("a subscription");
}

#[tokio::test]
async fn a_program_reads_and_listens_and_calls_but_publishes_no_policies() {
    let options = Options { users: users("redis://server:pw@h"), ..Options::default() };
    let redis = need!(RedisServer::start(options).await);
    let writer = connect(&format!("redis://server:pw@{}", redis.address())).await;
    let catalog = |revision| Catalog { count: 10, revision };
    assert_eq!(catalog(1).publish(&writer, None).await, Ok(PublishOutcome::Written));
    let mut client = log_in(&redis, "sluicegate-program").await;
    for command in [
        &["HGETALL", POLICIES_KEY][..],
        &["HMGET", POLICIES_KEY, "#format", "#revision"],
        &["HGET", POLICIES_KEY, "#revision"],
        &["HLEN", POLICIES_KEY],
        &["ECHO", "alive"],
        &["HSCAN", POLICIES_KEY, "0", "COUNT", "500"],
    ] {
        client.call(command).await.expect("it may read");
    }
    is_refused(&mut client, &["HSET", POLICIES_KEY, "a", "b"]).await;
    client.call(&["PUBLISH", CALLS_CHANNEL, "1"]).await.expect("it may call requests that wait");
    is_refused(&mut client, &["PUBLISH", "other", "1"]).await;
    is_refused(&mut client, &["SUBSCRIBE", "other"]).await;
    client.call(&["SUBSCRIBE", POLICIES_CHANNEL]).await.expect("a subscription");

    let url = format!("redis://sluicegate-program:pw@{}", redis.address());
    let program = connect(&url).await;
    let error = catalog(2).publish(&program, Some(1)).await.expect_err("it may not");
    assert!(matches!(error, PublishError::Store(_)), "{error:?}");
    let error = error.to_string();
    // Redis 6.2, 7, and 8 and Valkey have three wordings.
    let says = ["NOPERM", "can't run this command", "has no permissions to run"];
    assert!(says.iter().any(|says| error.contains(says)), "{error}");
    assert_eq!(there(&redis).await, Some((1, catalog(1).policies())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_suffice_in_a_cluster() {
    let mut options = ClusterOptions::default();
    options.node.users = users("redis+cluster://server:pw@h");
    let cluster = need!(Cluster::start(options).await);
    let url = in_cluster(&cluster).replace("://", "://server:pw@");
    let store = connect(&url).await;
    let mut revisions = start(&url).revisions();
    let mut revision = 0;
    let heard = async || {
        revision += 1;
        let catalog = Catalog { count: 10, revision };
        assert_eq!(catalog.publish(&store, Some(revision - 1)).await, Ok(PublishOutcome::Written));
        let patience = std::time::Duration::from_millis(100);
        tokio::time::timeout(patience, revisions.next()).await.ok()
    };
    let patience = std::time::Duration::from_secs(20);
    sluicegate_testkit::until("it is heard", patience, heard).await.expect("it is");
}
