//! One server that works: calls, their joining, and the script that goes missing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_store::redis::{CallEffect, ConnectError, LuaScript, RedisClient, RedisError};
use sluicegate_testkit::{Options, RedisServer, need};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::redis_client::{COUNT, Load, ask, connect, count, number, start};

#[tokio::test]
async fn a_call_carries_its_arguments_and_brings_the_reply() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&redis.url()).await;
    assert_eq!(count(&client, "a").await, Ok(1));
    let reply = client.eval(ask("a", "41"), client.deadline()).await.expect("a reply");
    assert_eq!(reply, Bytes::from_static(b"42"));
    let key = b"sg:rules:1";
    assert_eq!(client.get(key, client.deadline()).await, Ok(None));
    let ttl = Duration::from_secs(60);
    client.set(key, b"\0blob", ttl, client.deadline()).await.expect("a write");
    let blob = client.get(key, client.deadline()).await.expect("a read");
    assert_eq!(blob, Some(Bytes::from_static(b"\0blob")));
    let ttl_ms = redis.cli(&["PTTL", "sg:rules:1"]).await.expect("an answer").int();
    assert!((50_000..=60_000).contains(&ttl_ms), "{ttl_ms}");
}

#[tokio::test]
async fn the_very_first_call_waits_for_the_connection() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = start(&format!("{}?deadline_ms=1000", redis.url()));
    assert_eq!(count(&client, "a").await, Ok(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_in_flight_at_the_same_time_travel_together() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?connections=1&deadline_ms=2000&joined_max=16", redis.url());
    let client = connect(&url).await;
    let mut calls = JoinSet::new();
    for caller in 0..64 {
        let client = Arc::clone(&client);
        calls.spawn(async move {
            for expected in 1..=50 {
                let found = count(&client, format!("k{caller}")).await;
                assert_eq!(found, Ok(expected), "each gets its own reply");
            }
        });
    }
    calls.join_all().await;
    let stats = client.stats();
    assert_eq!(stats.calls, 64 * 50);
    assert!(stats.batches * 8 <= stats.calls, "few flushes: {stats:?}");
    assert!(stats.batches * 16 >= stats.calls, "no call with more than 16 keys: {stats:?}");
}

#[tokio::test]
async fn a_server_that_has_much_to_do_need_not_wait_for_more() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?connections=1&deadline_ms=5000&joined_max=16", redis.url());
    let client = connect(&url).await;
    let mut calls = JoinSet::new();
    let mut ask_sixteen = |round: usize| {
        for caller in 0..16 {
            let client = Arc::clone(&client);
            calls.spawn(async move { count(&client, format!("k{round}-{caller}")).await });
        }
    };
    let sent = async |batches| {
        while client.stats().batches < batches {
            tokio::task::yield_now().await;
        }
    };
    redis.stop_process().expect("it runs");
    for round in 1..=3 {
        ask_sixteen(round);
        let seen = timeout(Duration::from_secs(1), sent(round as u64)).await;
        seen.expect("sixteen go together, before those in front of them are answered");
    }
    assert_eq!(client.stats().batches, 3);
    redis.continue_process().expect("it is stopped");
    assert!(calls.join_all().await.into_iter().all(|counted| counted == Ok(1)));
}

#[tokio::test]
async fn a_decision_that_fails_leaves_its_neighbours_alone() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1&deadline_ms=2000", redis.url())).await;
    let mut calls = JoinSet::new();
    for caller in 0..32 {
        let client = Arc::clone(&client);
        let by = if caller % 4 == 1 { "boom" } else { "1" };
        calls.spawn(async move {
            let reply = client.eval(ask(format!("n{caller}"), by), client.deadline()).await;
            (by, reply)
        });
    }
    for (by, reply) in calls.join_all().await {
        match (by, reply) {
            ("boom", Err(RedisError::Refused(refusal))) => assert_eq!(&*refusal.code, "BOOM"),
            ("1", Ok(reply)) => assert_eq!(number(&reply), 1),
            other => panic!("{other:?}"),
        }
    }
    let stats = client.stats();
    assert!(stats.batches < stats.calls, "some travelled together: {stats:?}");
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_disturb_the_others() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1&deadline_ms=2000", redis.url())).await;
    for round in 1..=100u64 {
        let hasty = timeout(Duration::from_micros(round * 3), count(&client, "hasty"));
        let (_, patient) = tokio::join!(hasty, count(&client, "patient"));
        assert_eq!(patient, Ok(round), "the reply is the patient caller's own");
    }
    assert_eq!(count(&client, "patient").await, Ok(101));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_is_flushed_every_100_ms_is_missed_by_nobody() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?deadline_ms=500", redis.url())).await;
    let load = Load::start(&client, 16, Duration::from_micros(100));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        redis.script_flush().await.expect("a flush");
    }
    let records = load.stop().await;
    let errors: Vec<_> = records.iter().filter_map(|record| record.result.as_ref().err()).collect();
    assert!(errors.is_empty(), "{} of {}: {:?}", errors.len(), records.len(), errors[0]);
    let stats = client.stats();
    assert!(stats.script_reloads >= 20, "{stats:?}");
    // Each caller counts on its own key: nothing was lost and nothing was done twice.
    let total: u64 = sum_of_counts(&redis, 16).await;
    assert_eq!(total, records.len() as u64);
}

#[tokio::test]
async fn a_script_with_another_hash_is_refused_when_it_is_loaded() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let wrong = LuaScript { text: COUNT, sha1: "0000000000000000000000000000000000000000" };
    let config = redis.url().parse().expect("a URL of the kit");
    let client = RedisClient::start(&config, wrong).expect("a good configuration");
    assert!(matches!(client.ready().await, Err(ConnectError::Foreign { .. })));
}

#[tokio::test]
async fn an_error_of_the_script_may_have_changed_something() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&redis.url()).await;
    let error = client.eval(ask("a", "text"), client.deadline()).await.expect_err("no number");
    assert_eq!(error.outcome(), CallEffect::Unknown);
    assert_eq!(client.stats().unknown_outcomes, 1);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_and_found_again() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1", redis.url())).await;
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await.expect("an answer");
    let error = count(&client, "a").await.expect_err("a replica takes no writes");
    assert!(matches!(&error, RedisError::Refused(refusal) if &*refusal.code == "READONLY"));
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    redis.cli(&["REPLICAOF", "NO", "ONE"]).await.expect("an answer");
    let begun = Instant::now();
    crate::redis_client::until("the service was back", async || count(&client, "a").await.is_ok())
        .await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(client.stats().reconnects >= 1, "the connection was made anew");
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_left_if_the_last_of_joined_keys_says_so() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let client = connect(&format!("{}?connections=1", redis.url())).await;
    let (first, last) = tokio::join!(
        client.eval(ask("a", "1"), client.deadline()),
        client.eval(ask("b", "readonly"), client.deadline()),
    );
    first.expect("a count");
    let error = last.expect_err("a replica takes no writes");
    assert!(matches!(&error, RedisError::Refused(refusal) if &*refusal.code == "READONLY"));
    crate::redis_client::until("the connection was made anew", async || {
        client.stats().reconnects >= 1
    })
    .await;
}

async fn sum_of_counts(redis: &RedisServer, callers: usize) -> u64 {
    let mut sum = 0;
    for caller in 0..callers {
        let key = format!("sg:{{load-{caller}}}");
        let found = redis.cli(&["GET", &key]).await.expect("an answer").text();
        sum += found.parse::<u64>().expect("a count");
    }
    sum
}
