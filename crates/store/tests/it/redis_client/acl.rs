//! The user with the fewest rights: the client works, and other commands are refused.

use sluicegate_store::redis::{RedisConfig, acl};
use sluicegate_testkit::{Client, Error, Options, RedisServer, need};

use crate::redis_client::{connect, count};

/// Returns the line for `url`, with a password, as the kit expects it.
fn user(url: &str) -> String {
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let line = acl(&config).replace("PASSWORD", "pw");
    line.strip_prefix("user ").expect("an ACL line begins with `user`").to_owned()
}

#[tokio::test]
async fn everything_works_under_the_least_privileged_user_and_nothing_else() {
    let mut options = Options::default();
    options.users.push(user("redis://app:pw@h/3"));
    let redis = need!(RedisServer::start(options).await);
    let url = format!("redis://app:pw@{}/3?deadline_ms=1000", redis.address());
    let client = connect(&url).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    let ttl = std::time::Duration::from_secs(1);
    client.set(b"sg:rules:1", b"x", ttl, client.deadline()).await.expect("a write");
    client.get(b"sg:rules:1", client.deadline()).await.expect("a read");
    redis.script_flush().await.expect("a flush");
    assert_eq!(count(&client, "a").await, Ok(2), "the script may be loaded again");

    let mut raw = Client::connect(redis.address()).await.expect("a connection");
    raw.call(&["AUTH", "app", "pw"]).await.expect("a login");
    raw.call(&["PING"]).await.expect("a sign of life");
    raw.call(&["DEL", "sg:a"]).await.expect("a key of its own");
    for refused in [
        &["FLUSHALL"][..],
        &["KEYS", "*"],
        &["CONFIG", "GET", "*"],
        &["SCRIPT", "FLUSH"],
        &["EVAL", "return 1", "0"],
        &["GET", "other"],
        &["SET", "other", "1"],
        &["ACL", "LIST"],
        &["PUBLISH", "channel", "1"],
        &["SUBSCRIBE", "channel"],
        &["ROLE"],
    ] {
        match raw.call(refused).await {
            Err(Error::Reply(reply)) => assert!(reply.starts_with("NOPERM"), "{reply}"),
            other => panic!("{refused:?}: {other:?}"),
        }
    }
}
