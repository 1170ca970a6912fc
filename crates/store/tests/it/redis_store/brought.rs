//! The place of rules: those of a policy are stored under its name, those of callers are not
//! stored.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use sluicegate_kernel::{Cost, Micros, Moment, Rate, RuleSet, TokenBucket, Verb};
use sluicegate_store::redis::RedisStore;
use sluicegate_store::redis::codec::{RulesBlob, ScriptClock};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreRequest};
use sluicegate_testkit::{Options, RedisServer, need};

use crate::redis_store::{ask_as, bucket, connect, passed_as, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

async fn rules_keys(redis: &RedisServer) -> Vec<String> {
    let keys = redis.cli(&["KEYS", "sg:rules:*"]).await.expect("it answers");
    keys.list().iter().map(sluicegate_testkit::Reply::text).collect()
}

/// Returns two buckets whose rules, as bytes, have a hash with the same first three bytes.
fn twins() -> (Arc<RuleSet>, Arc<RuleSet>) {
    let mut seen: HashMap<[u8; 3], u64> = HashMap::new();
    for burst in 10.. {
        let rules = bucket(1, burst);
        let blob = RulesBlob::new(&rules, RuleOrigin::default());
        let hash = Sha256::digest(blob.rules());
        let first = *hash.first_chunk().expect("a hash has 32 bytes");
        if let Some(other) = seen.insert(first, burst) {
            return (bucket(1, other), rules);
        }
    }
    unreachable!("24 bits are soon used up")
}

#[tokio::test]
async fn rules_whose_hashes_begin_alike_are_told_apart() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (one, other) = twins();
    let store = connect(&redis.url()).await;
    for (policy, rules) in [("p", &one), ("q", &other)] {
        let verb = Verb::Check { cost: Cost::new(5).expect("a cost") };
        let request = StoreRequest {
            policy,
            key: b"key",
            rules,
            verb: &verb,
            origin: version(1),
            quota: Quota::default(),
        };
        let answer = store.decide(&request, &Moment::new(NOW)).await.expect("the store answers");
        assert!(answer.verdict.decision.allowed());
    }
    // The callers' limits were once stored at the keys of those of policies.
    let check = Verb::Check { cost: Cost::ONE };
    ask_as(RuleOrigin::Caller, &store, b"other", (&other, &check), NOW).await.expect("it answers");

    let after = connect(&redis.url()).await;
    assert_eq!(passed_as(version(2), &after, b"key", (&bucket(1, 6), 6), NOW).await, 1, "of 6");
    assert_eq!(passed_as(version(3), &after, b"key", (&other, 1), NOW).await, 1, "and to its twin");
    let peek = Verb::Peek { cost: Cost::ONE };
    let peeked = ask_as(version(3), &after, b"key", (&other, &peek), NOW).await;
    let left = peeked.expect("the store answers").decision;
    assert_eq!(left.limit - left.remaining, 7, "usage is kept through both edits");
}

#[tokio::test]
async fn limits_that_callers_bring_along_leave_one_key_and_its_usage() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    for burst in 100..1_100 {
        let passed =
            passed_as(RuleOrigin::Caller, &store, b"key", (&bucket(1, burst), 1), NOW).await;
        assert_eq!(passed, u64::from(burst >= 100), "{burst}");
    }
    let size = redis.cli(&["DBSIZE"]).await.expect("it answers").int();
    assert_eq!(size, 1, "a thousand limits on one key are one key");
    let other = connect(&redis.url()).await;
    let passed = passed_as(RuleOrigin::Caller, &other, b"key", (&bucket(1, 1_010), 20), NOW).await;
    assert_eq!(passed, 10, "1000 are in use for every caller");
}

#[tokio::test]
async fn rules_outlive_their_states_and_no_more() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let config = format!("{}?{}", redis.url(), crate::redis_store::OPTIONS)
        .parse()
        .expect("a URL of the test");
    let store = RedisStore::start(&config).expect("a configuration of the test");
    let store = store.with_clock(ScriptClock::Server);
    store.ready().await.expect("the server of the test is there");
    let slow = TokenBucket::new(Rate::new(1, Micros::from_secs(3_600)).expect("a rate"), 48);
    let slow = Arc::new(RuleSet::single("burst", slow.expect("a bucket")));
    for (rules, seconds) in [(&bucket(10, 100), 10), (&slow, 48 * 3_600)] {
        redis.cli(&["FLUSHALL"]).await.expect("it answers");
        passed_as(version(1), &store, b"key", (rules, 1), NOW).await;
        let keys = rules_keys(&redis).await;
        let [key] = &keys[..] else { panic!("{keys:?}") };
        let ttl = redis.cli(&["TTL", key]).await.expect("it answers").int();
        let expected = seconds + 1_200;
        assert!((expected - 60..=expected + 1).contains(&ttl), "{ttl} s of {expected}");
    }
}
