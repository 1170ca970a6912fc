//! An engine that follows what servers publish in Redis.
#![cfg(feature = "redis")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use sluicegate::internals::PolicyFollower;
use sluicegate::policy::PolicySet;
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::{Clock, Cost, DecideError, Engine, Request, SteadyClock, StoreFailure, Verb};
use sluicegate_conformance::{HashFields, Life, PolicyStep, load_policies};
use sluicegate_policy::Policy;
use sluicegate_store::redis::{
    POLICIES_CHANNEL, POLICIES_KEY, Publication, PublicationPolicy, PublicationSource,
    PublishOutcome, RevisionDiff,
};
use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, need, until};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(redis: &RedisServer) -> RedisConfig {
    format!("{}?deadline_ms=5000", redis.url()).parse().expect("a URL of the test")
}

async fn connect(redis: &RedisServer) -> RedisStore {
    let store = RedisStore::start(&config(redis)).expect("a configuration of the test");
    store.ready().await.expect("the server of the test is there");
    store
}

#[tokio::test]
async fn it_holds_what_every_vector_says() {
    let redis = need!(RedisServer::start(Options::default()).await);
    for life in load_policies().expect("the vectors are there") {
        redis.cli(&["FLUSHALL"]).await.expect("it answers");
        live(&redis, &life).await;
    }
}

async fn live(redis: &RedisServer, life: &Life) {
    let store = connect(redis).await;
    let engine = Engine::new(PolicySet::default(), store, Arc::new(SteadyClock::new()));
    let mut follower = PolicyFollower::default();
    for (place, step) in life.steps.iter().enumerate() {
        let holds = match step {
            PolicyStep::Publish { hash, .. } | PolicyStep::Found { hash } => {
                put(redis, hash).await;
                continue;
            }
            PolicyStep::Look { holds } => {
                follower.look(&engine).await.expect("it answers");
                holds
            }
            PolicyStep::Hear { message, holds } => {
                // A message that is not a number is ignored.
                if let Ok(revision) = message.parse() {
                    follower.hear(revision, &engine).await.expect("it answers");
                }
                holds
            }
        };
        let at = format!("{}: step {place}", life.name);
        assert_eq!(
            (follower.revision(), follower.versions()),
            (holds.revision, &holds.policies),
            "{at}"
        );
        let in_force: Vec<_> =
            engine.policies().policies().iter().map(|policy| policy.name().to_owned()).collect();
        let mut names: Vec<_> = in_force.iter().collect();
        names.sort();
        assert_eq!(names, holds.policies.keys().collect::<Vec<_>>(), "{at}");
    }
}

/// Sets the fields of the hash to those of a vector.
async fn put(redis: &RedisServer, hash: &HashFields) {
    redis.cli(&["DEL", POLICIES_KEY]).await.expect("it answers");
    for (name, value) in hash {
        let text = match value {
            Json::String(text) if name.starts_with('#') => text.clone(),
            value => value.to_string(),
        };
        redis.cli(&["HSET", POLICIES_KEY, name, &text]).await.expect("it answers");
    }
}

/// Publishes policies of these names and limits, which `shop` owns.
async fn publish(store: &RedisStore, revision: i64, limits: &BTreeMap<&str, u64>) {
    let documents: Vec<_> = limits
        .iter()
        .map(|(name, limit)| {
            format!(r#"{{"name":"{name}","apps":["shop"],"rules":[{{"fixed_window":{{"limit":{limit},"window":"1h"}}}}]}}"#)
        })
        .collect();
    let policies = limits.keys().zip(&documents).map(|(name, document)| PublicationPolicy {
        name,
        app: "shop",
        is_shadow: false,
        version: revision,
        since_ms: None,
        document,
    });
    let policies: Vec<_> = policies.collect();
    let names: Vec<_> = limits.keys().copied().collect();
    let changed = (revision > 1).then_some(RevisionDiff { since: revision - 1, names: &names });
    let publication = Publication {
        changed,
        ..Publication::new(revision, &policies, PublicationSource::Catalog, |_| None)
    };
    let published = store.publish(&publication).await;
    assert_eq!(published, Ok(PublishOutcome::Written));
}

#[tokio::test]
async fn an_edit_is_in_force_soon_and_the_budget_is_shared_with_a_server() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let server = connect(&redis).await;
    let engine = Engine::following(&config(&redis), None).await.expect("it can");
    let ask = async |app, verb| {
        let request = Request { app, ..Request::new("orders", Some(b"alice"), verb) };
        engine.turn().decide(&request).await
    };
    let (check, peek) = (Verb::Check { cost: Cost::ONE }, Verb::Peek { cost: Cost::ONE });
    let unknown = ask(Some("shop"), check.clone()).await;
    assert!(matches!(unknown, Err(DecideError::UnknownPolicy(_))), "{unknown:?}");
    assert_eq!(engine.revision(), None);
    publish(&server, 1, &BTreeMap::from([("orders", 5)])).await;
    let limit = async |limit| {
        let asked = async || {
            let admission = ask(Some("shop"), peek.clone()).await.ok()?;
            (admission.answer.decision.limit == limit).then_some(())
        };
        until("it is in force", PATIENCE, asked).await.expect("it is heard");
    };
    limit(5).await;
    let bank = ask(Some("bank"), check.clone()).await;
    assert!(matches!(bank, Err(DecideError::Unconfigured { .. })), "{bank:?}");
    let passed = ask(Some("shop"), check.clone()).await.expect("it is decided");
    assert_eq!(passed.answer.decision.remaining, 4);
    publish(&server, 2, &BTreeMap::from([("orders", 7)])).await;
    limit(7).await;
    assert_eq!(engine.revision(), Some(2));
    // Usage was carried over: the checks of both revisions count.
    let passed = ask(Some("shop"), check).await.expect("it is decided");
    assert_eq!(passed.answer.decision.remaining, 5);
}

#[tokio::test]
async fn a_policy_of_a_later_version_goes_a_damaged_one_stays_and_both_are_named() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let server = connect(&redis).await;
    publish(&server, 1, &BTreeMap::from([("mails", 3), ("orders", 5)])).await;
    let engine = Engine::following(&config(&redis), None).await.expect("it can");
    assert_eq!(engine.revision(), Some(1));
    let limit = |name| {
        let policies = engine.policies();
        policies.resolve(name).map(|held| held.rules().set().rules()[0].rule.limit())
    };
    let find = async |revision: i64, orders: &str| {
        let revision = revision.to_string();
        let hash = ["HSET", POLICIES_KEY, "orders", orders, "#revision", &revision];
        redis.cli(&hash).await.expect("it answers");
        let told = async || {
            redis.cli(&["PUBLISH", POLICIES_CHANNEL, &revision]).await.expect("it answers");
            (engine.revision() == revision.parse().ok()).then_some(())
        };
        until("it is heard", PATIENCE, told).await.expect("it is");
    };
    let orders = |version: i64, state: &str, record: i64, rule: &str| {
        format!(
            r#"{{"version":{version},"state":"{state}","app":"shop","record":{record},"document":{{"name":"orders","rules":[{{{rule}}}]}}}}"#
        )
    };
    let (right, gcra) = (r#""fixed_window":{"limit":7,"window":"1h"}"#, r#""gcra":{}"#);
    for (revision, text, problem, held) in [
        (2, orders(2, "asleep", 1, right), "state: expected", Some(5)),
        (3, "nonsense".to_owned(), "expected", Some(5)),
        (4, orders(3, "active", 1, gcra), "unknown algorithm `gcra`", None),
        (5, orders(4, "active", 1, right), "", Some(7)),
        (6, orders(5, "active", 2, right), "record: `2`", None),
        (7, orders(6, "active", 1, right), "", Some(7)),
    ] {
        find(revision, &text).await;
        let unreadable = engine.unreadable();
        let named = unreadable.get("orders").map_or("", String::as_str);
        assert!(
            named.contains(problem) && named.is_empty() == problem.is_empty(),
            "{text}: {named}"
        );
        assert_eq!((limit("orders"), limit("mails")), (held, Some(3)), "{text}");
    }
}

#[tokio::test]
async fn what_was_admitted_without_redis_is_charged_before_a_later_version_is_given_up() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let server = connect(&redis).await;
    publish(&server, 1, &BTreeMap::from([("orders", 50)])).await;
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let url = format!("redis://{}?deadline_ms=100", proxy.address());
    let config: RedisConfig = url.parse().expect("a URL of the test");
    let store = RedisStore::start(&config).expect("a configuration of the test");
    store.ready().await.expect("the server of the test is there");
    let engine = Engine::new(PolicySet::default(), store, Arc::new(SteadyClock::new()));
    let engine = Arc::new(engine.with_fallback(StoreFailure::shared_by(NonZeroU32::MIN)));
    let mut follower = PolicyFollower::default();
    follower.look(&engine).await.expect("it answers");
    proxy.set(Faults::black_hole()).await.expect("the proxy is there");
    let check = Verb::Check { cost: Cost::new(9).expect("a cost") };
    let alone = || Request::new("orders", Some(b"alice"), check.clone());
    let alone = || Request { app: Some("shop"), ..alone() };
    let by_share = async || {
        let admission = engine.turn().decide(&alone()).await.ok()?;
        (admission.answer.decision.allowed() && engine.debts() > 0).then_some(())
    };
    until("its share admits", PATIENCE, by_share).await.expect("it does");
    proxy.heal().await.expect("the proxy is there");
    let record = r#"{"version":2,"app":"shop","record":2}"#;
    redis
        .cli(&["HSET", POLICIES_KEY, "orders", record, "#revision", "2"])
        .await
        .expect("it is there");
    let looked = async || {
        follower.look(&engine).await.ok()?;
        (follower.revision() == Some(2)).then_some(())
    };
    until("it looks", PATIENCE, looked).await.expect("Redis answers again");
    assert!(follower.versions().is_empty() && engine.debts() == 0);
    let rules = orders_of(50);
    let other = Arc::new(Engine::new(rules, server, Arc::new(SteadyClock::new())));
    let peek = Request::new("orders", Some(b"alice"), Verb::Peek { cost: Cost::ONE });
    let left = other.turn().decide(&peek).await.expect("it is decided").answer.decision.remaining;
    assert!(left <= 50 - 9, "{left} are left");
}

/// The policy `orders` as a server holds it.
fn orders_of(limit: u64) -> PolicySet {
    let text = format!(
        r#"{{"name":"orders","apps":["*"],"rules":[{{"fixed_window":{{"limit":{limit},"window":"1h"}}}}]}}"#
    );
    let policy = Policy::parse_one(&text).expect("a policy of the test");
    PolicySet::default().changed(vec![policy], &[]).expect("one fits")
}

/// Four permits a day of `orders`, or a thousand.
fn orders(limit: u64) -> String {
    format!(
        r#"{{"name":"orders","apps":["*"],"rules":[{{"fixed_window":{{"limit":{limit},"window":"1d"}}}}]}}"#
    )
}

#[tokio::test]
async fn a_program_that_starts_while_an_edit_is_on_its_way_does_not_undo_it() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let clock = Arc::new(SteadyClock::new());
    let hour_ago = clock.now().get() / 1_000 - 3_600_000;
    let text = format!(
        r#"{{"version":1,"since_ms":{hour_ago},"state":"active","app":"","document":{}}}"#,
        orders(1_000)
    );
    redis
        .cli(&["HSET", POLICIES_KEY, "#format", "1", "#revision", "1", "orders", &text])
        .await
        .expect("it answers");
    // A server holds the edit, which is not published yet.
    let edited = Policy::parse_one(&orders(4)).expect("a policy of the test");
    let server = Arc::new(Engine::new(PolicySet::default(), connect(&redis).await, clock));
    let policies = PolicySet::default().changed(vec![edited], &[]).expect("one fits");
    server.set_policies(policies);
    let check = || Request::new("orders", Some(b"alice"), Verb::Check { cost: Cost::ONE });
    server.turn().decide(&check()).await.expect("it is decided");

    let late = Engine::following(&config(&redis), None).await.expect("it can");
    assert_eq!(late.revision(), Some(1));
    let mut passed = 1;
    for _ in 0..10 {
        for engine in [&server, late.engine()] {
            let admission = engine.turn().decide(&check()).await.expect("it is decided");
            passed += u64::from(admission.answer.decision.allowed());
        }
    }
    assert_eq!(passed, 4);
}
