//! The Redis store decides as the kernel does, on every kind of Redis, with any other users of it.
#![cfg(feature = "redis")]

mod apart;
mod brought;
mod dear;
mod debts;
mod fleet;
mod held;
mod late;
mod leases;
mod poisoned;
mod refusals;
mod sharing;
mod together;
mod vectors;
mod versions;

use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, Moment, Rate, RuleSet, TokenBucket, Verb, Verdict};
use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreError, StoreRequest};

/// Long deadlines: these tests are about decisions, not about speed on a busy machine.
const OPTIONS: &str = "deadline_ms=5000&connect_timeout_ms=5000";

fn start(url: &str) -> RedisStore {
    let config: RedisConfig = format!("{url}?{OPTIONS}").parse().expect("a URL of the test");
    RedisStore::start(&config).expect("a configuration of the test").with_clock(ScriptClock::Given)
}

async fn connect(url: &str) -> RedisStore {
    let store = start(url);
    store.ready().await.expect("the server of the test is there");
    store
}

fn bucket(permits: u64, burst: u64) -> Arc<RuleSet> {
    let rate = Rate::per_second(permits).expect("a rate");
    let bucket = TokenBucket::new(rate, burst).expect("a bucket");
    Arc::new(RuleSet::single("burst", bucket))
}

/// Returns the origin of a policy's rules that were taken over so many seconds after 2026 began.
const fn version(seconds: u64) -> RuleOrigin {
    RuleOrigin::Policy { since: Micros::from_secs(1_767_225_600 + seconds) }
}

async fn ask(
    store: &RedisStore,
    key: &[u8],
    rules: &Arc<RuleSet>,
    verb: &Verb,
    at: Micros,
) -> Result<Verdict, StoreError> {
    ask_as(RuleOrigin::default(), store, key, (rules, verb), at).await
}

async fn ask_as(
    origin: RuleOrigin,
    store: &RedisStore,
    key: &[u8],
    (rules, verb): (&Arc<RuleSet>, &Verb),
    at: Micros,
) -> Result<Verdict, StoreError> {
    store
        .decide(
            &StoreRequest { policy: "p", key, rules, verb, origin, quota: Quota::default() },
            &Moment::new(at),
        )
        .await
        .map(|answer| answer.verdict)
}

/// Returns the permits that pass of `times` checks at `at`.
async fn passed(
    store: &RedisStore,
    key: &[u8],
    rules: &Arc<RuleSet>,
    times: u64,
    at: Micros,
) -> u64 {
    passed_as(RuleOrigin::default(), store, key, (rules, times), at).await
}

async fn passed_as(
    origin: RuleOrigin,
    store: &RedisStore,
    key: &[u8],
    (rules, times): (&Arc<RuleSet>, u64),
    at: Micros,
) -> u64 {
    let mut passed = 0;
    for _ in 0..times {
        let check = Verb::Check { cost: Cost::ONE };
        let verdict = ask_as(origin, store, key, (rules, &check), at).await;
        passed += verdict.expect("the store answers").decision.granted();
    }
    passed
}
