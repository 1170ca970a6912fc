//! `example.yaml` parses and compiles to exactly its contents.

use std::sync::Arc;

use sluicegate_kernel::{Micros, Rate, Rule, SlidingWindow, TokenBucket};
use sluicegate_policy::policy::Rules;
use sluicegate_policy::{
    Attributes, Document, KeyAttribute, LeaseBounds, Leases, OnStoreFailure, Overflow, PathMatch,
    Policy, PolicySet,
};

const EXAMPLE: &str = include_str!("../example.yaml");

fn names(rules: &Rules) -> Vec<&str> {
    rules.set().rules().iter().map(|named| &*named.name).collect()
}

fn bucket(per_second: u64, burst: u64) -> Rule {
    let rate = Rate::per_second(per_second).expect("tests use rates in range");
    TokenBucket::new(rate, burst).expect("tests use bursts in range").into()
}

fn set(text: &str) -> PolicySet {
    PolicySet::new(Document::parse(text).expect("tests compile documents that are right"))
}

/// A policy of `rule`, in a document of one.
fn one(name: &str, rule: &str) -> String {
    format!("policies: [ {{ name: {name}, rules: [ {rule} ] }} ]")
}

#[test]
fn the_example_of_the_design_says_what_it_says() {
    let policies = set(EXAMPLE);
    let policy = policies.resolve("orders.create").unwrap();
    assert_eq!(policy.apps().unwrap().collect::<Vec<_>>(), ["admin", "checkout"]);
    assert!(policy.admits(Some("checkout")) && policy.admits(Some("admin")));
    assert!(!policy.admits(Some("check")) && !policy.admits(Some("")) && !policy.admits(None));

    let rules = policy.rules_at(b"203.0.113.8", Micros::ZERO).rules;
    assert_eq!(names(rules), ["burst", "hourly"]);
    let hourly = SlidingWindow::new(5_000, Micros::from_secs(3_600), 60).unwrap();
    assert_eq!(rules.set().rules()[0].rule, bucket(100, 200));
    assert_eq!(rules.set().rules()[1].rule, hourly.into());
    let overridden = policy.rules_at(b"203.0.113.7", Micros::ZERO).rules;
    assert_eq!(names(overridden), ["burst"]);
    assert_eq!(overridden.set().rules()[0].rule, bucket(1_000, 2_000));
    assert_eq!(policy.overrides().count(), 1);

    assert_eq!(*policy.overflow(), Overflow::Queue { max_wait: Micros::from_millis(500) });
    assert_eq!(policy.on_store_failure(), OnStoreFailure::Local);
    assert_eq!((policy.leases(), policy.lease_bounds()), (Leases::Auto, None));
    let [case] = policy.matcher().unwrap().cases() else { panic!("{policy:?}") };
    assert_eq!(case.conditions().path(), Some(&PathMatch::Prefix("/orders".into())));
    assert_eq!(case.conditions().methods().collect::<Vec<_>>(), ["POST"]);
    assert_eq!(policy.key(), [KeyAttribute::RemoteIp]);
}

#[test]
fn yaml_and_json_say_the_same() {
    let json = r#" {"policies": [{"name": "a", "rules": [{"token_bucket": {"rate": "10/s"}}],
        "overflow": {"degrade": {"response": {"status": 503, "body": "later",
        "headers": {"X-Reason": "busy"}}}}, "carry": "reset"}]}"#;
    let yaml = "
policies:
  - name: a
    rules: [ token_bucket: { rate: 10/s } ]
    overflow: { degrade: { response: { status: 503, body: later, headers: { x-reason: busy } } } }
    carry: reset
";
    assert_eq!(Document::parse(json), Document::parse(yaml));
    assert!(Document::parse(json).is_ok());
}

#[test]
fn leases_have_the_bounds_that_the_document_sets() {
    let policy = |fields: &str| {
        let text = format!("{{ name: a, rules: [ token_bucket: {{ rate: 1/s }} ], {fields} }}");
        let policy = Policy::parse_one(&text).unwrap();
        (policy.leases(), policy.lease_bounds())
    };
    let bounds = |share_percent, ms| LeaseBounds { share_percent, term: Micros::from_millis(ms) };
    let within = |bounds| (Leases::Within(bounds), Some(bounds));
    let default = bounds(5, 2_000);
    assert_eq!(LeaseBounds::default(), default);
    assert_eq!(policy(""), (Leases::Auto, Some(default)));
    assert_eq!(policy("leases: auto"), (Leases::Auto, Some(default)));
    assert_eq!(policy("leases: off"), (Leases::Off, None));
    assert_eq!(policy("leases: {}"), within(default));
    assert_eq!(policy("leases: { max_share: 50% }"), within(bounds(50, 2_000)));
    assert_eq!(policy("leases: { max_share: 1%, term: 100ms }"), within(bounds(1, 100)));
    let queue = "overflow: { queue: { max_wait: 1s } }";
    assert_eq!(policy(queue), (Leases::Auto, None));
}

#[test]
fn a_policy_of_its_own_is_that_of_a_document() {
    let text = r#"{"name": "a", "rules": [{"token_bucket": {"rate": "10/s"}}]}"#;
    let whole = Document::parse(&format!("{{\"policies\": [{text}]}}")).unwrap();
    assert_eq!(Policy::parse_one(text).as_ref(), Ok(&whole.policies()[0]));
    let errors = Policy::parse_one(r#"{"name": "a", "rules": [{"token_bucket": {}}]}"#);
    let message = "rules[0].token_bucket.rate: is missing, expected a rate such as `100/s`";
    assert_eq!(errors.unwrap_err().to_string(), message);
}

#[test]
fn the_only_rule_may_be_named_after_its_algorithm() {
    let policies = set(&one("a", "token_bucket: { rate: 10/s }"));
    assert_eq!(names(policies.resolve("a").unwrap().rules()), ["token_bucket"]);
}

#[test]
fn a_request_belongs_to_the_first_policy_that_matches_it() {
    let policy = |name: &str, by: &str| {
        format!("\n  - {{ name: {name}, rules: [ token_bucket: {{ rate: 1/s }} ]{by} }}")
    };
    let text = String::from("policies:")
        + &policy("named", "")
        + &policy("writes", ", match: { path: { prefix: /a }, method: [POST, PUT] }")
        + &policy("exact", ", match: { path: { exact: /a/b } }")
        + &policy("below", ", match: { path: { prefix: /a } }")
        + &policy("deletes", ", match: { method: [DELETE] }");
    let policies = set(&text);
    let check = |method, path, expected: Option<&str>| {
        let request = Attributes { method, path, ..Attributes::default() };
        let found = policies.matching(&request).next();
        assert_eq!(found.map(|policy| policy.name()), expected, "{method:?} {path:?}");
    };
    check(Some("POST"), Some("/a/b"), Some("writes"));
    check(Some("GET"), Some("/a/b?c"), Some("exact"));
    check(Some("GET"), Some("/a/b/c"), Some("below"));
    check(None, Some("/a"), Some("below"));
    check(Some("DELETE"), None, Some("deletes"));
    check(Some("GET"), Some("/ab"), None);
    // Gateways ask all that match.
    let request = Attributes { method: Some("POST"), path: Some("/a/b"), ..Attributes::default() };
    let all: Vec<_> = policies.matching(&request).map(|policy| policy.name()).collect();
    assert_eq!(all, ["writes", "exact", "below"]);
}

#[test]
fn changing_one_policy_leaves_the_others_the_very_same() {
    let text = "policies:
  - { name: a, rules: [ token_bucket: { rate: 1/s } ] }
  - { name: b, rules: [ token_bucket: { rate: 1/s } ], match: { path: { prefix: / } } }";
    let old = set(text);
    let changed = Policy::parse_one("{ name: b, rules: [ token_bucket: { rate: 2/s } ] }");
    let new = old.with(changed.unwrap()).unwrap();
    let same = |name: &str| Arc::ptr_eq(old.resolve(name).unwrap(), new.resolve(name).unwrap());
    assert!(same("a") && !same("b"));
    assert_eq!(new.policies().iter().map(|p| p.name()).collect::<Vec<_>>(), ["a", "b"]);
    let request = Attributes { path: Some("/"), ..Attributes::default() };
    let matching = |policies: &PolicySet| policies.matching(&request).count();
    assert_eq!((matching(&old), matching(&new)), (1, 0));

    let added = Policy::parse_one("{ name: c, rules: [ token_bucket: { rate: 2/s } ] }").unwrap();
    assert_eq!(new.with(added).unwrap().len(), 3);
    assert_eq!(new.len(), 2);
}

#[test]
fn a_new_document_keeps_the_arcs_of_what_did_not_change() {
    let text = |apps: &str, rate: u64| {
        format!(
            "policies:
  - {{ name: same, rules: [ token_bucket: {{ rate: 1/s }} ] }}
  - name: changed
    apps: [{apps}]
    rules: [ token_bucket: {{ rate: 5/s }} ]
    overrides:
      - {{ key: kept, rules: [ token_bucket: {{ rate: 1/s }} ] }}
      - {{ key: other, rules: [ token_bucket: {{ rate: {rate}/s }} ] }}"
        )
    };
    let old = set(&text("x", 1));
    let new = PolicySet::succeeding(&old, Document::parse(&text("y", 2)).unwrap());
    assert!(Arc::ptr_eq(old.resolve("same").unwrap(), new.resolve("same").unwrap()));
    let (old, new) = (old.resolve("changed").unwrap(), new.resolve("changed").unwrap());
    assert!(new.admits(Some("y")) && !new.admits(Some("x")));
    let set = |policy: &Policy, key: &[u8], now| Arc::clone(policy.rules_at(key, now).rules.set());
    let same = |key: &[u8]| Arc::ptr_eq(&set(old, key, Micros::ZERO), &set(new, key, Micros::ZERO));
    assert!(same(b"") && same(b"kept") && !same(b"other"));
}

#[test]
fn an_override_ends_and_then_the_rules_of_the_policy_hold_since_that_instant() {
    let text = |rate: u64| {
        format!(
            "policies: [ {{ name: p, rules: [ token_bucket: {{ rate: {rate}/s }} ], overrides: [
               {{ key: vip, until: 2026-11-24T18:00:00Z, rules: [ token_bucket: {{ rate: 50/s }} ] }} ] }} ]"
        )
    };
    let (began, end) = (Micros::from_secs(1_790_000_000), Micros::from_secs(1_795_543_200));
    let policies = set(&text(1)).in_force(&PolicySet::default(), began);
    let policy = policies.resolve("p").unwrap();
    let at = |key: &[u8], now| policy.rules_at(key, now);
    let (before, after) = (at(b"vip", end.since(Micros::new(1))), at(b"vip", end));
    assert_eq!(before.rules.set().rules()[0].rule, bucket(50, 50));
    assert_eq!((before.since, before.is_override), (began, true));
    assert_eq!(after.rules, policy.rules());
    assert_eq!((after.since, after.is_override), (end, false));
    assert!(
        !Arc::ptr_eq(after.rules.set(), policy.rules().set()),
        "stores know one instant for each"
    );
    assert_eq!(at(b"other", end).since, began);
    assert_eq!(policy.overrides().next().unwrap().1.until(), Some(end));

    // A version that came later is later than the end as well.
    let next = PolicySet::succeeding(&policies, Document::parse(&text(1)).unwrap());
    assert!(Arc::ptr_eq(next.resolve("p").unwrap(), policy));
    let next = PolicySet::succeeding(&policies, Document::parse(&text(2)).unwrap());
    let later = end.plus(Micros::from_secs(60));
    let next = next.in_force(&policies, later);
    let next = next.resolve("p").unwrap();
    assert_eq!(next.rules_at(b"vip", later).since, later);
    let kept =
        |now| Arc::ptr_eq(next.rules_at(b"vip", now).rules.set(), at(b"vip", now).rules.set());
    assert!(kept(began) && !kept(end));
}

#[test]
fn a_policy_of_a_catalog_is_its_owners_unless_it_names_others() {
    let policy = |apps: &str| {
        let text = format!("{{ name: p, {apps} rules: [ token_bucket: {{ rate: 1/s }} ] }}");
        Policy::parse_one(&text).unwrap()
    };
    let may = |policy: &Policy, app| [policy.admits(app), policy.entrusts(app), policy.guards(app)];
    let (all, none, use_only) = ([true; 3], [false; 3], [true, false, false]);
    let named = [true, true, false];
    for (apps, owner, bank, other, nobody) in [
        ("", all, none, none, none),
        ("apps: [bank],", none, named, none, none),
        ("apps: [shop, bank],", all, named, none, none),
        ("apps: ['*'],", all, use_only, use_only, use_only),
        ("apps: [bank, '*'],", all, named, use_only, use_only),
    ] {
        let owned = policy(apps).of_app("shop");
        for (app, expected) in
            [(Some("shop"), owner), (Some("bank"), bank), (Some("x"), other), (None, nobody)]
        {
            assert_eq!(may(&owned, app), expected, "{apps} {app:?}");
        }
        assert_eq!(owned.owner(), Some("shop"));
    }
    // A policy of a file has no owner: without `apps` it is for all.
    for apps in ["", "apps: ['*'],"] {
        for app in [Some("shop"), None] {
            assert_eq!(may(&policy(apps), app), all, "{apps} {app:?}");
        }
    }
}

#[test]
fn ten_thousand_policies_are_found_by_name() {
    let policy = |n: usize| format!("- {{name: p{n}, rules: [token_bucket: {{rate: 1/s}}]}}\n");
    let text = String::from("policies:\n") + &(0..10_000).map(policy).collect::<String>();
    let policies = set(&text);
    for n in 0..10_000 {
        let name = format!("p{n}");
        assert_eq!(policies.resolve(&name).unwrap().name(), name);
    }
    assert!(policies.resolve("p10000").is_none() && policies.resolve("").is_none());
    let one_more = Policy::parse_one("{name: q, rules: [token_bucket: {rate: 1/s}]}").unwrap();
    let error = policies.with(one_more).unwrap_err();
    assert_eq!(error.to_string(), "policies: expected at most 10000 policies");
}

#[test]
fn rules_on_their_own_are_read_as_those_of_a_policy() {
    let rules = Rules::parse(r#"[{"token_bucket":{"rate":"5/s","burst":10}}]"#).unwrap();
    assert_eq!(names(&rules), ["token_bucket"]);
    assert_eq!(rules.set().rules()[0].rule, bucket(5, 10));
    for (text, expected) in [
        ("[]", "rules: expected 1 to 8 rules, found 0"),
        // It is JSON alone.
        ("- token_bucket: { rate: 1/s }", "rules: invalid number at line 1 column 2"),
        (r#"[{"token_bucket":{"rate":"x"}}]"#, "rules[0].token_bucket.rate: invalid rate `x`"),
    ] {
        let errors = Rules::parse(text).unwrap_err().to_string();
        assert!(errors.starts_with(expected), "{errors}");
    }
}
