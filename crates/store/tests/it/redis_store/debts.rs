//! Debts are charged in Redis as the kernel charges them, before the request, and once.

use std::sync::Arc;

use fastrand::Rng;
use sluicegate_kernel::algorithm::FixedWindow;
use sluicegate_kernel::{Cost, Micros, Moment, NamedRule, PermitId, RuleSet, States, Verb};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_store::{
    Charge, Debt, Permits, Quota, RuleOrigin, Store, StoreAnswer, StoreRequest,
};
use sluicegate_testkit::{Cluster, ClusterOptions, Options, RedisServer, need};

use crate::redis_store::{bucket, connect, passed, passed_as, version};

const NOW: Micros = Micros::from_secs(1_800_000_000);

const POLICIES: &str = "
policies:
  - { name: bucket, rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: coarse, rules: [ { token_bucket: { rate: 7/d, burst: 4000000000 } } ] }
  - { name: initial, rules: [ { token_bucket: { rate: 10/s, burst: 20, initial: 3 } } ] }
  - { name: interval, rules: [ { token_bucket: { rate: 10/s, burst: 20, refill: interval } } ] }
  - { name: leaky, rules: [ { leaky_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: meter, rules: [ { leaky_bucket: { rate: 10/s, burst: 20, delay: none } } ] }
  - { name: bursty, rules: [ { smooth_bursty: { rate: 10/s, max_burst: 2s } } ] }
  - { name: warmup, rules: [ { smooth_warmup: { rate: 10/s, warmup: 2s } } ] }
  - { name: window, rules: [ { fixed_window: { limit: 20, window: 2s } } ] }
  - { name: first, rules: [ { fixed_window: { limit: 20, window: 2s, align: first } } ] }
  - { name: day, rules: [ { fixed_window: { limit: 20, calendar: day, time_zone: Asia/Shanghai } } ] }
  - { name: buckets, rules: [ { sliding_window: { limit: 20, window: 2s, buckets: 4 } } ] }
  - { name: counter, rules: [ { sliding_counter: { limit: 20, window: 2s } } ] }
  - { name: log, rules: [ { sliding_log: { limit: 20, window: 2s } } ] }
  - name: several
    rules:
      - { name: fast, token_bucket: { rate: 10/s, burst: 20 } }
      - { name: day, fixed_window: { limit: 200, calendar: day } }
      - { name: log, sliding_log: { limit: 50, window: 7s } }
  - name: jobs
    rules:
      - { name: slots, concurrency: { limit: 4, ttl: 3s } }
      - { name: fast, token_bucket: { rate: 10/s, burst: 20 } }
";

fn verb(rng: &mut Rng, holds_permits: bool) -> Verb {
    let cost = Cost::new(rng.u64(1..=4)).expect("a cost");
    let permit = PermitId(rng.u128(0..8));
    match (rng.u32(0..7), holds_permits) {
        (0, _) => Verb::Peek { cost },
        (1, _) => Verb::Refund { cost },
        (2, true) => Verb::Release { permit },
        (_, true) => Verb::Acquire { cost, permit },
        (2, false) => Verb::AtMost { cost },
        (3, false) => Verb::Reserve { cost, max_wait: Micros::from_millis(rng.u64(0..500)) },
        (_, false) => Verb::Check { cost },
    }
}

#[tokio::test]
async fn redis_charges_a_debt_as_the_kernel_does_and_once() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = connect(&redis.url()).await;
    let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    for policy in policies.policies() {
        let (rules, name) = (policy.rules(), policy.name());
        let holds_permits = rules.set().rules().iter().any(|named| named.rule.holds_permits());
        let (mut now, mut states) = (NOW, States::default());
        for step in 0..300 {
            now = now.plus(Micros::from_millis(rng.u64(0..400)));
            let windows = rules.windows(now);
            let at = Moment::with_windows(now, windows.as_slice());
            let (verb, origin) = (verb(&mut rng, holds_permits), RuleOrigin::default());
            let request = StoreRequest {
                policy: name,
                key: b"k",
                rules: rules.set(),
                verb: &verb,
                origin,
                quota: Quota::default(),
            };
            let what = || format!("seed {seed}, {name}, step {step}: {verb:?}");
            if rng.bool() {
                let mut permits = Permits::default();
                for permits in permits.iter_mut().take(rules.set().rules().len()) {
                    *permits = rng.u64(0..8);
                }
                let charge = if rng.bool() { Charge::Added } else { Charge::AtLeast };
                let debt = Debt { id: rng.u128(..), permits, charge };
                match charge {
                    Charge::Added => rules.set().debit(&mut states, &mut permits, &at),
                    Charge::AtLeast => rules.set().raise(&mut states, &mut permits, &at),
                }
                // A debt of which no permit was charged is not noted, and may be charged the next
                // time.
                let is_noted = permits.iter().any(|permits| *permits > 0);
                for again in 0..if is_noted { rng.u32(1..=2) } else { 1 } {
                    let expected =
                        rules.set().decide(&mut states, &verb, &at).expect("it knows it");
                    let charged = store.charge_and_decide(&debt, &request, &at).await;
                    let (answer, charged) = charged.unwrap_or_else(|e| panic!("{}: {e}", what()));
                    let several = rules.set().rules().len();
                    assert_eq!(charged[..several], permits[..several], "{}, {again}", what());
                    let expected = StoreAnswer::of(expected, rules.set(), &states, &at);
                    assert_eq!(answer, expected, "{}, {again}", what());
                }
            } else {
                let expected = rules.set().decide(&mut states, &verb, &at).expect("it knows it");
                let expected = StoreAnswer::of(expected, rules.set(), &states, &at);
                let answer = store.decide(&request, &at).await;
                assert_eq!(answer.expect("an answer"), expected, "{}", what());
            }
        }
    }
}

#[tokio::test]
async fn of_a_debt_under_later_rules_as_much_is_paid_as_the_fullest_of_them_took() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, own) = (connect(&redis.url()).await, bucket(1, 100));
    let hour = FixedWindow::epoch(1_000, Micros::from_secs(3_600));
    let rules =
        own.rules().iter().cloned().chain([NamedRule::new("hour", hour.expect("it is one"))]);
    let later = Arc::new(RuleSet::new(rules.collect()).expect("they are rules"));
    assert_eq!(passed_as(version(2), &store, b"k", (&later, 95), NOW).await, 95);
    let (verb, origin, quota) = (Verb::Peek { cost: Cost::ONE }, version(1), Quota::default());
    let request = StoreRequest { policy: "p", key: b"k", rules: &own, verb: &verb, origin, quota };
    let (mut permits, mut paid) = (Permits::default(), Permits::default());
    (permits[0], paid[0]) = (10, 5);
    let debt = Debt { id: 1, permits, charge: Charge::Added };
    let (_, charged) =
        store.charge_and_decide(&debt, &request, &Moment::new(NOW)).await.expect("an answer");
    assert_eq!(charged, paid, "the bucket took 5, the hour 10");
}

/// An answer is lost; before the debt is sent again, an edit adds rules or takes some away.
#[tokio::test]
async fn a_debt_stays_charged_when_more_or_fewer_rules_decide() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (store, few) = (connect(&redis.url()).await, bucket(1, 100));
    let hour = FixedWindow::epoch(1_000, Micros::from_secs(3_600));
    let rules =
        few.rules().iter().cloned().chain([NamedRule::new("hour", hour.expect("it is one"))]);
    let many = Arc::new(RuleSet::new(rules.collect()).expect("they are rules"));
    let (verb, quota) = (Verb::Peek { cost: Cost::ONE }, Quota::default());
    for (id, own, other, owed, paid) in
        [(1, &many, &few, [7, 9], [7, 7]), (2, &few, &many, [7, 0], [7, 0])]
    {
        let of_two = |[first, second]: [u64; 2]| {
            let mut permits = Permits::default();
            (permits[0], permits[1]) = (first, second);
            permits
        };
        let (key, origin) = ([id], version(id.into()));
        let debt = Debt { id: id.into(), permits: of_two(owed), charge: Charge::Added };
        let request =
            StoreRequest { policy: "p", key: &key, rules: own, verb: &verb, origin, quota };
        let at = Moment::new(NOW);
        let ask = || store.charge_and_decide(&debt, &request, &at);
        assert_eq!(ask().await.expect("an answer").1, debt.permits);
        assert_eq!(passed_as(version(9), &store, &key, (other, 1), NOW).await, 1);
        let (answer, charged) = ask().await.expect("an answer by the later rules");
        let remaining = answer.verdict.decision.remaining;
        assert_eq!((charged, remaining), (of_two(paid), 92), "of {own:?}");
    }
}

#[tokio::test]
async fn a_debt_is_charged_in_a_cluster_too() {
    let cluster = need!(Cluster::start(ClusterOptions::default()).await);
    let hosts: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let store = connect(&format!("redis+cluster://{}", hosts.join(","))).await;
    let rules = bucket(1, 100);
    for key in 0..32_u8 {
        let verb = Verb::Peek { cost: Cost::ONE };
        let origin = RuleOrigin::default();
        let request = StoreRequest {
            policy: "p",
            key: &[key],
            rules: &rules,
            verb: &verb,
            origin,
            quota: Quota::default(),
        };
        let mut permits = Permits::default();
        permits[0] = 40;
        let debt = Debt { id: key.into(), permits, charge: Charge::Added };
        let (answer, charged) =
            store.charge_and_decide(&debt, &request, &Moment::new(NOW)).await.expect("an answer");
        assert_eq!((charged, answer.verdict.decision.remaining), (permits, 60));
        assert_eq!(passed(&store, &[key], &rules, 70, NOW).await, 60);
    }
}
