//! Decisions that travel together fail independently: an error of the server is that of one key.

use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, RuleSet, Verb, Verdict};
use sluicegate_store::redis::codec::state_key;
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Executed, StoreError};
use sluicegate_testkit::{Options, RedisServer, need, until};
use tokio::task::JoinSet;

use crate::redis_store::{OPTIONS, ask, bucket};

const NOW: Micros = Micros::from_secs(1_800_000_000);

/// Callers at once: as many as one call of the script joins.
const CALLERS: u8 = 16;

/// Returns a store with one connection, on which waiting decisions are joined.
async fn connect(redis: &RedisServer) -> Arc<RedisStore> {
    let url = format!("{}?{OPTIONS}&connections=1", redis.url());
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let store = RedisStore::start(&config).expect("a configuration of the test");
    store.ready().await.expect("the server of the test is there");
    Arc::new(store.with_clock(sluicegate_store::redis::codec::ScriptClock::Given))
}

/// Lets each caller take a permit of its own key, all at once.
async fn all_at_once(
    store: &Arc<RedisStore>,
    rules: &Arc<RuleSet>,
) -> Vec<(u8, Result<Verdict, StoreError>)> {
    let before = store.stats();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (store, rules) = (Arc::clone(store), Arc::clone(rules));
        let check = Verb::Check { cost: Cost::ONE };
        callers.spawn(async move { (caller, ask(&store, &[caller], &rules, &check, NOW).await) });
    }
    let answers = callers.join_all().await;
    let after = store.stats();
    let (calls, batches) = (after.calls - before.calls, after.batches - before.batches);
    assert!(batches < calls / 2, "{calls} calls travelled together in {batches}");
    answers
}

async fn remaining(store: &RedisStore, key: u8, rules: &Arc<RuleSet>) -> u64 {
    let peek = Verb::Peek { cost: Cost::ONE };
    let verdict = ask(store, &[key], rules, &peek, NOW).await.expect("the store answers");
    verdict.decision.remaining
}

fn refused_with(error: &StoreError, code: &str) -> bool {
    let StoreError::Unreadable { reason } = error else { return false };
    reason.starts_with(&format!("redis refused the call: {code} "))
}

#[tokio::test]
async fn a_foreign_hash_harms_only_the_call_of_its_key() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, rules) = (connect(&redis).await, bucket(1, 5));
    remaining(&store, CALLERS, &rules).await;
    let foreign = 7;
    let key = state_key("p", &[foreign]);
    redis.cli(&["HSET", &key, "field", "value"]).await.expect("it answers");
    for (caller, answer) in all_at_once(&store, &rules).await {
        match answer {
            Err(error) if caller == foreign => {
                assert!(refused_with(&error, "WRONGTYPE"), "{error:?}");
            }
            Ok(verdict) if caller != foreign => assert_eq!(verdict.decision.remaining, 4),
            other => panic!("{caller}: {other:?}"),
        }
    }
    let kept = redis.cli(&["HGET", &key, "field"]).await.expect("it answers");
    assert_eq!(kept.text(), "value");
}

#[tokio::test]
async fn a_full_server_is_a_store_that_fails_and_charges_nothing() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, rules) = (connect(&redis).await, bucket(1, 5));
    let used_up = 3;
    for _ in 0..5 {
        ask(&store, &[used_up], &rules, &Verb::Check { cost: Cost::ONE }, NOW)
            .await
            .expect("there is memory yet");
    }
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await.expect("it answers");
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await.expect("it answers");
    for (caller, answer) in all_at_once(&store, &rules).await {
        match answer {
            // The store fails, so that `on_store_failure` decides; nothing was charged.
            Err(StoreError::Unavailable { reason, executed: Executed::No })
                if caller != used_up =>
            {
                assert!(reason.starts_with("redis refused the call: OOM "), "{reason}");
            }
            // A refusal writes nothing.
            Ok(verdict) if caller == used_up => assert!(!verdict.decision.allowed()),
            other => panic!("{caller}: {other:?}"),
        }
    }
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).await.expect("it answers");
    for caller in (0..CALLERS).filter(|caller| *caller != used_up) {
        assert_eq!(remaining(&store, caller, &rules).await, 5, "{caller} was not charged");
    }
}

#[tokio::test]
async fn a_replica_in_a_masters_place_is_left_although_each_key_is_told_apart() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, rules) = (connect(&redis).await, bucket(1, 5));
    remaining(&store, CALLERS, &rules).await;
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).await.expect("it answers");
    for (caller, answer) in all_at_once(&store, &rules).await {
        let error = answer.expect_err("a replica takes no writes");
        let executed = matches!(&error, StoreError::Unavailable { executed: Executed::No, .. });
        assert!(executed, "{caller}: {error:?}");
    }
    redis.cli(&["REPLICAOF", "NO", "ONE"]).await.expect("it answers");
    let patience = std::time::Duration::from_secs(5);
    let again = async || (store.stats().reconnects >= 1).then_some(());
    until("the connection is made anew", patience, again).await.expect("it is");
    let peek = Verb::Peek { cost: Cost::ONE };
    let back = async || ask(&store, &[0], &rules, &peek, NOW).await.ok();
    let verdict = until("the store is back", patience, back).await.expect("it is");
    assert_eq!(verdict.decision.remaining, 5, "nothing was charged");
}
