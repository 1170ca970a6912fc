//! Telemetry shows what was decided.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use sluicegate::internals::Settlement;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::{Cost, Micros, Patience, Rate, TokenBucket, Verb};
use sluicegate_control::traffic::RESULTS;
use sluicegate_kernel::RuleSet;
use sluicegate_policy::Rules;

use super::*;
use crate::engine::ServerEngine;

const POLICIES: &str = "policies:
  - { name: plain, rules: [ { fixed_window: { limit: 2, window: 1d } } ] }
  - { name: shade, rules: [ { fixed_window: { limit: 1, window: 1d } } ], overflow: shadow }
  - { name: mark, rules: [ { fixed_window: { limit: 1, window: 1d } } ], overflow: { degrade: { tag: t } } }
  - { name: away, rules: [ { fixed_window: { limit: 1, window: 1d } } ], overflow: { divert: { target: t } } }
  - { name: seen, rules: [ { concurrency: { limit: 1, ttl: 1m } } ], overflow: shadow }
  - { name: closed, apps: [a], rules: [ { fixed_window: { limit: 1, window: 1d } } ] }
";

fn set(text: &str) -> PolicySet {
    PolicySet::new(Document::parse(text).expect("the test's policies are sound"))
}

fn check<'a>(policy: &'a str, key: &'a [u8]) -> Request<'a> {
    Request::new(policy, Some(key), Verb::Check { cost: Cost::ONE })
}

fn ask(engine: &ServerEngine, wire: Wire, request: &Request<'_>) {
    engine.turn_at(wire, Micros::SECOND).try_decide(request).expect("memory answers at once").ok();
}

/// Every count, as `policy wire result mode`.
fn counted(engine: &ServerEngine) -> BTreeMap<String, u64> {
    let decisions = engine.telemetry().counts.decisions().into_iter();
    let named = decisions.map(|Decisions { policy, wire, result, mode, count }| {
        (format!("{policy} {wire} {result} {mode}"), count)
    });
    named.collect()
}

fn is(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn every_decision_is_counted_by_what_became_of_it() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    for policy in ["plain", "shade", "mark", "away"] {
        for _ in 0..3 {
            ask(&engine, Wire::Http, &check(policy, b"k"));
        }
    }
    ask(&engine, Wire::Resp, &check("plain", b"k"));
    for policy in ["nobody knows", "nor this one", "closed"] {
        ask(&engine, Wire::Rls, &check(policy, b"k"));
    }
    // The key is looked at first, so this may be the name of anything.
    ask(&engine, Wire::Rls, &check("what a client made up", b""));
    assert_eq!(
        counted(&engine),
        is(&[
            ("plain http allowed store", 2),
            ("plain http refused store", 1),
            ("plain resp refused store", 1),
            ("shade http allowed store", 1),
            ("shade http shadowed store", 2),
            ("mark http allowed store", 1),
            ("mark http degraded store", 2),
            ("away http allowed store", 1),
            ("away http diverted store", 2),
            ("closed rls error none", 1),
            ("(unknown) rls error none", 3),
        ])
    );
    let errors: Vec<_> =
        engine.telemetry().counts.errors(Wire::Rls).filter(|(_, n)| *n > 0).collect();
    assert_eq!(errors, [("unknown_policy", 2), ("unconfigured", 1), ("key", 1)]);
}

#[test]
fn a_permit_that_passes_in_the_shadow_is_counted_as_shadowed() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    let permit = sluicegate::PermitId;
    for id in 0..3 {
        let acquire = Verb::Acquire { cost: Cost::ONE, permit: permit(id) };
        ask(&engine, Wire::Http, &Request::new("seen", Some(b"k"), acquire));
    }
    // Renewals and releases are not decisions, whether something is held or not.
    for id in 0..3 {
        let renew = Verb::Renew { permit: permit(id) };
        ask(&engine, Wire::Http, &Request::new("seen", Some(b"k"), renew));
    }
    let expected = [("seen http allowed store", 1), ("seen http shadowed store", 2)];
    assert_eq!(counted(&engine), is(&expected));
    let totals = engine.telemetry().counts.totals();
    let total = totals.iter().find(|total| *total.policy == *"seen");
    // In the order of the results: allowed, held, shadowed, degraded, diverted, refused.
    assert_eq!(total.map(|total| total.counts.0[..6].to_vec()), Some(vec![1, 0, 2, 0, 0, 0]));
}

#[test]
fn what_asks_for_no_permits_is_no_decision() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    for verb in [Verb::Peek { cost: Cost::ONE }, Verb::Refund { cost: Cost::ONE }, Verb::Reset] {
        ask(&engine, Wire::Resp, &Request::new("plain", None, verb));
    }
    assert_eq!(counted(&engine), is(&[]));
    let operations: Vec<_> = engine.telemetry().counts.operations(Wire::Resp).collect();
    let expected = [("peek", 1), ("refund", 1), ("reset", 1), ("release", 0), ("renew", 0)];
    assert_eq!(operations, expected);
}

#[tokio::test]
async fn settlements_and_explanations_are_seen() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    let (charged, key) = (Cost::ONE, Some(&b"k"[..]));
    for (id, cost) in [(&b"less"[..], 0), (b"less", 0), (b"more", 9), (b"same", 1), (b"", 1)] {
        let settlement = Settlement { policy: "plain", key, app: None, id, charged, cost };
        engine.turn(Wire::Http).settle(&settlement).await.ok();
    }
    let look = Request { verb: Verb::Peek { cost: charged }, ..check("plain", b"k") };
    engine.turn(Wire::Http).explain(&look, None).await.unwrap();
    let expected = [("plain http allowed store", 1)];
    assert_eq!(counted(&engine), is(&expected));
    let operations: Vec<_> = engine.telemetry().counts.operations(Wire::Http).take(2).collect();
    assert_eq!(operations, [("peek", 2), ("refund", 1)]);
}

#[tokio::test]
async fn all_that_is_done_for_several_together_is_seen() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    let both = [check("mark", b"k"), check("plain", b"k")];
    let both = both.map(|check| check.with_patience(Patience::None));
    for _ in 0..2 {
        engine.turn(Wire::Http).decide_all(&both).await.expect("there are such policies");
    }
    // What would not pass is asked first.
    let expected = [
        ("plain http allowed store", 1),
        ("mark http allowed store", 1),
        ("mark http degraded store", 1),
    ];
    assert_eq!(counted(&engine), is(&expected));
    let operations: Vec<_> = engine.telemetry().counts.operations(Wire::Http).take(2).collect();
    assert_eq!(operations, [("peek", 4), ("refund", 0)]);
    // One cannot be asked, which peeking does not find out: the others get their permits back.
    let job = Verb::Acquire { cost: Cost::ONE, permit: sluicegate::PermitId(1) };
    let some = [check("plain", b"a"), Request::new("plain", Some(b"a"), job)];
    engine.turn(Wire::Http).decide_all(&some).await.expect_err("it hands out no permits");
    let operations: Vec<_> = engine.telemetry().counts.operations(Wire::Http).take(2).collect();
    assert_eq!(operations, [("peek", 5), ("refund", 1)]);
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_is_counted_as_that_and_its_wait_is_no_latency() {
    let held = "policies: [ { name: q, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ], \
                overflow: { queue: { max_wait: 2s } } } ]";
    let engine = ServerEngine::in_memory(set(held));
    for _ in 0..2 {
        let check = check("q", b"k").with_patience(Patience::Policy);
        engine.turn(Wire::Http).decide(&check).await.unwrap();
    }
    assert_eq!(counted(&engine), is(&[("q http allowed store", 1), ("q http held store", 1)]));
    assert!(engine.telemetry().counts.latency(Wire::Http).sum_seconds() < 0.5);
}

#[test]
fn rules_that_callers_bring_along_are_counted_together() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    let bucket = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
    let rules = Rules::new(RuleSet::single("theirs", bucket)).unwrap();
    for name in ["CL", "another"] {
        ask(&engine, Wire::Resp, &check(name, b"k").by(&rules));
    }
    assert_eq!(counted(&engine), is(&[("(caller) resp allowed store", 2)]));
}

#[test]
fn counts_stay_when_the_policies_change_and_no_thread_loses_any() {
    const EACH: u64 = 20_000;
    let telemetry =
        Telemetry::new(NonZeroU16::new(3).unwrap(), &set(POLICIES), false, KeyFormat::Hashed);
    let engine = ServerEngine::in_memory_seen_by(set(POLICIES), telemetry);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    ask(&engine, Wire::Http, &check("plain", b"k"));
                }
            });
        }
        for number in 0..50 {
            let more = format!(
                "policies: [ {{ name: plain, rules: [ {{ fixed_window: {{ limit: {}, window: 1d }} }} ] }}, \
                 {{ name: new{number}, rules: [ {{ fixed_window: {{ limit: 1, window: 1d }} }} ] }} ]",
                number + 2
            );
            engine.set_policies(set(&more));
        }
    });
    let plain = counted(&engine).into_iter().filter(|(name, _)| name.starts_with("plain http "));
    assert_eq!(plain.map(|(_, count)| count).sum::<u64>(), 4 * EACH);
    ask(&engine, Wire::Http, &check("new49", b"k"));
    assert_eq!(counted(&engine)["new49 http allowed store"], 1);
}

#[test]
fn further_policies_than_are_counted_alone_are_counted_together() {
    let counts = ServerCounters::new(
        NonZeroU16::MIN,
        [].into_iter(),
        Arc::new(KeyWriter::new(KeyFormat::Hashed)),
    );
    let names: Vec<_> = (0..POLICIES_COUNTED_MAX + 2).map(|number| format!("p{number}")).collect();
    counts.follow(names.iter().map(String::as_str));
    for name in &names {
        counts.decided(CountedDecision {
            wire: Wire::Http,
            subject: DecisionSource::Policy(name),
            fate: PermitResult::Allowed,
            mode: sluicegate::Mode::Store,
            refused_key: None,
        });
    }
    let decisions = counts.decisions();
    assert_eq!(decisions.len(), POLICIES_COUNTED_MAX + 1);
    assert_eq!((&*decisions[0].policy, decisions[0].count), ("(other)", 2));
}

#[test]
fn what_met_an_overload_is_none_of_what_a_limit_said() {
    let counts = ServerCounters::new(
        NonZeroU16::MIN,
        ["p"].into_iter(),
        Arc::new(KeyWriter::new(KeyFormat::Hashed)),
    );
    let (wire, subject) = (Wire::Http, DecisionSource::Policy("p"));
    for (fate, mode) in [
        (PermitResult::Refused, Mode::Store),
        (PermitResult::Refused, Mode::Deny),
        (PermitResult::Refused, Mode::Shed),
        (PermitResult::Shadowed, Mode::Shed),
        (PermitResult::Allowed, Mode::Local),
    ] {
        counts.decided(CountedDecision { wire, subject, fate, mode, refused_key: None });
    }
    let totals = counts.totals();
    let total = totals.iter().find(|total| &*total.policy == "p").expect("it is counted");
    let by_name: BTreeMap<_, _> = RESULTS.into_iter().zip(total.counts.0).collect();
    let expected = [("allowed", 1), ("refused", 2), ("without_store", 2), ("shed", 2)];
    assert_eq!(
        by_name.into_iter().filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>(),
        expected.into()
    );
    assert_eq!((total.counts.decided(), total.counts.over_the_limit()), (5, 2));
    // Metrics go on as they were.
    let shed: Vec<_> = counts.decisions().into_iter().filter(|of| of.mode == "shed").collect();
    assert_eq!(shed.iter().map(|of| of.result).collect::<Vec<_>>(), ["shadowed", "refused"]);
}

#[test]
fn one_decision_in_memory_in_64_is_timed_and_all_on_another_machine() {
    for (far, timed) in [(false, 10), (true, 640)] {
        let telemetry = Telemetry::new(NonZeroU16::MIN, &set(POLICIES), far, KeyFormat::Hashed);
        let engine = ServerEngine::in_memory_seen_by(set(POLICIES), telemetry);
        for _ in 0..640 {
            ask(&engine, Wire::Http, &check("plain", b"k"));
        }
        assert_eq!(engine.telemetry().counts.latency(Wire::Http).count(), timed);
    }
}

#[test]
fn refused_keys_are_listed_and_others_are_not() {
    let telemetry = Telemetry::new(NonZeroU16::MIN, &set(POLICIES), false, KeyFormat::Clear);
    let engine = ServerEngine::in_memory_seen_by(set(POLICIES), telemetry);
    for (key, times) in [("alice", 5), ("bob", 3), ("carol", 2)] {
        for _ in 0..times {
            ask(&engine, Wire::Http, &check("plain", key.as_bytes()));
        }
    }
    let top = serde_json::to_string(&engine.telemetry().top("plain", 10).unwrap()).unwrap();
    let expected = r#"[{"key":"alice","refused_at_least":3,"refused_at_most":3},{"key":"bob","refused_at_least":1,"refused_at_most":1}]"#;
    assert_eq!(top, expected);
    assert_eq!(engine.telemetry().top("nobody knows", 10), None);
}

#[tokio::test]
async fn what_is_granted_in_part_to_a_gateway_is_counted_as_over_the_limit() {
    let engine = ServerEngine::in_memory(set(POLICIES));
    let verb = Verb::AtMost { cost: Cost::new(5).expect("it is within the range") };
    for policy in ["plain", "mark"] {
        let request = Request::new(policy, Some(b"ann"), verb.clone());
        let request = request.with_patience(Patience::Gateway(Micros::SECOND));
        let admission = engine.turn(Wire::Rls).decide(&request).await;
        let admission = admission.expect("there is such a policy");
        assert!(admission.answer.decision.granted() > 0);
    }
    let counted = counted(&engine);
    assert_eq!(counted["plain rls refused store"], 1, "{counted:?}");
    assert_eq!(counted["mark rls degraded store"], 1, "{counted:?}");
}
