//! Tests of the decisions of an engine on requests, end to end, on the memory store.
#![cfg(feature = "engine")]

use std::sync::Arc;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::MemoryStore;
use sluicegate::{
    Answer, Cost, DecideError, Engine, ManualClock, Micros, Rate, Request, TokenBucket, Verb,
};
use sluicegate_kernel::RuleSet;
use sluicegate_policy::{Policy, Rules};

const POLICIES: &str = "
policies:
  - name: orders
    apps: [checkout, admin]
    rules:
      - { name: burst, token_bucket: { rate: 1/s, burst: 2 } }
      - { name: daily, fixed_window: { limit: 3, calendar: day, time_zone: Europe/Berlin } }
    overrides:
      - { key: vip, rules: [ { name: burst, token_bucket: { rate: 1/s, burst: 5 } } ] }
  - name: jobs
    rules: [ { concurrency: { limit: 1, ttl: 30s } } ]
";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

fn engine() -> Arc<Engine> {
    let policies = Document::parse(POLICIES).expect("POLICIES is valid");
    Arc::new(Engine::in_memory(PolicySet::new(policies)))
}

fn orders(key: &str) -> Request<'_> {
    Request { app: Some("checkout"), ..Request::new("orders", Some(key.as_bytes()), CHECK) }
}

fn decide(engine: &Arc<Engine>, request: &Request<'_>, now: Micros) -> Result<Answer, DecideError> {
    let decided = engine.turn_at(now).try_decide(request).expect("memory need not be waited for");
    decided.map(|admission| admission.answer)
}

fn at(engine: &Arc<Engine>, request: &Request<'_>, secs: u64) -> Answer {
    decide(engine, request, Micros::from_secs(secs)).expect("the request can be decided")
}

#[test]
fn the_rule_that_refused_is_named_and_the_others_are_not_charged() {
    let engine = engine();
    assert!(at(&engine, &orders("a"), 0).decision.allowed());
    assert!(at(&engine, &orders("a"), 0).decision.allowed());
    for _ in 0..10 {
        let refused = at(&engine, &orders("a"), 0);
        assert_eq!((refused.decision.allowed(), refused.rule()), (false, "burst"));
    }
    // The daily window was charged twice, not twelve times.
    let third = at(&engine, &orders("a"), 10);
    assert_eq!((third.decision.allowed(), third.rule()), (true, "daily"));
    assert_eq!(at(&engine, &orders("a"), 20).rule(), "daily");
}

#[test]
fn an_app_that_may_use_a_policy_as_any_other_may_gives_nothing_back() {
    let text = "{ name: p, apps: ['*', bank], rules: [ token_bucket: { rate: 1/d, burst: 5 } ] }";
    let policy = Policy::parse_one(text).expect("it makes sense").of_app("shop");
    let policies = PolicySet::default().with(policy).expect("it is the only one");
    let engine = Arc::new(Engine::in_memory(policies));
    let ask = |app, verb| {
        let request = Request { app, ..Request::new("p", Some(b"k"), verb) };
        decide(&engine, &request, Micros::ZERO).map(|answer| answer.decision.remaining)
    };
    let refund = Verb::Refund { cost: Cost::ONE };
    for (app, left) in [(Some("other"), 4), (None, 3)] {
        assert_eq!(ask(app, CHECK), Ok(left));
        assert_eq!(ask(app, Verb::Peek { cost: Cost::ONE }), Ok(left));
        for verb in [refund.clone(), Verb::Reset] {
            let error = ask(app, verb).expect_err("it is not for this app");
            assert!(matches!(error, DecideError::Unconfigured { .. }), "{error}");
        }
    }
    assert_eq!(ask(Some("bank"), refund), Ok(4));
    assert_eq!(ask(Some("shop"), Verb::Reset), Ok(5));
}

#[test]
fn a_calendar_window_ends_at_midnight_of_its_zone() {
    let engine = engine();
    // 1970-01-01 in Berlin ends at 23:00 UTC.
    let (before, after) = (23 * 3600 - 10, 23 * 3600);
    for offset in [0, 1, 2] {
        assert!(at(&engine, &orders("a"), before + offset).decision.allowed());
    }
    let refused = at(&engine, &orders("a"), before + 5);
    assert_eq!(refused.decision.retry_after(), Some(Micros::from_secs(5)));
    assert!(at(&engine, &orders("a"), after).decision.allowed());
}

#[test]
fn an_override_holds_for_its_key_only() {
    let engine = engine();
    assert_eq!(at(&engine, &orders("vip"), 0).decision.limit, 5);
    assert_eq!(at(&engine, &orders("vip2"), 0).decision.limit, 2);
}

#[test]
fn what_cannot_be_asked_is_told_apart_from_a_refusal() {
    let engine = engine();
    let error = |request: Request<'_>| decide(&engine, &request, Micros::ZERO).unwrap_err();
    let text = |request| error(request).to_string();
    assert_eq!(text(Request::new("nope", None, CHECK)), "policy: unknown policy `nope`");
    assert_eq!(
        text(Request { app: Some("adm"), ..orders("a") }),
        "app: policy `orders` is not available to app `adm`",
    );
    assert!(matches!(
        error(Request { app: None, ..orders("a") }),
        DecideError::Unconfigured { .. }
    ));
    assert_eq!(error(Request { key: Some(b""), ..orders("a") }), DecideError::EmptyKey);
    let long = vec![b'x'; 2048];
    assert_eq!(
        text(Request { key: Some(&long), ..orders("a") }),
        "key: `2048` bytes are outside 1..=1024",
    );
    assert_eq!(
        text(Request::new("jobs", None, CHECK)),
        "op: `check` is not supported by this policy: it has a `concurrency` rule, use `acquire`",
    );
    assert!(engine.store().is_empty());
}

#[test]
fn a_request_without_a_key_shares_one_budget() {
    let engine = engine();
    let shared = Request { key: None, ..orders("ignored") };
    assert!(at(&engine, &shared, 0).decision.allowed());
    assert!(at(&engine, &shared, 0).decision.allowed());
    assert!(!at(&engine, &shared, 0).decision.allowed());
    assert!(at(&engine, &orders("a"), 0).decision.allowed());
}

#[test]
fn a_new_limit_holds_from_the_next_request_and_usage_stays() {
    let engine = engine();
    for _ in 0..2 {
        assert!(at(&engine, &orders("a"), 0).decision.allowed());
    }
    let wider = Policy::parse_one(
        "{ name: orders, rules: [ { name: burst, token_bucket: { rate: 1/s, burst: 3 } } ] }",
    );
    engine.set_policies(engine.policies().with(wider.unwrap()).unwrap());
    assert!(at(&engine, &orders("a"), 0).decision.allowed());
    assert!(!at(&engine, &orders("a"), 0).decision.allowed());
}

#[tokio::test]
async fn the_clock_is_passed_in() {
    let clock = Arc::new(ManualClock::default());
    let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
    let engine = Arc::new(Engine::new(policies, MemoryStore::new(10), clock.clone()));
    for allowed in [true, true, false] {
        let admission = engine.turn().decide(&orders("a")).await.unwrap();
        assert_eq!(admission.answer.decision.allowed(), allowed);
    }
    clock.advance(Micros::SECOND);
    let admission = engine.turn().try_decide(&orders("a")).expect("at once").unwrap();
    assert!(admission.way.passes());
}

#[test]
fn rules_that_a_caller_sends_along_have_budgets_of_their_own() {
    let engine = engine();
    let bucket = TokenBucket::new(Rate::per_second(1).unwrap(), 2).unwrap();
    let rules = Rules::new(RuleSet::single("sent", bucket)).unwrap();
    let ask = |name, key| {
        let request = Request::new(name, key, CHECK);
        decide(&engine, &request.by(&rules), Micros::from_secs(9))
    };
    for remaining in [1, 0] {
        let answer = ask("SENT", Some(b"a")).unwrap();
        assert_eq!((answer.decision.remaining, answer.rule()), (remaining, "sent"));
    }
    assert!(!ask("SENT", Some(b"a")).unwrap().decision.allowed());
    assert!(ask("SENT", Some(b"b")).unwrap().decision.allowed());
    assert!(ask("OTHER", Some(b"a")).unwrap().decision.allowed());
    assert!(ask("SENT", None).unwrap().decision.allowed());
    assert_eq!(ask("SENT", Some(b"")).unwrap_err(), DecideError::EmptyKey);
    let long = [b'x'; 1025];
    assert_eq!(ask("SENT", Some(&long)).unwrap_err(), DecideError::LongKey(1025));
}

/// Returns an engine on a store for so many keys per policy.
fn engine_with_quota(policy: &str, keys_per_policy_max: usize) -> Arc<Engine> {
    let rule = "token_bucket: { rate: 1/s, burst: 2 }";
    let text = format!(
        "policies: [
           {{ name: login, rules: [ {{ {rule} }} ], {policy}
              overrides: [ {{ key: vip, rules: [ {{ {rule} }} ] }} ] }},
           {{ name: other, rules: [ {{ {rule} }} ] }} ]"
    );
    let policies =
        PolicySet::new(Document::parse(&text).expect("the policies of the test are valid"));
    let store = MemoryStore::new(1_000).with_keys_per_policy_max(keys_per_policy_max);
    Arc::new(Engine::new(policies, store, Arc::new(ManualClock::default())))
}

/// Returns whether `key` gets a permit of `policy`.
fn passes(engine: &Arc<Engine>, policy: &str, key: &str) -> bool {
    let request = Request::new(policy, Some(key.as_bytes()), CHECK);
    at(engine, &request, 0).decision.allowed()
}

#[test]
fn new_keys_beyond_a_policy_s_quota_share_one_budget_of_its_rules() {
    let engine = engine_with_quota("", 2);
    assert!(passes(&engine, "login", "a") && passes(&engine, "login", "vip"));
    let shared = ["b", "c", "d", "e"].map(|key| passes(&engine, "login", key));
    assert_eq!(shared, [true, true, false, false], "an override has a place, too");
    let own = ["a", "vip", "a", "vip"].map(|key| passes(&engine, "login", key));
    assert_eq!(own, [true, true, false, false], "keys that were there have what they had");
    assert!(passes(&engine, "other", "b"), "and so have other policies");
}

#[test]
fn new_keys_beyond_a_policy_s_quota_are_refused_where_it_says_so() {
    let engine = engine_with_quota("on_key_quota: deny,", 1);
    assert!(passes(&engine, "login", "a"));
    assert!(!passes(&engine, "login", "b"));
    assert!(passes(&engine, "login", "a"));
    let refused = at(&engine, &Request::new("login", Some(b"b"), CHECK), 0);
    assert_eq!((refused.decision.limit, refused.decision.remaining), (2, 0));
    assert_eq!(refused.decision.retry_after(), Some(Micros::SECOND));
}

#[test]
fn all_limits_that_callers_bring_along_have_one_quota() {
    let engine = engine_with_quota("", 3);
    let bucket = |burst| TokenBucket::new(Rate::per_second(1).unwrap(), burst).unwrap();
    for burst in 1..=6_u64 {
        let rules = Rules::new(RuleSet::single("sent", bucket(burst))).unwrap();
        let name = format!("SENT-{burst}");
        let request = Request::new(&name, Some(b"a"), CHECK);
        decide(&engine, &request.by(&rules), Micros::ZERO).unwrap();
    }
    assert_eq!((engine.store().len(), engine.store().overflows()), (3, 3));
    assert!(passes(&engine, "login", "a"));
    assert_eq!(engine.store().len(), 4, "policies have their own");
}
