//! Several processes on one Redis: one budget, even if they have different rules.

use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_store::{Executed, RuleOrigin, StoreError};
use sluicegate_testkit::{Options, RedisServer, Reply, need};
use tokio::task::JoinSet;

use crate::redis_store::{ask, ask_as, bucket, connect, passed, passed_as, start, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

#[tokio::test]
async fn two_stores_share_a_budget_to_the_last_permit() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let rules = bucket(1, 100);
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let (store, rules) = (connect(&redis.url()).await, Arc::clone(&rules));
        clients.spawn(async move { passed(&store, b"key", &rules, 50, NOW).await });
    }
    let admitted: u64 = clients.join_all().await.into_iter().sum();
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn a_process_takes_usage_over_that_another_wrote_under_older_rules() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (before, after) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let (old, new) = (bucket(1, 10), bucket(7, 12));
    let asked = async |store, at, rules, times| {
        passed_as(version(at), store, b"key", (rules, times), NOW).await
    };
    assert_eq!(asked(&before, 1, &old, 8).await, 8);
    assert_eq!(asked(&after, 2, &new, 12).await, 4, "8 are in use");
    assert_eq!(asked(&before, 3, &old, 12).await, 0, "and back again");
}

#[tokio::test]
async fn a_key_that_is_asked_for_under_ever_other_rules_is_decided_or_given_up_alone() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = Arc::new(connect(&redis.url()).await);
    let mut callers = JoinSet::new();
    for burst in 1..=128 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let check = Verb::Check { cost: Cost::ONE };
            ask_as(RuleOrigin::Caller, &store, b"key", (&bucket(1, burst), &check), NOW).await
        });
    }
    let answers = callers.join_all().await;
    let contended = StoreError::Contended { executed: Executed::No };
    for answer in &answers {
        assert!(answer.as_ref().map_or_else(|error| *error == contended, |_| true), "{answer:?}");
    }
    assert!(answers.iter().any(Result::is_ok) && answers.iter().any(Result::is_err));
}

#[tokio::test]
async fn a_budget_whose_rules_nobody_knows_any_more_counts_as_used_up() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let before = connect(&redis.url()).await;
    assert_eq!(passed(&before, b"key", &bucket(1, 10), 1, NOW).await, 1);
    let keys = redis.cli(&["KEYS", "sg:rules:*"]).await.expect("it answers");
    assert_eq!(keys.list().len(), 1);
    for key in keys.list() {
        redis.cli(&["DEL", &key.text()]).await.expect("it answers");
    }
    let after = connect(&redis.url()).await;
    assert_eq!(passed(&after, b"key", &bucket(1, 12), 5, NOW).await, 0);
    let later = NOW.plus(Micros::from_secs(3));
    assert_eq!(passed(&after, b"key", &bucket(1, 12), 5, later).await, 3, "and fills as ever");
}

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let rules = bucket(1, 10);
    for namespace in ["staging", "production"] {
        let store = start(&redis.url()).in_namespace(namespace);
        store.ready().await.expect("the server of the test is there");
        assert_eq!(passed(&store, b"key", &rules, 12, NOW).await, 10, "{namespace}");
    }
}

#[tokio::test]
async fn keys_of_any_bytes_have_budgets_of_their_own_and_are_never_seen_in_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let long = [b'x'; 1024];
    let keys: [&[u8]; 8] =
        [b"", b"\0", b"{}", b"}{", b"{secret}", b"secret\r\n", "\u{202e}secret".as_bytes(), &long];
    for key in keys {
        assert_eq!(passed(&store, key, &bucket(1, 3), 5, NOW).await, 3, "{key:?}");
    }
    let stored = redis.cli(&["KEYS", "*"]).await.expect("it answers");
    let stored = stored.list();
    let states: Vec<_> = stored.iter().map(Reply::text).filter(|key| key.contains('{')).collect();
    assert_eq!((states.len(), stored.len()), (keys.len(), keys.len() + 1), "and the rules");
    for key in states {
        assert!(key.starts_with("sg:{") && key.len() == 27 && !key.contains("secret"), "{key}");
        let value = redis.cli(&["GET", &key]).await.expect("it answers").text();
        assert!(!value.contains("secret") && !value.contains("xxx"));
    }
}

#[tokio::test]
async fn a_full_budget_is_no_key_at_all() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, rules) = (connect(&redis.url()).await, bucket(1, 3));
    let size = async || redis.cli(&["DBSIZE"]).await.expect("it answers").int();
    let verbs =
        [Verb::Peek { cost: Cost::ONE }, Verb::Check { cost: Cost::new(4).expect("a cost") }];
    for verb in verbs {
        ask(&store, b"key", &rules, &verb, NOW).await.expect("the store answers");
        assert_eq!(size().await, 1, "the rules, and nothing of {verb:?}");
    }
    passed(&store, b"key", &rules, 2, NOW).await;
    assert_eq!(size().await, 2);
    let refund = Verb::Refund { cost: Cost::new(2).expect("a cost") };
    ask(&store, b"key", &rules, &refund, NOW).await.expect("the store answers");
    assert_eq!(size().await, 1);
}
