//! Leases in Redis: holders, requests and debts on one key, as the kernel has them.

use std::time::Duration;

use fastrand::Rng;
use sluicegate_kernel::lease::{Found, Holder, LeaseGrant, Message, Number};
use sluicegate_kernel::{Cost, LeaseReply, Leased, Micros, Moment, Verb};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Charge, Debt, Permits, Quota, RuleOrigin, Store, StoreError, StoreRequest};
use sluicegate_testkit::{Cluster, ClusterOptions, FaultProxy, Faults, Options, RedisServer, need};

use crate::redis_store::{ask_as, bucket, connect, passed, passed_as, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

const POLICIES: &str = "
policies:
  - { name: bucket, rules: [ { token_bucket: { rate: 10/s, burst: 200 } } ] }
  - { name: initial, rules: [ { token_bucket: { rate: 10/s, burst: 200, initial: 3 } } ] }
  - { name: interval, rules: [ { token_bucket: { rate: 10/s, burst: 200, refill: interval } } ] }
  - { name: meter, rules: [ { leaky_bucket: { rate: 10/s, burst: 200, delay: none } } ] }
  - { name: window, rules: [ { fixed_window: { limit: 200, window: 2s } } ] }
  - { name: day, rules: [ { fixed_window: { limit: 200, calendar: day, time_zone: Asia/Shanghai } } ] }
  - { name: buckets, rules: [ { sliding_window: { limit: 200, window: 12s, buckets: 4 } } ] }
  - { name: counter, rules: [ { sliding_counter: { limit: 200, window: 12s } } ] }
  - { name: log, rules: [ { sliding_log: { limit: 200, window: 12s } } ] }
  - name: several
    rules:
      - { name: fast, token_bucket: { rate: 10/s, burst: 200 } }
      - { name: day, fixed_window: { limit: 2000, calendar: day } }
";

/// Returns the first message of a holder that needs so many permits.
fn first(holder: u64, need: u32) -> Message {
    Message {
        holder: Holder(holder),
        number: Number(1),
        heard: Number(0),
        stood: 0,
        unspent: 0,
        keep: 0,
        need,
        least: need,
        want: 0,
        share: 0,
        term_us: 1_000_000,
        patience_us: 50_000,
        ends: Micros::ZERO,
        ended: false,
        marks: Default::default(),
        hint: None,
    }
}

/// Returns the next message of the holder of `message`, which has so many permits left and needs
/// some.
fn next(message: &Message, grant: &LeaseGrant, unspent: u32, need: u32) -> Message {
    Message {
        number: Number(message.number.0 + 1),
        heard: grant.number,
        stood: grant.kept + grant.granted,
        unspent,
        keep: unspent,
        need,
        least: need,
        want: need,
        share: 50,
        ends: grant.ends,
        hint: Some(grant.hint),
        ..*message
    }
}

async fn lease(
    store: &RedisStore,
    request: &StoreRequest<'_>,
    message: &Message,
    at: Micros,
) -> LeaseGrant {
    match store.lease(request, message, &Moment::new(at)).await {
        Ok(LeaseReply::Granted(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redis_has_holders_requests_and_debts_on_one_key_as_the_kernel_does() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    for policy in policies.policies() {
        let (rules, name) = (policy.rules(), policy.name());
        let (mut now, mut leased) = (NOW, Leased::default());
        let mut holders: Vec<_> =
            (1..=3).map(|holder| (first(holder, 5), None::<LeaseGrant>)).collect();
        for step in 0..200 {
            now = now.plus(Micros::from_millis(rng.u64(0..300)));
            let windows = rules.windows(now);
            let at = Moment::with_windows(now, windows.as_slice());
            let verb = Verb::Check { cost: Cost::new(rng.u64(1..=9)).expect("a cost") };
            let (origin, quota) = (RuleOrigin::default(), Quota::default());
            let (key, set) = (b"k".as_slice(), rules.set());
            let request =
                StoreRequest { policy: name, key, rules: set, verb: &verb, origin, quota };
            let what = format!("seed {seed}, {name}, step {step}");
            match rng.u32(0..4) {
                0 => {
                    let mut permits = Permits::default();
                    permits[0] = rng.u64(0..8);
                    let charge = if rng.bool() { Charge::Added } else { Charge::AtLeast };
                    let debt = Debt { id: rng.u128(..), permits, charge };
                    match charge {
                        Charge::Added => set.debit_beside(&mut leased, &mut permits, &at),
                        Charge::AtLeast => set.raise_beside(&mut leased, &mut permits, &at),
                    }
                    let expected = set.decide_beside(&mut leased, &verb, &at).expect("it knows it");
                    let answered = store.charge_and_decide(&debt, &request, &at).await;
                    let (answer, charged) = answered.unwrap_or_else(|e| panic!("{what}: {e}"));
                    let several = set.rules().len();
                    assert_eq!(charged[..several], permits[..several], "{what}");
                    assert_eq!(answer.verdict, expected, "{what}");
                }
                1 => {
                    let expected = set.decide_beside(&mut leased, &verb, &at).expect("it knows it");
                    let answer = store.decide(&request, &at).await;
                    assert_eq!(answer.expect("an answer").verdict, expected, "{what}");
                }
                _ => {
                    let (message, heard) = &mut holders[rng.usize(0..3)];
                    if let Some(grant) = heard {
                        let all = grant.kept + grant.granted;
                        *message = next(message, grant, rng.u32(0..=all), rng.u32(0..20));
                    }
                    let expected = set.lease(&mut leased, message, &at);
                    let reply = store.lease(&request, message, &at).await;
                    assert_eq!(reply.expect("a reply"), expected, "{what}: {message:?}");
                    let LeaseReply::Granted(grant) = expected else { panic!("{what}: overtaken") };
                    *heard = Some(grant);
                }
            }
        }
    }
}

#[tokio::test]
async fn programs_that_lease_nothing_share_a_leased_key_to_the_last_permit() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (server, program) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let rules = bucket(1, 100);
    let verb = Verb::Reset;
    let (origin, quota) = (RuleOrigin::default(), Quota::default());
    let request =
        StoreRequest { policy: "p", key: b"k", rules: &rules, verb: &verb, origin, quota };
    let message = first(1, 30);
    let grant = lease(&server, &request, &message, NOW).await;
    assert_eq!((grant.granted, grant.free, grant.found), (30, 70, Found::New));
    assert_eq!(passed(&program, b"k", &rules, 80, NOW).await, 70);
    let all_back = Message { keep: 0, ..next(&message, &grant, 20, 0) };
    let grant = lease(&server, &request, &all_back, NOW).await;
    assert_eq!((grant.kept, grant.free), (0, 20), "10 were spent, 20 come back");
    assert_eq!(passed(&program, b"k", &rules, 80, NOW).await, 20);
}

#[tokio::test]
async fn what_a_holder_gives_back_waits_behind_other_calls_for_longer_than_a_request() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let near = connect(&redis.url()).await;
    let url = format!("redis://{}?deadline_ms=50&connections=1", proxy.address());
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let far = RedisStore::start(&config).expect("a configuration of the test");
    let far = far.with_clock(ScriptClock::Given);
    let rules = bucket(1, 100);
    let verb = Verb::Check { cost: Cost::ONE };
    let (origin, quota) = (RuleOrigin::default(), Quota::default());
    let request =
        StoreRequest { policy: "p", key: b"k", rules: &rules, verb: &verb, origin, quota };
    let message = first(1, 30);
    let grant = lease(&near, &request, &message, NOW).await;
    let all_back = Message { keep: 0, ..next(&message, &grant, 20, 0) };
    let all_back = Message { want: 0, ..all_back };
    // A call is under way, so that the next one waits until its answer has come.
    while far.decide(&request, &Moment::new(NOW)).await.is_err() {}
    let late = Faults::delay(Duration::ZERO, Duration::from_millis(150));
    proxy.set(late).await.expect("the proxy is there");
    let at = Moment::new(NOW);
    let (asked, gave_back) =
        tokio::join!(far.decide(&request, &at), far.lease(&request, &all_back, &at));
    assert!(asked.is_err(), "{asked:?}");
    assert!(matches!(gave_back, Ok(LeaseReply::Granted(_))), "{gave_back:?}");
    let left = ask_as(origin, &near, b"k", (&rules, &Verb::Peek { cost: Cost::ONE }), NOW).await;
    assert_eq!(left.expect("an answer").decision.remaining, 100 - 10 - 2, "10 leased and 2 checks");
}

#[tokio::test]
async fn a_holder_under_rules_that_were_replaced_keeps_what_it_may_be_spending() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let (old, new) = (bucket(1, 100), bucket(1, 60));
    let verb = Verb::Check { cost: Cost::ONE };
    let quota = Quota::default();
    let of =
        |rules, origin| StoreRequest { policy: "p", key: b"k", rules, verb: &verb, origin, quota };
    let message = first(1, 30);
    let grant = lease(&store, &of(&old, version(1)), &message, NOW).await;
    let later = ask_as(version(2), &store, b"k", (&new, &verb), NOW).await.expect("an answer");
    assert_eq!(later.decision.remaining, 29, "what is out counts under the new rules too");
    let message = Message { need: 3, least: 3, ..next(&message, &grant, 10, 20) };
    let grant = lease(&store, &of(&old, version(1)), &message, NOW).await;
    assert_eq!((grant.kept, grant.granted), (10, 3), "what requests wait for, and no more");
    let later = ask_as(version(2), &store, b"k", (&new, &verb), NOW).await.expect("an answer");
    assert_eq!(later.decision.remaining, 25, "20 of 30 were spent, 13 are out, and two checks");
}

#[tokio::test]
async fn usage_that_a_holder_knows_from_replaced_rules_is_not_charged_under_later_ones() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let (old, new) = (bucket(1, 100), bucket(1, 60));
    let verb = Verb::Check { cost: Cost::ONE };
    let quota = Quota::default();
    let of =
        |rules, origin| StoreRequest { policy: "p", key: b"k", rules, verb: &verb, origin, quota };
    assert_eq!(passed_as(version(1), &store, b"k", (&old, 20), NOW).await, 20);
    let message = first(1, 30);
    let grant = lease(&store, &of(&old, version(1)), &message, NOW).await;
    assert_eq!(grant.hint.used[0], 20);
    redis.cli(&["FLUSHALL"]).await.expect("it answers");
    assert_eq!(passed_as(version(2), &store, b"k", (&new, 1), NOW).await, 1);
    let message = next(&message, &grant, 30, 0);
    let grant = lease(&store, &of(&old, version(1)), &message, NOW).await;
    assert_eq!((grant.kept, grant.found), (30, Found::Lost));
    let peek = Verb::Peek { cost: Cost::ONE };
    let later = ask_as(version(2), &store, b"k", (&new, &peek), NOW).await.expect("an answer");
    assert_eq!(later.decision.remaining, 60 - 30 - 1, "30 are out, and one check");
}

#[tokio::test]
async fn keys_of_a_cluster_are_leased() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let store = connect(&format!("redis+cluster://{}", hosts.join(","))).await;
    let rules = bucket(1, 100);
    let (verb, origin, quota) = (Verb::Reset, RuleOrigin::default(), Quota::default());
    for key in 0..16_u8 {
        let key = &[key];
        let request = StoreRequest { policy: "p", key, rules: &rules, verb: &verb, origin, quota };
        assert_eq!(lease(&store, &request, &first(1, 30), NOW).await.granted, 30);
        assert_eq!(passed(&store, key, &rules, 71, NOW).await, 70);
    }
}

#[tokio::test]
async fn callers_whose_clocks_differ_do_not_lease() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await.with_clock(ScriptClock::Client);
    assert!(!store.leases());
    let rules = bucket(1, 100);
    let (verb, origin, quota) = (Verb::Reset, RuleOrigin::default(), Quota::default());
    let request =
        StoreRequest { policy: "p", key: b"k", rules: &rules, verb: &verb, origin, quota };
    let refused = store.lease(&request, &first(1, 30), &Moment::new(NOW)).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable { reason, .. }) if reason.contains("clock of Redis")),
        "{refused:?}"
    );
}
