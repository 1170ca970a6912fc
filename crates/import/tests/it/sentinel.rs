//! Sentinel.

use serde_json::{Value, json};
use sluicegate_import::ImportSource::Sentinel;
use sluicegate_import::import;

use crate::imported;

fn rules(rules: &Value) -> (Vec<Value>, Vec<String>) {
    let found = import(Sentinel, &rules.to_string()).unwrap();
    let notes = found.notes.iter().map(|note| note.finding.text().to_owned()).collect();
    (found.policies.into_iter().map(|policy| policy.document).collect(), notes)
}

#[test]
fn flow_rules_become_policies_by_resource() {
    let (policies, notes) = rules(&json!([
        { "resource": "GET:/orders", "count": 100.0, "clusterMode": true },
        { "resource": "GET:/orders", "count": 20, "controlBehavior": 2, "maxQueueingTimeMs": 500, "clusterMode": true },
        { "resource": "com.shop.Pay:charge", "count": 8, "grade": 0, "clusterMode": true },
        { "resource": "/slow", "count": 0.5, "controlBehavior": 2, "clusterMode": true },
        { "resource": "/warm", "count": 30, "controlBehavior": 1, "warmUpPeriodSec": 5, "clusterMode": true },
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
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn what_has_no_place_here_is_named() {
    let (policies, notes) = rules(&json!([
        { "resource": "a", "count": 0 },
        { "resource": "b", "count": 1, "strategy": 1 },
        { "resource": "c", "count": 1, "limitApp": "mobile", "colour": "red", "clusterMode": true },
        { "resource": "d", "count": "many" },
        { "count": 5 },
        7,
        { "resource": "e", "count": 1, "controlBehavior": 9 },
        { "resource": "f", "count": 1, "grade": -1 },
    ]));
    assert_eq!(policies.len(), 1, "{policies:?}");
    for part in [
        "[0] `a`: not imported: a `count` below 1",
        "[0] `a`: it was a limit of each process",
        "[1] `b`: not imported: `strategy`",
        "[2] `c`: `limitApp` is `mobile`",
        "[2] `c`: without a meaning here: colour",
        "[3] `d`: not imported: `count`",
        "[4] ``: not imported: it has no `resource`",
        "[5] ``: not imported",
        "[6] `e`: not imported: `controlBehavior` 9",
        "[7] `f`: not imported: `grade` is not a number that it can be",
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
