//! A server that dies, a network that drops packets: no call waits too long, and none is executed
//! twice.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_store::redis::{CallEffect, ConnectError, RedisError};
use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, need};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::redis_client::{GRACE, Load, Record, back_after, connect, count, p99, start, until};

const DEADLINE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_for_5_s_holds_nobody_up_and_is_back_within_1_s() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?deadline_ms=20", redis.url())).await;
    let load = Load::start(&client, 8, Duration::from_millis(2));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = load.now();
    redis.kill();
    tokio::time::sleep(Duration::from_secs(5)).await;
    redis.restart().await.expect("the server comes back");
    let restarted = load.now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let records = load.stop().await;

    assert!(p99(&records) <= DEADLINE + GRACE, "{:?}", p99(&records));
    let back = back_after(&records, restarted);
    assert!(back < Duration::from_secs(1), "{back:?}");
    let during = |record: &&Record| record.begun > killed && record.begun < restarted;
    let failures: Vec<_> = records.iter().filter(during).collect();
    let quick = failures.iter().filter(|record| record.took < Duration::from_millis(5)).count();
    assert!(failures.len() > 1000 && quick * 100 > failures.len() * 99, "they fail at once");
    let unavailable = |record: &&&Record| {
        matches!(record.result, Err(RedisError::Unavailable { cause: ConnectError::Io { .. } }))
    };
    assert!(failures.iter().filter(unavailable).count() * 10 > failures.len() * 9);
    assert!(client.stats().reconnects >= 1, "{:?}", client.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_is_noticed_within_1_s_and_left_when_it_ends() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let client = connect(&format!("redis://{}?deadline_ms=20", proxy.address())).await;
    let load = Load::start(&client, 4, Duration::from_millis(2));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = load.now();
    proxy.set(Faults::black_hole()).await.expect("a black hole");
    let noticed = |cause: &ConnectError| {
        matches!(cause, ConnectError::Silent { .. } | ConnectError::Timeout { .. })
    };
    until("the silence was noticed", async || match count(&client, "probe").await {
        Err(RedisError::Unavailable { cause }) => noticed(&cause),
        _ => false,
    })
    .await;
    let noticed_after = load.now() - begun;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    proxy.heal().await.expect("no more black hole");
    let healed = load.now();
    until("the service was back", async || count(&client, "probe").await.is_ok()).await;
    let back = load.now() - healed;
    let records = load.stop().await;

    assert!(noticed_after < Duration::from_secs(1), "{noticed_after:?}");
    assert!(back < Duration::from_secs(2), "{back:?}");
    assert!(p99(&records) <= DEADLINE + GRACE, "{:?}", p99(&records));
    let longest = records.iter().map(|record| record.took).max().expect("there was load");
    assert!(longest < Duration::from_secs(1), "a call waited for the hole to end: {longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_leave_the_outcome_unknown_and_nothing_is_done_twice() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let client = connect(&format!("redis://{}?deadline_ms=20", proxy.address())).await;
    count(&client, "a").await.expect("all is well");
    proxy.set(Faults::cut_replies()).await.expect("a fault");
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let client = Arc::clone(&client);
        calls.spawn(async move { count(&client, "b").await });
    }
    let mut sent = 0;
    for result in calls.join_all().await {
        let error = result.expect_err("no reply comes through");
        // A call that was still waiting here may have been refused as one too many.
        let waited = RedisError::Overloaded { outcome: CallEffect::NotExecuted };
        assert!(matches!(error, RedisError::Timeout { .. }) || error == waited, "{error:?}");
        if error.outcome() == CallEffect::Unknown {
            sent += 1;
        }
    }
    assert!(sent >= 1, "one call or more was sent on the connection of their key");
    until("the connections were given up", async || {
        matches!(count(&client, "c").await, Err(RedisError::Unavailable { .. }))
    })
    .await;
    proxy.heal().await.expect("all is well again");
    until("the service was back", async || count(&client, "a").await.is_ok()).await;
    let executed: u64 =
        redis.cli(&["GET", "sg:b"]).await.expect("an answer").text().parse().expect("a count");
    assert_eq!(executed, sent, "what was sent was done once, and what was not, never");
    assert!(client.stats().unknown_outcomes >= sent);
    assert!(client.stats().timeouts >= 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_reset_after_sending_leaves_the_outcome_unknown() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let url = format!("redis://{}?connections=1&deadline_ms=2000", proxy.address());
    let client = connect(&url).await;
    let slow = Faults::delay(Duration::ZERO, Duration::from_millis(200));
    proxy.set(slow).await.expect("a fault");
    let call = tokio::spawn({
        let client = Arc::clone(&client);
        async move { count(&client, "a").await }
    });
    until("the request reached the server", async || {
        redis.cli(&["EXISTS", "sg:a"]).await.expect("an answer").int() == 1
    })
    .await;
    proxy.reset_connections().await.expect("resets");
    let begun = Instant::now();
    let result = call.await.expect("no panic");
    assert_eq!(result, Err(RedisError::Lost));
    assert!(begun.elapsed() < Duration::from_secs(1), "it fails at once");
    proxy.heal().await.expect("all is well again");
    until("the service was back", async || count(&client, "z").await.is_ok()).await;
    assert_eq!(count(&client, "a").await, Ok(2), "it was not sent again");
}

/// The server is still there: calls that were not sent wait for the next connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_closes_cost_no_call_that_was_not_sent() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1&deadline_ms=2000", redis.url())).await;
    for kill in 1..=10 {
        redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).await.ok();
        until("it connected again", async || {
            let called = count(&client, "a").await;
            assert!(matches!(called, Ok(_) | Err(RedisError::Lost)), "{called:?}");
            client.stats().reconnects >= kill
        })
        .await;
        client.reconnected().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_answers_late_gets_a_timeout_and_no_second_call() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    // A process that is late by a quarter of this does not count the server as slow.
    let deadline = Duration::from_millis(100);
    let client = connect(&format!("redis://{}?deadline_ms=100", proxy.address())).await;
    let late = Duration::from_millis(250);
    proxy.set(Faults::delay(late, Duration::ZERO)).await.expect("a fault");
    let begun = Instant::now();
    let error = count(&client, "a").await.expect_err("it is too late");
    assert_eq!(error, RedisError::Timeout { outcome: CallEffect::Unknown });
    assert!((deadline..late).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    proxy.heal().await.expect("all is well again");
    until("the late call was carried out", async || {
        redis.cli(&["EXISTS", "sg:a"]).await.expect("an answer").int() == 1
    })
    .await;
    until("the service was back", async || count(&client, "z").await.is_ok()).await;
    assert_eq!(count(&client, "a").await, Ok(2));
    assert_eq!(client.stats().reconnects, 0, "lateness below the bound breaks no connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_may_wait_are_refused_at_once() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1&deadline_ms=3000", redis.url())).await;
    count(&client, "a").await.expect("all is well");
    redis.stop_process().expect("it hangs");
    let mut calls = JoinSet::new();
    for _ in 0..6000 {
        let client = Arc::clone(&client);
        calls.spawn(async move { count(&client, "a").await });
    }
    let mut refused = 0;
    for result in calls.join_all().await {
        let error = result.expect_err("the server hangs");
        refused +=
            usize::from(error == RedisError::Overloaded { outcome: CallEffect::NotExecuted });
    }
    assert!(refused > 1000, "{refused}");
    redis.continue_process().expect("it goes on");
    until("the service was back", async || count(&client, "b").await.is_ok()).await;
}

#[tokio::test]
async fn a_connection_that_is_closed_while_idle_costs_no_call_its_outcome() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&redis.url()).await;
    count(&client, "a").await.expect("all is well");
    redis.kill();
    until("it was noticed", async || client.ready().await.is_err()).await;
    let error = count(&client, "a").await.expect_err("nobody is there");
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    assert_eq!(client.stats().unknown_outcomes, 0);
}

#[tokio::test]
async fn a_connection_that_dies_in_silence_while_idle_is_found_without_a_call() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a proxy");
    let client = connect(&format!("redis://{}?connections=1", proxy.address())).await;
    proxy.set(Faults::black_hole()).await.expect("a black hole");
    let limit = Instant::now() + Duration::from_secs(8);
    while !matches!(
        client.ready().await,
        Err(ConnectError::Silent { .. } | ConnectError::Timeout { .. })
    ) {
        assert!(Instant::now() < limit, "nobody noticed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(client.stats().calls, 0);
}

#[tokio::test]
async fn a_port_where_nobody_listens_fails_at_once_and_says_so() {
    // No test and no server uses port 1.
    let client = start("redis://127.0.0.1:1?deadline_ms=1000");
    let error = client.ready().await.expect_err("nobody listens");
    let shown = error.to_string();
    assert!(shown.starts_with("cannot connect to 127.0.0.1:1: "), "{shown}");
    let ConnectError::Io { kind, .. } = error else { panic!("{error:?}") };
    assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
    let begun = Instant::now();
    let error = count(&client, "a").await.expect_err("nobody listens");
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
