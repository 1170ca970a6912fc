//! Records of policies, and the compiled form of their rules.

use std::iter;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate::Micros;
use sluicegate::internals::record_of;
use sluicegate_policy::Policy;
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::PublicationPolicy;
use sluicegate_store::redis::codec::RulesBlob;

use super::asks::POLICIES;
use super::{hex, is_fresh};

/// Number of random policies beside those that are written here.
const RANDOM: usize = 400;

/// The instant at which they were taken over.
const SINCE: Micros = Micros::from_secs(1_767_225_660);

/// Edges of the numbers.
const RULES: [&str; 41] = [
    r#"{"token_bucket":{"rate":"10/s","burst":20}}"#,
    r#"{"token_bucket":{"rate":"1/s"}}"#,
    r#"{"token_bucket":{"rate":"7/60s","burst":21,"initial":0}}"#,
    r#"{"token_bucket":{"rate":"7/m","burst":21,"initial":21}}"#,
    r#"{"token_bucket":{"rate":"100/m","burst":100,"refill":"interval"}}"#,
    r#"{"token_bucket":{"rate":"6/4s","burst":5,"refill":"interval","initial":2}}"#,
    r#"{"token_bucket":{"rate":"1/366d","burst":2147483648}}"#,
    r#"{"token_bucket":{"rate":"1/7d","burst":1000000000}}"#,
    r#"{"token_bucket":{"rate":"4294967296/s","burst":1}}"#,
    r#"{"token_bucket":{"rate":"3/7ms","burst":9}}"#,
    r#"{"token_bucket":{"rate":"1/999983us","burst":2147483648}}"#,
    r#"{"token_bucket":{"rate":"1/31622399999999us","burst":2147483647}}"#,
    r#"{"token_bucket":{"rate":"10MiB/s","burst":20971520}}"#,
    r#"{"leaky_bucket":{"rate":"10/s","burst":20}}"#,
    r#"{"leaky_bucket":{"rate":"10/s","burst":0}}"#,
    r#"{"leaky_bucket":{"rate":"10/s","burst":20,"delay":"none"}}"#,
    r#"{"leaky_bucket":{"rate":"10/s","burst":20,"delay":5}}"#,
    r#"{"leaky_bucket":{"rate":"30/m","burst":2147483646,"delay":7}}"#,
    r#"{"smooth_bursty":{"rate":"10/s"}}"#,
    r#"{"smooth_bursty":{"rate":"7/3s","max_burst":"10s"}}"#,
    r#"{"smooth_bursty":{"rate":"1/366d","max_burst":"1us"}}"#,
    r#"{"smooth_bursty":{"rate":"4294967296/s","max_burst":"366d"}}"#,
    r#"{"smooth_warmup":{"rate":"5/s","warmup":"3s"}}"#,
    r#"{"smooth_warmup":{"rate":"7/3s","warmup":"10s","cold_factor":2.5}}"#,
    r#"{"smooth_warmup":{"rate":"1000/s","warmup":"1ms","cold_factor":10}}"#,
    r#"{"fixed_window":{"limit":10,"window":"1m"}}"#,
    r#"{"fixed_window":{"limit":10,"window":"1m","align":"first"}}"#,
    r#"{"fixed_window":{"limit":2147483648,"window":"366d"}}"#,
    r#"{"fixed_window":{"limit":1,"window":"1us"}}"#,
    r#"{"fixed_window":{"limit":5,"calendar":"day"}}"#,
    r#"{"fixed_window":{"limit":5,"calendar":"week","time_zone":"Europe/Berlin"}}"#,
    r#"{"fixed_window":{"limit":5,"calendar":"month","time_zone":"europe/berlin"}}"#,
    r#"{"fixed_window":{"limit":5,"calendar":"year","time_zone":"America/St_Johns"}}"#,
    r#"{"sliding_window":{"limit":100,"window":"1h"}}"#,
    r#"{"sliding_window":{"limit":100,"window":"1s","buckets":7}}"#,
    r#"{"sliding_window":{"limit":3,"window":"10us","buckets":3}}"#,
    r#"{"sliding_counter":{"limit":100,"window":"10s"}}"#,
    r#"{"sliding_counter":{"limit":2147483648,"window":"366d"}}"#,
    r#"{"sliding_counter":{"limit":1000003,"window":"7d"}}"#,
    r#"{"sliding_log":{"limit":20,"window":"1m"}}"#,
    r#"{"concurrency":{"limit":5,"ttl":"30s"}}"#,
];

/// Members beside the rules.
const MORE: [&str; 12] = [
    r#""overflow":"shadow""#,
    r#""overflow":{"queue":{"max_wait":"250ms"}}"#,
    r#""overflow":{"degrade":{"tag":"lite"}}"#,
    r#""overflow":{"degrade":{"response":{"status":503,"body":"später","headers":{"Content-Type":"text/plain","X-Lite":"1"}}}}"#,
    r#""overflow":{"degrade":{"response":{"status":429,"body":""}}}"#,
    r#""overflow":{"divert":{"target":"https://spare.example/"}}"#,
    r#""on_store_failure":"allow","apps":["shop","bank"]"#,
    r#""on_store_failure":"deny","apps":["*"]"#,
    r#""apps":["*","bank"]"#,
    r#""key":["remote_ip","path","header:X-Api-Key"]"#,
    r#""match":{"path":{"prefix":"/a/"}},"on_key_quota":"deny""#,
    r#""on_overload":{"wait":"1s"},"leases":"off""#,
];

#[test]
fn records_have_the_rules_and_all_that_is_decided_by() {
    let mut documents: Vec<String> = POLICIES.map(String::from).to_vec();
    for (place, rule) in RULES.iter().enumerate() {
        documents.push(format!(r#"{{"name":"edge-{place}","rules":[{rule}]}}"#));
    }
    for (more, place) in [r#""carry":"proportional""#, r#""carry":"reset""#].iter().zip(0..) {
        let rule = RULES[0];
        documents.push(format!(r#"{{"name":"carry-{place}","rules":[{rule}],{more}}}"#));
    }
    for (place, more) in MORE.iter().enumerate() {
        let rule = RULES[25];
        documents.push(format!(r#"{{"name":"more-{place}","rules":[{rule}],{more}}}"#));
    }
    let (one, other) = (RULES[0], RULES[25]);
    documents.push(format!(
        r#"{{"name":"overrides","rules":[{one}],"overrides":[{{"key":"vip","rules":[{other}]}},{{"key":"ü","rules":[{one}]}}]}}"#
    ));
    documents.push(format!(
        r#"{{"name":"boost","rules":[{one}],"overrides":[{{"key":"vip","until":"2026-12-31T18:00:00Z","rules":[{other}]}},{{"key":"ü","until":"2099-12-31T23:59:59Z","rules":[{one}]}},{{"key":"always","rules":[{other}]}}]}}"#
    ));
    let mut rng = Rng::with_seed(13);
    documents.extend((0..RANDOM).map(|number| random(&mut rng, number)));
    let mut entries: Vec<_> = documents.iter().map(|text| right(text)).collect();
    entries.extend(unreadable());
    is_fresh(
        "records",
        "Records as they are published (record.md), and the blob of the rules that a program took over at \
         `since_us`. Or a `record` that a program does not read: `later`, of a later version, by which nothing is \
         decided, or else damaged, which changes nothing.",
        &entries,
    );
}

#[test]
fn limits_that_callers_bring_along_are_the_same_bytes() {
    let mut entries = Vec::new();
    for rule in RULES.iter().filter(|rule| !rule.contains("calendar")) {
        let named = rule.replacen('{', "{\"name\":\"limit\",", 1);
        for rules in [
            named.clone(),
            (*rule).to_owned(),
            format!("{named},{{\"name\":\"x\",{}", &RULES[0][1..]),
        ] {
            for carry in ["usage", "reset"] {
                let text = format!(r#"{{"name":"p","rules":[{rules}],"carry":"{carry}"}}"#);
                let policy =
                    Policy::parse_one(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                let blob = RulesBlob::new(policy.rules().set(), RuleOrigin::Caller);
                let document: Value = serde_json::from_str(&text).expect("it is JSON");
                entries.push(json!({ "document": document, "blob_hex": hex(blob.as_bytes()), "head_hex": hex(blob.head()) }));
            }
        }
    }
    is_fresh(
        "limits",
        "The blob of rules that a caller brings along, and the head with which states under them begin: \
         redis.md, Limits that callers bring along.",
        &entries,
    );
}

/// Returns the text that servers publish of the policy `document`, version 3 of app `shop`, taken over at `since`.
pub(super) fn published(document: &str, since: Micros) -> String {
    let compile = |policy: &PublicationPolicy<'_>| {
        let read = Policy::parse_one(policy.document);
        Some(record_of(&read.unwrap_or_else(|error| panic!("{}: {error}", policy.document))))
    };
    let (name, app, since_ms) =
        ("", "shop", Some(i64::try_from(since.get() / 1_000).expect("in this era")));
    let policy = PublicationPolicy { name, app, is_shadow: false, version: 3, since_ms, document };
    policy.field(compile).expect("it is a JSON object")
}

fn right(text: &str) -> Value {
    let policy = Policy::parse_one(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let blob = RulesBlob::new(policy.rules().set(), RuleOrigin::Policy { since: SINCE });
    json!({
        "name": policy.name(), "record": published(text, SINCE), "since_us": SINCE.get(),
        "blob_hex": hex(blob.as_bytes()),
        "generation": blob.stamp().expect("a policy's").generation().to_string(),
    })
}

/// A record whose copies are damaged.
struct Spoilt(Value);

impl Spoilt {
    fn new() -> Self {
        let text = published(
            r#"{"name":"p","rules":[{"name":"r","fixed_window":{"limit":10,"window":"1m"}}],"overrides":[{"key":"vip","rules":[{"fixed_window":{"limit":5,"calendar":"day"}}]}]}"#,
            SINCE,
        );
        Self(serde_json::from_str(&text).expect("it is JSON"))
    }

    /// Returns a copy with another value at a place.
    fn with(&self, place: &str, value: Value) -> String {
        let mut record = self.0.clone();
        *record.pointer_mut(place).unwrap_or_else(|| panic!("{place} is not there")) = value;
        record.to_string()
    }

    /// Returns a copy whose first override has one more member.
    fn with_override(&self, name: &str, value: Value) -> String {
        let mut record = self.0.clone();
        record["overrides"][0][name] = value;
        record.to_string()
    }

    /// Returns a copy without a member.
    fn without(&self, name: &str) -> String {
        let mut record = self.0.clone();
        record.as_object_mut().expect("it is an object").remove(name).expect("it has it");
        record.to_string()
    }

    /// Returns a copy with other bytes in its rules: 0 is their format, 1 the kind of carry, 2 their number; then of
    /// the first one: 3 its code, 4 the count of its numbers, 5 its flags, 6 the hash of its name, 14 its limit.
    fn blob(&self, at: usize, bytes: &[u8]) -> String {
        let text = self.0["blob"].as_str().expect("a text");
        let mut rules = URL_SAFE_NO_PAD.decode(text).expect("base64");
        rules[at..at + bytes.len()].copy_from_slice(bytes);
        self.with("/blob", json!(URL_SAFE_NO_PAD.encode(rules)))
    }
}

/// Texts that are not records of this version.
fn unreadable() -> Vec<Value> {
    let it = Spoilt::new();
    let entry = |later| move |text| json!({ "name": "p", "record": text, "later": later });
    later(&it)
        .into_iter()
        .map(entry(true))
        .chain(damaged(&it).into_iter().map(entry(false)))
        .chain(costly().into_iter().map(entry(false)))
        .collect()
}

/// Records of a later version.
fn later(it: &Spoilt) -> Vec<String> {
    vec![
        it.with("/record", json!(2)),
        it.with("/on_store_failure", json!("ask")),
        it.with("/overflow", json!({ "kind": "slow" })),
        it.with("/overflow", json!({ "kind": "degrade", "page": 7 })),
        it.with("/overrides/0/each/0/calendar/unit", json!("decade")),
        it.with("/overrides/0/each/0/calendar/zone", json!("Mars/Base")),
        it.blob(0, &[9]),
        it.blob(1, &[3]),
        it.blob(3, &[10]),
    ]
}

/// Records of rules of which one decision could take Redis too long: those of all keys, and those of one key.
fn costly() -> Vec<String> {
    let held = r#"{"concurrency":{"limit":10000,"ttl":"30s"}}"#;
    let few = r#"{"concurrency":{"limit":5,"ttl":"30s"}}"#;
    [
        format!(r#"{{"name":"p","rules":[{held}]}}"#),
        format!(r#"{{"name":"p","rules":[{few}],"overrides":[{{"key":"vip","rules":[{held}]}}]}}"#),
    ]
    .map(|document| published(&document, SINCE))
    .to_vec()
}

/// Texts that are not records.
fn damaged(it: &Spoilt) -> Vec<String> {
    let whole = it.0.to_string();
    let mut texts = vec![
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        whole[..whole.len() - 1].to_owned(),
        whole[..whole.len() / 2].to_owned(),
        format!("{whole}}}"),
        it.with("/record", json!("1")),
        it.with("/record", json!(1.5)),
        it.with("/version", json!("3")),
        it.with("/version", json!(1e300)),
        it.with("/app", json!(7)),
        it.with("/apps", json!([])),
        it.with("/apps", json!("shop")),
        it.with("/apps", json!([7])),
        it.with("/on_store_failure", json!(7)),
        it.with("/overflow", json!("reject")),
        it.with("/overflow", json!({ "kind": "queue" })),
        it.with("/overflow", json!({ "kind": "queue", "max_wait_us": -1 })),
        it.with("/overflow", json!({ "kind": "divert", "target": 7 })),
        it.with("/overrides", json!({})),
        it.with("/overrides/0/key", json!(7)),
        it.with("/overrides/0/blob", json!("?")),
        it.with("/overrides/0/each/0/calendar/unit", json!("week")),
        it.with_override("until_ms", Value::Null),
        it.with_override("until_ms", json!(-1)),
        it.with("/blob", json!(7)),
        it.with("/blob", json!("")),
        it.with("/blob", json!("AgAB")),
        it.with("/life_ms", json!(-1)),
        it.with("/life_ms", json!("60001")),
        it.with("/each", json!([])),
        it.with("/each/0/name", json!("s")),
        it.with("/each/0/limit", json!("10")),
        it.with("/each/0/window_us", json!(0)),
        it.with("/each/0/window_us", Value::Null),
        it.blob(2, &[2]),
        it.blob(2, &[0]),
        it.blob(4, &[4]),
        it.blob(6, &[0; 8]),
        it.blob(14, &f64::NAN.to_le_bytes()),
        it.blob(14, &0.0_f64.to_le_bytes()),
        it.blob(14, &(-1.0_f64).to_le_bytes()),
        it.blob(14, &0.5_f64.to_le_bytes()),
        it.blob(14, &f64::INFINITY.to_le_bytes()),
    ];
    let members = [
        "record",
        "version",
        "app",
        "apps",
        "on_store_failure",
        "overflow",
        "blob",
        "life_ms",
        "each",
    ];
    texts.extend(members.map(|name| it.without(name)));
    texts
}

/// A policy of one to three rules with any numbers that are permitted together.
fn random(rng: &mut Rng, number: usize) -> String {
    let mut any = iter::repeat_with(|| any_policy(rng, number));
    any.find(|text| Policy::parse_one(text).is_ok()).expect("there is no end")
}

fn any_policy(rng: &mut Rng, number: usize) -> String {
    let rules: Vec<_> = (0..rng.usize(1..=3))
        .map(|place| {
            let (algorithm, params) = algorithm(rng);
            format!(r#"{{"name":"r{place}","{algorithm}":{params}}}"#)
        })
        .collect();
    format!(r#"{{"name":"random-{number}","rules":[{}]}}"#, rules.join(","))
}

fn algorithm(rng: &mut Rng) -> (&'static str, String) {
    let limit = any(rng, 1 << 31);
    let (span, rate) = (span(rng), rate(rng));
    match rng.u8(0..8) {
        0 => {
            let initial = rng.u64(0..=limit);
            let refill = *rng.choice(["smooth", "interval"].iter()).expect("two");
            (
                "token_bucket",
                format!(
                    r#"{{"rate":"{rate}","burst":{limit},"initial":{initial},"refill":"{refill}"}}"#
                ),
            )
        }
        1 => ("token_bucket", format!(r#"{{"rate":"{rate}","burst":{limit}}}"#)),
        2 => {
            let burst = limit - 1;
            let delay = rng.u64(0..=burst);
            ("leaky_bucket", format!(r#"{{"rate":"{rate}","burst":{burst},"delay":{delay}}}"#))
        }
        3 => ("smooth_bursty", format!(r#"{{"rate":"{rate}","max_burst":"{span}"}}"#)),
        4 => ("fixed_window", format!(r#"{{"limit":{limit},"window":"{span}"}}"#)),
        5 => ("sliding_counter", format!(r#"{{"limit":{limit},"window":"{span}"}}"#)),
        6 => ("sliding_log", format!(r#"{{"limit":{},"window":"{span}"}}"#, any(rng, 10_000))),
        _ => ("concurrency", format!(r#"{{"limit":{},"ttl":"{span}"}}"#, any(rng, 10_000))),
    }
}

/// Returns a number from 1 to `most`, as often a small one as a large one.
fn any(rng: &mut Rng, most: u64) -> u64 {
    let bits = rng.u32(0..=most.ilog2());
    rng.u64(1..=(1_u64 << bits)).min(most)
}

fn span(rng: &mut Rng) -> String {
    let (unit, most) = [
        ("us", 1 << 40),
        ("ms", 1 << 30),
        ("s", 1 << 24),
        ("m", 1 << 18),
        ("h", 8_000),
        ("d", 366),
    ][rng.usize(..6)];
    format!("{}{unit}", any(rng, most))
}

fn rate(rng: &mut Rng) -> String {
    format!("{}/{}", any(rng, 1 << 32), span(rng))
}
