//! One server: its options, and its operations.

use std::io::ErrorKind;
use std::time::Duration;

use sluicegate_testkit::{Client, Error, Options, RedisServer, Reply, need};
use tokio::time::Instant;

/// Long enough for an answer, short enough to wait for none.
const SHORTLY: Duration = Duration::from_millis(100);

fn refused(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused)
}

fn says(error: Error, beginning: &str) -> bool {
    matches!(error, Error::Reply(text) if text.starts_with(beginning))
}

#[tokio::test]
async fn servers_are_empty_apart_from_each_other_and_gone_when_they_are_dropped() {
    let one = need!(RedisServer::start(Options::default()).await);
    let other = need!(RedisServer::start(Options::default()).await);
    one.cli(&["SET", "key", "value"]).await.unwrap();
    assert_eq!(one.cli(&["GET", "key"]).await.unwrap().text(), "value");
    assert_eq!(other.cli(&["GET", "key"]).await.unwrap(), Reply::Nil);
    assert_eq!(one.url(), format!("redis://{}", one.address()));
    assert!(one.address().port() < 32_768);
    assert!(one.version().number >= [6, 2, 0], "{}", one.version());

    let address = one.address();
    drop(one);
    assert!(refused(&Client::connect(address).await.unwrap_err()));
    assert_eq!(other.cli(&["PING"]).await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn a_killed_server_comes_back_empty_on_its_port() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let (address, process) = (redis.address(), redis.process_id());
    redis.cli(&["SET", "key", "value"]).await.unwrap();
    redis.kill();
    assert!(refused(&redis.cli(&["PING"]).await.unwrap_err()));
    for _ in 0..3 {
        redis.restart().await.unwrap();
        assert_eq!(redis.address(), address);
        assert_ne!(redis.process_id(), process);
        assert_eq!(redis.cli(&["GET", "key"]).await.unwrap(), Reply::Nil);
    }
}

#[tokio::test]
async fn a_frozen_server_takes_connections_and_answers_only_when_it_goes_on() {
    let redis = need!(RedisServer::start(Options::default()).await);
    redis.stop_process().unwrap();
    let mut client = Client::connect(redis.address()).await.unwrap();
    let silent = client.call_within(SHORTLY, &["PING"]).await;
    assert!(matches!(silent, Err(Error::Timeout { .. })), "{silent:?}");
    redis.continue_process().unwrap();
    assert_eq!(redis.cli(&["PING"]).await.unwrap().text(), "PONG");
}

#[tokio::test]
async fn a_password_is_asked_of_everyone_and_is_in_the_url() {
    let password = Some("secret".to_owned());
    let redis = need!(RedisServer::start(Options { password, ..Options::default() }).await);
    let mut stranger = Client::connect(redis.address()).await.unwrap();
    assert!(says(stranger.call(&["PING"]).await.unwrap_err(), "NOAUTH"));
    assert!(says(stranger.call(&["AUTH", "wrong"]).await.unwrap_err(), "WRONGPASS"));
    stranger.call(&["AUTH", "secret"]).await.unwrap();
    assert_eq!(redis.cli(&["PING"]).await.unwrap().text(), "PONG");
    assert_eq!(redis.url(), format!("redis://:secret@{}", redis.address()));
}

#[tokio::test]
async fn a_user_may_do_what_its_line_says_also_where_the_default_user_is_off() {
    let users = ["default off", "app on >pw ~sg:* +get"].map(str::to_owned).to_vec();
    let redis = need!(RedisServer::start(Options { users, ..Options::default() }).await);
    let mut app = Client::connect(redis.address()).await.unwrap();
    assert!(says(app.call(&["GET", "sg:1"]).await.unwrap_err(), "NOAUTH"));
    app.call(&["AUTH", "app", "pw"]).await.unwrap();
    assert_eq!(app.call(&["GET", "sg:1"]).await.unwrap(), Reply::Nil);
    for refused in [&["GET", "other"][..], &["SET", "sg:1", "1"]] {
        assert!(says(app.call(refused).await.unwrap_err(), "NOPERM"), "{refused:?}");
    }
    redis.cli(&["SET", "other", "1"]).await.unwrap();
}

#[tokio::test]
async fn limits_of_memory_and_further_lines_reach_the_server() {
    let options = Options {
        maxmemory: Some(64 << 20),
        config: vec!["maxmemory-policy allkeys-lru".to_owned()],
        ..Options::default()
    };
    let redis = need!(RedisServer::start(options).await);
    assert_eq!(redis.info("maxmemory").await.unwrap(), (64 << 20).to_string());
    assert_eq!(redis.info("maxmemory_policy").await.unwrap(), "allkeys-lru");
}

#[tokio::test]
async fn a_replica_has_its_masters_data_when_it_has_started() {
    let password = Some("secret".to_owned());
    let options = Options { password, ..Options::default() };
    let master = need!(RedisServer::start(options.clone()).await);
    master.cli(&["SET", "key", "value"]).await.unwrap();
    let replica_of = Some(master.address());
    let replica = RedisServer::start(Options { replica_of, ..options }).await.unwrap();
    assert_eq!(replica.cli(&["GET", "key"]).await.unwrap().text(), "value");
    assert!(says(replica.cli(&["SET", "key", "other"]).await.unwrap_err(), "READONLY"));
}

#[tokio::test]
async fn scripts_are_forgotten_at_once() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let sha = redis.cli(&["SCRIPT", "LOAD", "return {1, false, 'x'}"]).await.unwrap().text();
    let reply = redis.cli(&["EVALSHA", &sha, "0"]).await.unwrap();
    assert_eq!(reply.list(), [Reply::Int(1), Reply::Nil, Reply::Bytes(b"x".to_vec())]);
    redis.script_flush().await.unwrap();
    assert!(says(redis.cli(&["EVALSHA", &sha, "0"]).await.unwrap_err(), "NOSCRIPT"));
}

/// The time of `TIME`, in microseconds.
async fn time_us(redis: &RedisServer) -> i64 {
    let time = redis.cli(&["TIME"]).await.unwrap();
    time.list()[0].int() * 1_000_000 + time.list()[1].int()
}

#[tokio::test]
async fn a_server_lives_in_the_time_that_it_is_told() {
    let redis = need!(RedisServer::start(Options { clock: true, ..Options::default() }).await);
    let (start, origin) = (Instant::now(), time_us(&redis).await);
    for offset_s in [-60, 60, -1, 1, 0, 366 * 86_400, 0] {
        redis.set_clock_offset_us(offset_s * 1_000_000).unwrap();
        let now = time_us(&redis).await;
        let passed_us = i64::try_from(start.elapsed().as_micros()).unwrap();
        let late_us = origin + offset_s * 1_000_000 + passed_us - now;
        assert!((-10_000..10_000_000).contains(&late_us), "{offset_s} s: {late_us} us late");
    }
    // Keys end by that clock too.
    redis.cli(&["SET", "key", "value", "EX", "60"]).await.unwrap();
    assert_eq!(redis.cli(&["EXISTS", "key"]).await.unwrap().int(), 1);
    redis.set_clock_offset_us(61_000_000).unwrap();
    assert_eq!(redis.cli(&["EXISTS", "key"]).await.unwrap().int(), 0);
}

#[tokio::test]
async fn one_server_s_clock_is_nobody_elses_and_outlasts_a_restart() {
    let mut ahead = need!(RedisServer::start(Options { clock: true, ..Options::default() }).await);
    let other = RedisServer::start(Options { clock: true, ..Options::default() }).await.unwrap();
    ahead.set_clock_offset_us(60_000_000).unwrap();
    ahead.restart().await.unwrap();
    let (ahead, other) = (time_us(&ahead).await, time_us(&other).await);
    assert!((50_000_000..60_000_001).contains(&(ahead - other)), "{} us", ahead - other);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_missing_and_one_that_fails_says_why() {
    let binary = Some("/nonexistent/redis-server".into());
    let missing = RedisServer::start(Options { binary, ..Options::default() }).await.unwrap_err();
    assert!(matches!(&missing, Error::Missing(_)), "{missing:?}");
    assert!(missing.to_string().starts_with("`/nonexistent/redis-server` is not installed"));

    need!(RedisServer::start(Options::default()).await);
    let config = vec!["no-such-directive yes".to_owned()];
    let failed = RedisServer::start(Options { config, ..Options::default() }).await.unwrap_err();
    assert!(matches!(&failed, Error::Start { log } if log.contains("no-such-directive")));
}
