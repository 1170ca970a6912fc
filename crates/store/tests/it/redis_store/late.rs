//! Grants that reach no caller are given back.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_kernel::algorithm::Delay;
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, PermitId, Rate,
    RuleSet, SlidingLog, SlidingWindow, TokenBucket, Verb,
};
use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreError, StoreRequest};
use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, need};

/// The delay of replies: long after a deadline, and before a connection counts as dead.
const LATE: Duration = Duration::from_millis(200);

const LIMIT: u64 = 100;
const HOLDERS: u64 = 4;

/// Returns a window that does not end while a test runs.
fn long_window() -> Arc<RuleSet> {
    let span = Micros::from_secs(86_400);
    let window = FixedWindow::first(LIMIT, span).expect("a window");
    Arc::new(RuleSet::single("long", window))
}

fn jobs() -> Arc<RuleSet> {
    let jobs = Concurrency::new(HOLDERS, Micros::from_secs(600), 0).expect("a limit");
    Arc::new(RuleSet::single("jobs", jobs))
}

async fn connect(address: impl std::fmt::Display, deadline_ms: u32) -> RedisStore {
    let url = format!("redis://{address}?deadline_ms={deadline_ms}");
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let store =
        RedisStore::start(&config).expect("a configuration").with_clock(ScriptClock::Server);
    store.ready().await.expect("the server of the test is there");
    store
}

/// Returns the permits that are left after `verb`.
async fn ask(store: &RedisStore, rules: &Arc<RuleSet>, verb: &Verb) -> Result<u64, StoreError> {
    let (policy, key, quota) = ("p", &b"k"[..], Quota::default());
    let request = StoreRequest { policy, key, rules, verb, origin: RuleOrigin::default(), quota };
    let at = Moment::new(Micros::from_secs(1_800_000_000));
    store.decide(&request, &at).await.map(|answer| answer.verdict.decision.remaining)
}

async fn is_all_left(store: &RedisStore, rules: &Arc<RuleSet>, limit: u64) -> bool {
    for _ in 0..200 {
        if ask(store, rules, &Verb::Peek { cost: Cost::ONE }).await == Ok(limit) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

#[tokio::test]
async fn permits_whose_grant_comes_after_the_deadline_are_given_back() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let store = connect(proxy.address(), 100).await;
    let other = connect(redis.address(), 5_000).await;
    let check = |_| Verb::Check { cost: Cost::new(7).expect("a cost") };
    let rules = long_window();
    // The rules are in Redis before, and the key has no state of other rules.
    while ask(&store, &rules, &Verb::Reset).await.is_err() {}
    proxy.set(Faults::delay(Duration::ZERO, LATE)).await.expect("the proxy is there");
    for verb in (0..3).map(check) {
        ask(&store, &rules, &verb).await.expect_err("no reply comes in time");
    }
    proxy.heal().await.expect("the proxy is there");
    assert!(is_all_left(&other, &rules, LIMIT).await, "of {rules:?}");
    assert!(store.stats().late_grants >= 1, "{:?}", store.stats());
}

#[tokio::test]
async fn a_permit_that_was_released_and_acquired_again_is_not_released_late() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let store = connect(proxy.address(), 5_000).await;
    let other = connect(redis.address(), 5_000).await;
    let (rules, permit) = (jobs(), PermitId(1));
    ask(&store, &rules, &Verb::Reset).await.expect("it answers");
    proxy.set(Faults::delay(Duration::ZERO, LATE)).await.expect("the proxy is there");
    let acquire = Verb::Acquire { cost: Cost::ONE, permit };
    let abandoned = tokio::time::timeout(LATE / 4, ask(&store, &rules, &acquire));
    abandoned.await.expect_err("the caller goes away before it is answered");
    // The caller releases the permit over another connection, and tries again.
    for verb in [Verb::Release { permit }, acquire] {
        ask(&other, &rules, &verb).await.expect("it answers");
    }
    // Replies of a connection come in order: after one of each, that of the first has come.
    for _ in 0..4 {
        ask(&store, &rules, &Verb::Peek { cost: Cost::ONE }).await.expect("it answers");
    }
    let left = ask(&other, &rules, &Verb::Renew { permit }).await;
    assert_eq!(left, Ok(HOLDERS - 1), "it is still held");
    assert_eq!(store.stats().late_grants, 0);
}

/// Returns budgets in which a refund that comes late could let more than the limit pass.
fn not_given_back() -> Vec<RuleSet> {
    let (rate, day) = (Rate::per_second(100).expect("a rate"), Micros::from_secs(86_400));
    let quick = TokenBucket::new(rate, LIMIT).expect("a bucket");
    let named = |name: &str, rule| NamedRule { name: name.into(), rule };
    let window = |span| FixedWindow::first(LIMIT, span).expect("a window");
    let both = vec![named("quick", quick.clone().into()), named("slow", window(day).into())];
    vec![
        RuleSet::single("a", window(Micros::from_secs(60))),
        RuleSet::single("a", quick),
        RuleSet::single("a", LeakyBucket::new(rate, LIMIT, Delay::None).expect("a bucket")),
        RuleSet::single("a", SlidingLog::new(LIMIT, day).expect("a log")),
        RuleSet::single("a", SlidingWindow::new(LIMIT, day, 24).expect("a window")),
        RuleSet::new(both).expect("two rules"),
    ]
}

#[tokio::test]
async fn nothing_is_given_back_where_that_could_let_more_than_the_limit_pass() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let store = connect(proxy.address(), 100).await;
    for rules in not_given_back() {
        let rules = Arc::new(rules);
        while ask(&store, &rules, &Verb::Reset).await.is_err() {}
        proxy.set(Faults::delay(Duration::ZERO, LATE)).await.expect("the proxy is there");
        let check = Verb::Check { cost: Cost::ONE };
        ask(&store, &rules, &check).await.expect_err("no reply comes in time");
        proxy.heal().await.expect("the proxy is there");
        // Replies of a connection come in order: after one of each, that of the check has come.
        for _ in 0..4 {
            while ask(&store, &rules, &check).await.is_err() {}
        }
    }
    assert_eq!(store.stats().late_grants, 0);
}

#[tokio::test]
async fn permits_of_callers_that_went_away_are_given_back() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let store = connect(proxy.address(), 5_000).await;
    let rules = long_window();
    ask(&store, &rules, &Verb::Reset).await.expect("it answers");
    proxy.set(Faults::delay(Duration::ZERO, LATE)).await.expect("the proxy is there");
    let check = Verb::Check { cost: Cost::new(7).expect("a cost") };
    tokio::time::timeout(LATE / 4, ask(&store, &rules, &check))
        .await
        .expect_err("the caller goes away before it is answered");
    proxy.heal().await.expect("the proxy is there");
    assert!(is_all_left(&connect(redis.address(), 5_000).await, &rules, LIMIT).await);
    assert_eq!(store.stats().late_grants, 1);
}
