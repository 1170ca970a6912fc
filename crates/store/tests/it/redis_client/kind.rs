//! The kind of server that answers: a URL that names another kind fails at connect, with the scheme to use.

use sluicegate_testkit::{
    Cluster, ClusterOptions, Options, RedisServer, SentinelOptions, Sentinels, need,
};

use crate::redis_client::{count, start};

/// Returns the reason why a client of `url` has no connection; a call returns the same.
async fn refusal(url: &str) -> String {
    let client = start(url);
    let error = client.ready().await.expect_err("the wrong kind of server").to_string();
    let of_call = count(&client, "a").await.expect_err("there is no connection").to_string();
    assert_eq!(of_call, format!("redis is unavailable: {error}"), "{url}");
    error
}

#[tokio::test]
async fn a_single_redis_is_no_cluster_and_no_sentinel() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let at = redis.address();
    let error = refusal(&format!("redis+cluster://{at}")).await;
    assert_eq!(error, format!("{at} is a Redis whose cluster mode is off: use redis://"));
    let error = refusal(&format!("redis+sentinel://{at}/main")).await;
    let advice = "name the Sentinels, or use redis://";
    assert_eq!(error, format!("{at} is a Redis, not a Sentinel: {advice}"));
}

#[tokio::test]
async fn a_node_of_a_cluster_is_no_single_redis() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let at = cluster.nodes()[0].address();
    let expected = format!("{at} is a node of a Redis Cluster: use redis+cluster://");
    assert_eq!(refusal(&format!("redis://{at}")).await, expected);
    assert_eq!(refusal(&format!("redis+sentinel://{at}/main")).await, expected);
}

#[tokio::test]
async fn a_cluster_that_serves_no_slot_is_not_ready() {
    let config = vec!["cluster-enabled yes".to_owned()];
    let redis = need!(RedisServer::start(Options { config, ..Options::default() }).await);
    let at = redis.address();
    let error = refusal(&format!("redis+cluster://{at}")).await;
    let expected = format!("the cluster of {at} is not ready: none of its 16384 slots is served");
    assert_eq!(error, expected);
    let error = refusal(&format!("redis://{at}")).await;
    assert_eq!(error, format!("{at} is a node of a Redis Cluster: use redis+cluster://"));
}

#[tokio::test]
async fn a_replica_is_named_before_it_refuses_a_write() {
    let master = need!(RedisServer::start(Options::default()).await);
    let options = Options { replica_of: Some(master.address()), ..Options::default() };
    let replica = need!(RedisServer::start(options).await);
    let at = replica.address();
    let error = refusal(&format!("redis://{at}")).await;
    let advice = "name the master, or use redis+sentinel://";
    assert_eq!(error, format!("{at} is a replica, which accepts no writes: {advice}"));
}

#[tokio::test]
async fn a_sentinel_is_no_redis_and_one_that_is_away_is_said() {
    let group = need!(Sentinels::start(SentinelOptions::default()).await);
    let at = group.sentinels()[0].address();
    let error = refusal(&format!("redis://{at}")).await;
    let advice = "use redis+sentinel://, with the master's name as the path";
    assert_eq!(error, format!("{at} is a Sentinel: {advice}"));
    assert!(refusal(&format!("redis+cluster://{at}")).await.ends_with(advice));

    let error = refusal("redis+sentinel://127.0.0.1:1/main").await;
    let cause = "cannot connect to 127.0.0.1:1: Connection refused (os error 111)";
    assert_eq!(error, format!("no sentinel answers: {cause}"));
}

#[tokio::test]
async fn a_redis_without_evalsha_is_named_before_the_first_decision() {
    let config = vec!["rename-command EVALSHA \"\"".to_owned()];
    let redis = need!(RedisServer::start(Options { config, ..Options::default() }).await);
    let at = redis.address();
    let error = refusal(&format!("redis://{at}")).await;
    let found = "a Redis without the command EVALSHA, which every decision needs";
    let advice = "remove `rename-command EVALSHA` from its configuration";
    assert_eq!(error, format!("{at} is {found}: {advice}"));
}

#[tokio::test]
async fn a_user_without_the_right_to_evalsha_is_refused_before_the_first_decision() {
    let users = vec!["app on >secret ~* &* +@all -evalsha".to_owned()];
    let redis = need!(RedisServer::start(Options { users, ..Options::default() }).await);
    let at = redis.address();
    let error = refusal(&format!("redis://app:secret@{at}")).await;
    assert!(error.starts_with(&format!("{at} does not permit a command: NOPERM")), "{error}");
    assert!(error.contains("evalsha"), "{error}");
}

#[tokio::test]
async fn a_redis_that_has_no_room_for_another_client_says_so() {
    let config = vec!["maxclients 4".to_owned()];
    let redis = need!(RedisServer::start(Options { config, ..Options::default() }).await);
    let at = redis.address();
    let others = async |_| tokio::net::TcpStream::connect(at.to_string()).await;
    let _others = futures_util::future::join_all((0..4).map(others)).await;
    let error = refusal(&format!("redis://{at}")).await;
    let advice = "(raise `maxclients`, or close other clients)";
    let expected =
        format!("{at} refuses the connection: ERR max number of clients reached {advice}");
    assert_eq!(error, expected);
}
