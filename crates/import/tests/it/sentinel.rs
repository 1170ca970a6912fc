//! Sentinel.

use serde_json::{Value, json};
use sluicegate_import::ImportSource::Sentinel;
use sluicegate_import::{Severity, import};

use crate::imported;

fn rules(rules: &Value) -> (Vec<Value>, Vec<String>) {
    let found = import(Sentinel, &rules.to_string()).unwrap();
    let notes = found.notes.iter().map(|note| note.finding.text().to_owned()).collect();
    (found.policies.into_iter().map(|policy| policy.document).collect(), notes)
}

#[test]
fn flow_rules_become_policies_by_resource() {
    let (policies, notes) = rules(&json!([
        { "resource": "GET:/orders", "count": 100.0, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } },
        { "resource": "GET:/orders", "count": 20, "controlBehavior": 2, "maxQueueingTimeMs": 500, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } },
        { "resource": "com.shop.Pay:charge", "count": 8, "grade": 0, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } },
        { "resource": "/slow", "count": 0.5, "controlBehavior": 2, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } },
        { "resource": "/warm", "count": 30, "controlBehavior": 1, "warmUpPeriodSec": 5, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } },
    ]));
    let expected = json!([
        { "name": "get-orders", "match": { "path": { "exact": "/orders" }, "method": ["GET"] }, "rules": [
            { "name": "flow-1", "sliding_window": { "limit": 100, "window": "1s", "buckets": 2 } },
            { "name": "flow-2", "leaky_bucket": { "rate": "20/s", "burst": 10 } },
        ] },
        { "name": "com.shop.pay-charge-threads",
          "rules": [{ "name": "flow-1", "concurrency": { "limit": 8, "ttl": "60s" } }] },
        { "name": "slow", "match": { "path": { "exact": "/slow" } },
          "rules": [{ "name": "flow-1", "leaky_bucket": { "rate": "1/2s", "burst": 0 } }] },
        { "name": "warm", "match": { "path": { "exact": "/warm" } },
          "rules": [{ "name": "flow-1", "smooth_warmup": { "rate": "30/s", "warmup": "5s" } }] },
    ]);
    assert_eq!(json!(policies), expected);
    let expected = [
        "[2] `com.shop.Pay:charge`: the policy has no `match`: it limits requests that name it",
        "[4] `/warm`: `smooth_warmup` spaces requests evenly; Sentinel lets those of a second come at once",
    ];
    assert_eq!(notes, expected);
}

fn codes(rules: &Value) -> Vec<(Option<u64>, &'static str, Severity)> {
    let text = serde_json::to_string_pretty(rules).unwrap();
    let found = import(Sentinel, &text).unwrap();
    found.notes.iter().map(|note| (note.line, note.finding.code(), note.severity)).collect()
}

#[test]
fn a_gateway_rule_counts_in_its_own_interval() {
    let cluster = json!({ "thresholdType": 1 });
    let rule = |more: &Value| {
        let mut rule = json!({ "resource": "/p", "count": 1000, "intervalSec": 60, "clusterMode": true, "clusterConfig": cluster });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let (policies, notes) = rules(&json!([
        rule(&json!({ "resourceMode": 0, "grade": 1, "burst": 0, "controlBehavior": 0 })),
        rule(&json!({ "controlBehavior": 2, "maxQueueingTimeoutMs": 6_000 })),
        rule(&json!({ "paramItem": { "parseStrategy": 2, "fieldName": "X-User" }, "burst": 5 })),
    ]));
    let rules_of = |place: usize| policies[place]["rules"].clone();
    let window = json!({ "limit": 1000, "window": "60s", "buckets": 2 });
    assert_eq!(rules_of(0)[0]["sliding_window"], window);
    assert_eq!(rules_of(0)[1]["leaky_bucket"], json!({ "rate": "1000/60s", "burst": 100 }));
    assert_eq!(
        (&rules_of(1)[0]["sliding_window"], &policies[1]["key"]),
        (&window, &json!(["header:x-user"]))
    );
    assert_eq!(notes, ["[2] `/p`: the policy does not admit the 5 of `burst` beside `count`"]);
}

#[test]
fn a_limit_of_each_instance_of_a_cluster_has_the_note_of_one_of_each_process() {
    let note = "it was a limit of each process; the policy holds for all of them together";
    let (policies, notes) = rules(&json!([
        { "resource": "/cl", "count": 50, "clusterMode": true, "clusterConfig": { "flowId": 1, "thresholdType": 0 } },
        { "resource": "/cl2", "count": 50, "clusterMode": true, "clusterConfig": { "flowId": 2, "thresholdType": 1 } },
    ]));
    assert_eq!(policies.len(), 2);
    assert_eq!(notes, [format!("[0] `/cl`: {note}")]);
}

#[test]
fn patterns_of_paths_become_matches_or_stop_an_import() {
    let matching = |resource: &str| {
        let rule = json!([{ "resource": resource, "count": 5, "clusterMode": true, "clusterConfig": { "thresholdType": 1 } }]);
        let (policies, _) = rules(&rule);
        let codes: Vec<_> =
            codes(&rule).into_iter().map(|(_, code, severity)| (code, severity)).collect();
        (policies[0]["match"].clone(), codes)
    };
    let prefix = |path: &str| json!({ "path": { "prefix": path } });
    let (below, unsaid) =
        (("sentinel_below", Severity::Differs), ("sentinel_pattern", Severity::Widens));
    assert_eq!(matching("/api/**"), (prefix("/api"), vec![]));
    assert_eq!(matching("/**"), (prefix("/"), vec![]));
    let get = json!({ "path": { "prefix": "/products/" }, "method": ["GET"] });
    assert_eq!(matching("GET:/products/{id}"), (get, vec![below]));
    assert_eq!(matching("/a/b/*/c"), (prefix("/a/b/"), vec![below]));
    assert_eq!(matching("/{tenant}/x"), (Value::Null, vec![unsaid]));
    assert_eq!(matching("/*"), (Value::Null, vec![unsaid]));
    let (policies, _) = rules(&json!([{ "resource": "/a.*", "regex": true, "count": 5 }]));
    assert_eq!(policies[0]["match"], Value::Null);
}

#[test]
fn rules_by_which_more_would_pass_stop_an_import_with_their_lines() {
    let found = codes(&json!([
        { "resource": "/a", "count": 5, "grade": 0 },
        { "resource": "/b" },
        { "resource": "/c", "count": 9, "timeWindow": 10 },
        { "resource": "/d", "count": 9, "paramItem": { "parseStrategy": 3, "fieldName": "q" } },
        { "resource": "/e", "count": 0 },
    ]));
    let wider: Vec<_> = found.iter().filter(|found| found.2 == Severity::Widens).collect();
    let expected = [
        (Some(2), "sentinel_threads"),
        (Some(7), "sentinel_missing"),
        (Some(10), "sentinel_kind"),
        (Some(15), "sentinel_parameter"),
        (Some(23), "sentinel_closed"),
    ];
    assert_eq!(wider.iter().map(|found| (found.0, found.1)).collect::<Vec<_>>(), expected);
    let (_, notes) = rules(&json!([{ "resource": "/b" }]));
    assert_eq!(notes, ["[0] `/b`: not imported: count: is missing"]);
}

#[test]
fn what_has_no_place_here_is_named() {
    let (policies, notes) = rules(&json!([
        { "resource": "a", "count": 0 },
        { "resource": "b", "count": 1, "strategy": 1 },
        { "resource": "c", "count": 1, "limitApp": "mobile", "colour": "red" },
        { "resource": "d", "count": "many" },
        { "count": 5 },
        7,
        { "resource": "e", "count": 1, "controlBehavior": 9 },
        { "resource": "f", "count": 1, "grade": -1 },
    ]));
    assert_eq!(policies.len(), 1, "{policies:?}");
    for part in [
        "[0] `a`: not imported: a `count` below 1",
        "[2] `c`: it was a limit of each process",
        "[1] `b`: not imported: `strategy`",
        "[2] `c`: `limitApp` is `mobile`",
        "[2] `c`: without a meaning here: colour",
        "[3] `d`: not imported: count: `\"many\"` is a text; expected a number, without quotes",
        "[4] ``: not imported: it has no `resource`",
        "[5] ``: not imported",
        "[6] `e`: not imported: `controlBehavior` 9",
        "[7] `f`: not imported: grade: `-1` is not a number that it can be",
    ] {
        assert!(notes.iter().any(|note| note.starts_with(part)), "{part} of {notes:#?}");
    }
}

#[test]
fn text_that_is_no_list_of_rules_is_an_error_with_its_line() {
    let wrong = import(Sentinel, "[\n{").unwrap_err();
    assert_eq!(wrong[0].line, Some(2));
    assert!(import(Sentinel, "{}").is_err());
    assert_eq!(imported(Sentinel, "[]"), (vec![], vec![]));
}
