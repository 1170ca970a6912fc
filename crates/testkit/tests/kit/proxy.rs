//! The effects of the proxy on connections, seen from both ends.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::time::Duration;

use sluicegate_testkit::{
    Client, Error, FaultProxy, Faults, Options, RedisServer, Reply, needed, until,
};
use tokio::time::Instant;

/// Long enough for an answer over loopback, short enough to wait for none.
const SHORTLY: Duration = Duration::from_millis(100);
/// Longest wait for events that take milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_secs(3_600);

/// A server, a proxy before it, and a client of the proxy that has been served once.
async fn set_up() -> Option<(RedisServer, FaultProxy, Client)> {
    let redis = needed(RedisServer::start(Options::default()).await)?;
    let proxy = FaultProxy::start(redis.address()).await.expect("there are free ports");
    let client = served(&proxy).await;
    Some((redis, proxy, client))
}

/// A new client that gets an answer.
async fn served(proxy: &FaultProxy) -> Client {
    let mut client = Client::connect(proxy.address()).await.expect("the proxy listens");
    let pong = client.call(&["PING"]).await.expect("the proxy passes it on");
    assert_eq!(pong.text(), "PONG");
    client
}

async fn silent(client: &mut Client, command: &[&str]) -> bool {
    matches!(client.call_within(SHORTLY, command).await, Err(Error::Timeout { .. }))
}

fn is_io<T>(result: Result<T, Error>, kind: ErrorKind) -> bool {
    matches!(result, Err(Error::Io(error)) if error.kind() == kind)
}

/// Asks `redis` itself until `key` is `value`.
async fn becomes(redis: &RedisServer, key: &str, value: &str) {
    let is = async || redis.cli(&["GET", key]).await.ok().filter(|got| got.text() == value);
    until("the value had arrived", PATIENCE, is).await.expect("requests are passed on");
}

/// Waits until a field of `INFO` is `value`.
async fn shows(redis: &RedisServer, field: &str, value: &str) {
    let is = async || redis.info(field).await.ok().filter(|got| got == value);
    until("the server showed it", PATIENCE, is).await.expect("the server hears of its clients");
}

#[tokio::test]
async fn a_proxy_without_faults_passes_everything_on_and_counts_it() {
    let Some((redis, proxy, mut client)) = set_up().await else { return };
    let large = "x".repeat(1 << 20);
    client.call(&["SET", "key", &large]).await.unwrap();
    assert_eq!(client.call(&["GET", "key"]).await.unwrap().text(), large);
    drop(served(&proxy).await);
    let down = 2 * 7 + "+OK\r\n$1048576\r\n\r\n".len() as u64 + (1 << 20);
    // A piece is counted when it has been passed on, and the client may have it a little earlier.
    let counted = async || (proxy.counts().bytes_to_client >= down).then_some(());
    until("all was counted", Duration::from_secs(10), counted).await.unwrap();
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.requests), (2, 4));
    let up = counts.bytes_to_server;
    // PING is 14 bytes, PONG 7.
    let set = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1048576\r\n\r\n".len() as u64 + (1 << 20);
    assert_eq!(up, 2 * 14 + set + "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".len() as u64);
    assert_eq!(counts.bytes_to_client, down);
    // The end of a connection is passed on as well: only the first client is left.
    shows(&redis, "connected_clients", "2").await;
}

#[tokio::test]
async fn each_direction_is_late_by_itself() {
    let Some((redis, proxy, mut client)) = set_up().await else { return };
    let ms = Duration::from_millis;
    proxy.set(Faults::delay(ms(60), ms(40))).await.unwrap();
    let start = Instant::now();
    client.call(&["PING"]).await.unwrap();
    assert!(start.elapsed() >= ms(100), "{:?}", start.elapsed());

    proxy.set(Faults::delay(Duration::ZERO, NEVER)).await.unwrap();
    assert!(silent(&mut client, &["SET", "late", "reply"]).await);
    becomes(&redis, "late", "reply").await;

    proxy.heal().await.unwrap();
    let mut client = served(&proxy).await;
    proxy.set(Faults::delay(NEVER, Duration::ZERO)).await.unwrap();
    assert!(silent(&mut client, &["SET", "late", "request"]).await);
    becomes(&redis, "late", "reply").await;
}

#[tokio::test]
async fn delayed_bytes_overlap_and_keep_their_order() {
    let Some((_redis, proxy, mut client)) = set_up().await else { return };
    proxy.set(Faults::delay(Duration::from_millis(50), Duration::ZERO)).await.unwrap();
    let start = Instant::now();
    for _ in 0..20 {
        client.send(&["INCR", "key"]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for value in 1..=20 {
        assert_eq!(client.receive().await.unwrap(), Reply::Int(value));
    }
    assert!(start.elapsed() < Duration::from_millis(20 * 50), "{:?}", start.elapsed());
    assert_eq!(proxy.counts().requests, 21);
}

#[tokio::test]
async fn connections_are_reset_on_both_sides_and_new_ones_work() {
    let Some((redis, proxy, mut client)) = set_up().await else { return };
    let mut blocked = served(&proxy).await;
    let waits = tokio::spawn(async move { blocked.call(&["BLPOP", "none", "0"]).await });
    shows(&redis, "blocked_clients", "1").await;
    proxy.reset_connections().await.unwrap();
    assert!(is_io(waits.await.unwrap(), ErrorKind::ConnectionReset));
    let broken = client.call(&["PING"]).await;
    assert!(is_io(broken, ErrorKind::ConnectionReset));
    shows(&redis, "blocked_clients", "0").await;
    served(&proxy).await;
}

#[tokio::test]
async fn a_black_hole_takes_everything_and_never_closes() {
    let Some((redis, proxy, mut client)) = set_up().await else { return };
    proxy.set(Faults::black_hole()).await.unwrap();
    assert!(silent(&mut client, &["SET", "key", "old"]).await);
    let mut new = Client::connect(proxy.address()).await.unwrap();
    assert!(silent(&mut new, &["SET", "key", "new"]).await);
    assert_eq!(redis.cli(&["GET", "key"]).await.unwrap(), Reply::Nil);

    // A connection that has lost bytes stays silent after the proxy is healed: no half a request,
    // no old reply.
    proxy.heal().await.unwrap();
    assert!(silent(&mut client, &["SET", "key", "after"]).await);
    assert!(silent(&mut new, &["SET", "key", "after"]).await);
    assert_eq!(redis.cli(&["GET", "key"]).await.unwrap(), Reply::Nil);
    served(&proxy).await;
}

#[tokio::test]
async fn in_a_black_hole_nobody_hears_of_the_other_sides_end() {
    let Some((mut redis, proxy, mut client)) = set_up().await else { return };
    proxy.set(Faults::black_hole()).await.unwrap();
    redis.kill();
    assert!(silent(&mut client, &["PING"]).await);
    let mut new = Client::connect(proxy.address()).await.unwrap();
    assert!(silent(&mut new, &["PING"]).await);
}

#[tokio::test]
async fn requests_are_carried_out_while_replies_are_cut() {
    let Some((redis, proxy, mut client)) = set_up().await else { return };
    proxy.set(Faults::cut_replies()).await.unwrap();
    assert!(silent(&mut client, &["INCR", "old"]).await);
    becomes(&redis, "old", "1").await;
    let mut new = Client::connect(proxy.address()).await.unwrap();
    assert!(silent(&mut new, &["INCR", "new"]).await);
    becomes(&redis, "new", "1").await;
    assert_eq!(proxy.counts().bytes_to_client, 7);

    proxy.heal().await.unwrap();
    assert!(silent(&mut client, &["INCR", "old"]).await);
    becomes(&redis, "old", "2").await;
    served(&proxy).await;
}

#[tokio::test]
async fn a_limited_connection_takes_its_time() {
    let Some((_redis, proxy, mut client)) = set_up().await else { return };
    let rate = NonZeroU32::new(50_000).unwrap();
    proxy.set(Faults::limit(rate)).await.unwrap();
    let start = Instant::now();
    client.call(&["SET", "key", &"x".repeat(10_000)]).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn refused_means_refused_while_old_connections_go_on() {
    let Some((_redis, proxy, mut client)) = set_up().await else { return };
    for _ in 0..3 {
        proxy.set(Faults::refuse()).await.unwrap();
        let refused = Client::connect(proxy.address()).await;
        assert!(is_io(refused, ErrorKind::ConnectionRefused));
        client.call(&["PING"]).await.unwrap();
        proxy.heal().await.unwrap();
        served(&proxy).await;
    }
}

#[tokio::test]
async fn without_a_server_connections_are_reset() {
    let Some((mut redis, proxy, mut client)) = set_up().await else { return };
    redis.kill();
    assert!(matches!(client.call(&["PING"]).await, Err(Error::Io(_))));
    // The reset may come before the connection is seen to stand.
    let new = async { Client::connect(proxy.address()).await?.call(&["PING"]).await };
    assert!(matches!(new.await, Err(Error::Io(_))));
    redis.restart().await.unwrap();
    served(&proxy).await;
}
