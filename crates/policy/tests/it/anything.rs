//! Any text is read or refused as a document: nothing panics, nothing hangs, and what is read is what the schema
//! describes.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_policy::{Document, Policy, PolicySet, schema};

const EXAMPLE: &str = include_str!("../example.yaml");

fn read(text: &str) {
    if let Ok(document) = Document::parse(text) {
        let set = PolicySet::new(document);
        assert!(set.policies().iter().all(|policy| set.resolve(policy.name()).is_some()));
    } else if let Err(errors) = Document::parse(text) {
        assert!(!errors.errors().is_empty());
        let lines = errors.errors().len() + usize::from(errors.omitted() > 0);
        assert_eq!(errors.to_string().lines().count(), lines, "one error a line");
    }
    let _ = Policy::parse_one(text);
}

/// A document with every field that exists.
fn full() -> Value {
    json!({ "policies": [
        {
            "name": "a",
            "apps": ["x", "y"],
            "rules": [
                { "name": "1", "token_bucket": { "rate": "5/200ms", "burst": 9, "initial": 0, "refill": "interval" } },
                { "name": "2", "smooth_bursty": { "rate": "1/s", "max_burst": "2s" } },
                { "name": "3", "smooth_warmup": { "rate": "1/s", "warmup": "3m", "cold_factor": 2.5 } },
                { "name": "4", "leaky_bucket": { "rate": "64KiB/s", "burst": 3, "delay": 2 } },
                { "name": "5", "fixed_window": { "limit": 1, "calendar": "month", "time_zone": "Asia/Tokyo" } },
                { "name": "6", "sliding_window": { "limit": 1, "window": "1h", "buckets": 60 } },
                { "name": "7", "sliding_counter": { "limit": 1, "window": "1d" } },
                { "name": "8", "sliding_log": { "limit": 1, "window": "1us" } },
            ],
            "overflow": { "degrade": { "response": { "status": 503, "body": "", "headers": { "a": "b" } } } },
            "on_store_failure": "deny",
            "on_key_quota": "deny",
            "leases": "auto",
            "match": { "path": { "exact": "/a" }, "method": ["GET", "POST"] },
            "key": ["remote_ip", "header:X-Tenant"],
            "overrides": [{ "key": "é", "rules": [{ "fixed_window": { "limit": 1, "window": "1s", "align": "first" } }] }],
            "carry": "proportional",
        },
        { "name": "b", "rules": [{ "concurrency": { "limit": 5, "ttl": "1m", "queue": 0 } }], "overflow": { "degrade": { "tag": "later" } } },
        { "name": "c", "rules": [{ "leaky_bucket": { "rate": "1/s", "delay": "none" } }], "overflow": { "divert": { "target": "b" } } },
        { "name": "e", "rules": [{ "token_bucket": { "rate": "1/s" } }], "overflow": { "queue": { "max_wait": "1s" } } },
        { "name": "d", "rules": [{ "token_bucket": { "rate": "1/s" } }], "overflow": "shadow", "leases": { "max_share": "10%", "term": "1s" }, "match": { "path": { "prefix": "/" } } },
        { "name": "f", "rules": [{ "token_bucket": { "rate": "1/s" } }], "match": [
            { "host": ["a.b", "*.c"], "path": { "starts_with": "/" } },
            { "except": [{ "host": ["d"] }, { "path": { "exact": "/x" }, "method": ["GET"] }] },
        ] },
    ]})
}

/// Replaces the value number `place`, counted in the order they are written, with `new`.
fn replace(value: &mut Value, place: &mut usize, new: &Value) {
    if *place == 0 {
        *value = new.clone();
    }
    *place = place.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place, new)),
        Value::Object(entries) => entries.values_mut().for_each(|item| replace(item, place, new)),
        _ => {}
    }
}

fn values() -> impl Strategy<Value = Value> {
    let known = [
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(2.5),
        json!(1e300),
        json!(u64::MAX),
        json!(4_294_967_296_u64),
        json!(""),
        json!("a"),
        json!("A"),
        json!("1/s"),
        json!("250ms"),
        json!("reject"),
        json!("shadow"),
        json!("all"),
        json!("local"),
        json!("off"),
        json!("50%"),
        json!("051%"),
        json!({ "max_share": "1%" }),
        json!("/a?"),
        json!("UTC"),
        json!("GET"),
        json!("path"),
        json!([]),
        json!({}),
        json!(["a"]),
        json!(["a", "a"]),
        json!({ "tag": "a" }),
        json!({ "token_bucket": { "rate": "1/s" } }),
        json!([{ "token_bucket": { "rate": "1/s" } }]),
        json!({ "queue": { "max_wait": "1s" } }),
    ];
    prop_oneof![proptest::sample::select(known.to_vec()), ".{0,9}".prop_map(Value::from)]
}

#[test]
fn the_schema_accepts_what_is_accepted_and_refuses_some_that_is_not() {
    let schema = jsonschema::draft202012::new(&schema::document()).unwrap();
    assert_eq!(Document::parse(&full().to_string()).map(|_| ()), Ok(()));
    assert!(schema.is_valid(&full()));
    let example: Value = serde_saphyr::from_str(EXAMPLE).unwrap();
    assert!(schema.is_valid(&example));
    for refused in [
        json!({}),
        json!({ "policies": [], "more": 1 }),
        json!({ "policies": [{ "name": "a" }] }),
        json!({ "policies": [{ "name": "A", "rules": [{ "token_bucket": { "rate": "1/s" } }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "gcar": {} }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": {} }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/fortnight" } }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s", "burst": 0 } }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s" }, "sliding_log": { "limit": 1, "window": "1s" } }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s" } }], "overflow": "queue" }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s" } }], "leases": "on" }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "concurrency": { "limit": 1, "ttl": "1s", "queue": 10001 } }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "concurrency": { "limit": 1, "ttl": "1s" } }], "match": { "method": ["GET"] } }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s" } }], "match": { "method": ["GET"] },
            "overrides": [{ "key": "k", "rules": [{ "concurrency": { "limit": 1, "ttl": "1s" } }] }] }] }),
        json!({ "policies": [{ "name": "a", "rules": [{ "token_bucket": { "rate": "1/s" } }], "leases": { "max_share": "51%" } }] }),
    ] {
        assert!(!schema.is_valid(&refused), "{refused}");
        assert!(Document::parse(&refused.to_string()).is_err(), "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), json in "[\\[\\]{}:,\"\\\\a0-9.eEu-]{0,40}") {
        read(&text);
        read(&json);
    }

    #[test]
    fn any_cut_of_a_document_is_read_or_refused(from in 0..900_usize, len in 0..900_usize, new in ".{0,5}") {
        let chars: Vec<char> = EXAMPLE.chars().collect();
        let before = chars.iter().take(from);
        let after = chars.iter().skip(from + len % 40);
        read(&before.copied().chain(new.chars()).chain(after.copied()).collect::<String>());
    }

    #[test]
    fn what_is_accepted_is_what_the_schema_describes(
        edits in prop::collection::vec((0..145_usize, values()), 1..4),
    ) {
        let mut document = full();
        for (mut place, value) in edits {
            replace(&mut document, &mut place, &value);
        }
        let text = document.to_string();
        read(&text);
        if Document::parse(&text).is_ok() {
            SCHEMA.with(|schema| assert!(schema.is_valid(&document), "{text}"));
        }
    }
}

thread_local! {
    static SCHEMA: jsonschema::Validator =
        jsonschema::draft202012::new(&schema::document()).expect("the schema is a schema");
}
