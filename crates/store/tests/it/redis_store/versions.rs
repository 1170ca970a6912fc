//! Two versions of a policy whose requests alternate: the later one decides, for every caller.

use std::sync::Arc;

use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::{
    Carry, Cost, FixedWindow, Micros, Rate, Rule, RuleSet, SlidingCounter, SlidingLog,
    SlidingWindow, TokenBucket, Verb,
};
use sluicegate_store::redis::RedisStore;
use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_testkit::{Options, RedisServer, need};
use tokio::task::JoinSet;

use crate::redis_store::{ask_as, bucket, connect, passed_as, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

/// A minute of a check every 10 ms.
const CHECKS: u64 = 6_000;
const EVERY_US: u64 = 10_000;

/// A change of a policy.
struct Change {
    what: &'static str,
    old: Arc<RuleSet>,
    new: Arc<RuleSet>,
    /// Permits that the larger of the two limits lets pass at once.
    burst: u64,
}

fn change(
    what: &'static str,
    (old, new): ((&str, Rule), (&str, Rule)),
    carry: Carry,
    burst: u64,
) -> Change {
    let set = |(name, rule)| Arc::new(RuleSet::single(name, rule).with_carry(carry));
    Change { what, old: set(old), new: set(new), burst }
}

fn changes() -> Vec<Change> {
    let seconds = Micros::from_secs;
    let bucket = |rate, burst| {
        Rule::from(TokenBucket::new(Rate::per_second(rate).expect("a rate"), burst).expect("one"))
    };
    let fixed = |limit, span| {
        let kind = WindowKind::Epoch(seconds(span));
        Rule::from(FixedWindow::new(limit, kind).expect("a window"))
    };
    let sliding =
        |limit, span| Rule::from(SlidingWindow::new(limit, seconds(span), 10).expect("a window"));
    let counter =
        |limit, span| Rule::from(SlidingCounter::new(limit, seconds(span)).expect("a counter"));
    let log = |limit, span| Rule::from(SlidingLog::new(limit, seconds(span)).expect("a log"));
    let same = |old, new| (("limit", old), ("limit", new));
    let unnamed = (("token_bucket", bucket(10, 10)), ("fixed_window", fixed(100, 10)));
    let twice = || same(bucket(10, 10), bucket(20, 20));
    let usage = Carry::Usage;
    vec![
        change("a bucket twice as fast, usage", twice(), usage, 20),
        change("a bucket twice as fast, proportional", twice(), Carry::Proportional, 20),
        change("a bucket twice as fast, reset", twice(), Carry::Reset, 20),
        change("a bucket half as fast", same(bucket(20, 20), bucket(10, 10)), usage, 20),
        change("an unnamed bucket to an unnamed window", unnamed, usage, 100),
        change("a counter twice as long", same(counter(100, 10), counter(200, 20)), usage, 200),
        change("a counter half as long", same(counter(200, 20), counter(100, 10)), usage, 200),
        change("a bucket to a sliding window", same(bucket(10, 10), sliding(100, 10)), usage, 100),
        change("a log to a sliding window", same(log(100, 10), sliding(100, 10)), usage, 100),
        change("a window twice as long", same(fixed(100, 10), fixed(200, 20)), usage, 200),
        change("a sliding one twice as long", same(sliding(100, 10), sliding(200, 20)), usage, 200),
        change("a log twice as long", same(log(100, 10), log(200, 20)), usage, 200),
        change("a log, reset", same(log(100, 10), log(200, 20)), Carry::Reset, 200),
    ]
}

/// Returns the permits that pass in a minute in which requests of these versions alternate.
async fn admitted(key: &str, asked: &[(&RedisStore, &Arc<RuleSet>, u64)]) -> u64 {
    let (mut admitted, check) = (0, Verb::Check { cost: Cost::ONE });
    for (round, (store, rules, seconds)) in (0..CHECKS).zip(asked.iter().cycle()) {
        let at = NOW.plus(Micros::new(round * EVERY_US));
        let asked = ask_as(version(*seconds), store, key.as_bytes(), (rules, &check), at).await;
        admitted += asked.expect("the store answers").decision.granted();
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_that_are_asked_in_turn_neither_lift_a_limit_nor_freeze_it() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let stores = Arc::new((connect(&redis.url()).await, connect(&redis.url()).await));
    let mut tasks = JoinSet::new();
    for Change { what, old, new, burst } in changes() {
        let stores = Arc::clone(&stores);
        tasks.spawn(async move {
            let (late, early) = ((&stores.0, &old, 1), (&stores.1, &new, 2));
            let alone = [
                admitted(&format!("{what}, old"), &[late]).await,
                admitted(&format!("{what}, new"), &[early]).await,
            ];
            let in_turn = admitted(&format!("{what}, in turn"), &[late, early]).await;
            let (least, most) = (alone[0].min(alone[1]), alone[0].max(alone[1]));
            println!("{what}: old {}, new {}, in turn {in_turn}", alone[0], alone[1]);
            let within = in_turn <= most + burst && in_turn * 10 >= least * 9;
            (!within).then(|| format!("{what}: alone {alone:?}, in turn {in_turn}"))
        });
    }
    let broken: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[tokio::test]
async fn an_override_that_comes_and_goes_holds_for_servers_that_have_not_heard_of_it() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let stores =
        [connect(&redis.url()).await, connect(&redis.url()).await, connect(&redis.url()).await];
    let (base, own) = (bucket(1, 10), bucket(1, 100));
    let remaining = async |place: usize, seconds, rules| {
        let peek = Verb::Peek { cost: Cost::ONE };
        let peeked = ask_as(version(seconds), &stores[place], b"alice", (rules, &peek), NOW).await;
        peeked.expect("the store answers").decision.remaining
    };
    assert_eq!(passed_as(version(1), &stores[0], b"alice", (&base, 5), NOW).await, 5);
    assert_eq!(passed_as(version(2), &stores[1], b"alice", (&own, 5), NOW).await, 5);
    assert_eq!(remaining(1, 2, &own).await, 90);
    assert_eq!(remaining(0, 1, &base).await, 90, "the first version knows nothing of it");
    assert_eq!(passed_as(version(1), &stores[0], b"alice", (&base, 20), NOW).await, 20);
    assert_eq!(passed_as(version(3), &stores[2], b"alice", (&base, 1), NOW).await, 0, "30 of 10");
    let later = NOW.plus(Micros::from_secs(22));
    assert_eq!(passed_as(version(2), &stores[1], b"alice", (&own, 50), later).await, 2, "of 10");
    assert_eq!(passed_as(version(1), &stores[0], b"alice", (&base, 50), later).await, 0);
}

#[tokio::test]
async fn a_version_that_is_put_back_is_the_latest_again() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (one, other) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let (narrow, wide) = (bucket(1, 10), bucket(1, 100));
    assert_eq!(passed_as(version(1), &one, b"key", (&narrow, 4), NOW).await, 4);
    assert_eq!(passed_as(version(2), &other, b"key", (&wide, 4), NOW).await, 4);
    assert_eq!(passed_as(version(3), &one, b"key", (&narrow, 4), NOW).await, 2, "of 10");
    assert_eq!(passed_as(version(2), &other, b"key", (&wide, 4), NOW).await, 0, "10 are in use");
}

#[tokio::test]
async fn later_rules_that_nobody_has_any_more_leave_a_budget_used_up() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (one, other) = (connect(&redis.url()).await, connect(&redis.url()).await);
    assert_eq!(passed_as(version(2), &other, b"key", (&bucket(1, 100), 1), NOW).await, 1);
    redis
        .cli(&["EVAL", "return redis.call('DEL', redis.call('KEYS', 'sg:rules:*')[1])", "0"])
        .await
        .expect("it answers");
    assert_eq!(passed_as(version(1), &one, b"key", (&bucket(1, 10), 20), NOW).await, 0);
    let later = NOW.plus(Micros::from_secs(3));
    assert_eq!(passed_as(version(1), &one, b"key", (&bucket(1, 10), 20), later).await, 3);
}

/// The process that held the version before had its clock years ahead, and is gone.
#[tokio::test]
async fn an_edit_holds_also_if_the_clock_of_another_process_was_ahead() {
    const YEAR_S: u64 = 365 * 86_400;
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await.with_clock(ScriptClock::Server);
    let a_day = Rate::new(1, Micros::from_secs(86_400)).expect("a rate");
    let budget = |burst| {
        let bucket = TokenBucket::new(a_day, burst).expect("a bucket");
        Arc::new(RuleSet::single("burst", bucket))
    };
    let (large, small) = (budget(4_000), budget(100));
    let cost = |cost| Cost::new(cost).expect("a cost");
    for (key, verb) in
        [("fast", Verb::Check { cost: cost(10) }), ("any", Verb::AtMost { cost: cost(10) })]
    {
        let ask = |years, rules, verb| {
            let (store, key) = (&store, key.as_bytes());
            async move { ask_as(version(years * YEAR_S), store, key, (rules, verb), NOW).await }
        };
        ask(20, &large, &verb).await.expect("it is decided");
        let after = ask(10, &small, &Verb::Peek { cost: Cost::ONE }).await.expect("it is decided");
        assert_eq!((after.decision.limit, after.decision.remaining), (100, 90), "{key}");
        let after = ask(10, &small, &verb).await.expect("it is decided");
        assert_eq!((after.decision.limit, after.decision.remaining), (100, 80), "{key}");
    }
}
