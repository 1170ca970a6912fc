//! Documents, and what their rules come to.

use std::iter;

use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate::Micros;
use sluicegate::policy::Policy;
use sluicegate::store::RuleOrigin;
use sluicegate::store::redis::CompiledPolicy;
use sluicegate::store::redis::codec::RulesBlob;

use super::asks::POLICIES;
use super::{hex, is_fresh};

/// Documents that are made up beside those that are written here.
const RANDOM: usize = 400;

/// When they were taken over.
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

/// What `leases` may be, each with a rule for which it may be that.
const LEASES: [(&str, &str); 15] = [
    (r#""auto""#, r#"{"concurrency":{"limit":5,"ttl":"30s"}}"#),
    (r#""off""#, r#"{"concurrency":{"limit":5,"ttl":"30s"}}"#),
    (r#""auto""#, r#"{"sliding_log":{"limit":1,"window":"1s"}}"#),
    ("{}", r#"{"token_bucket":{"rate":"1/s"}}"#),
    (r#"{"max_share":"1%"}"#, r#"{"token_bucket":{"rate":"100/m","refill":"interval"}}"#),
    (r#"{"max_share":"9%","term":"1s"}"#, r#"{"leaky_bucket":{"rate":"1/s","delay":"none"}}"#),
    (r#"{"max_share":"10%"}"#, r#"{"fixed_window":{"limit":1,"window":"1s"}}"#),
    (r#"{"max_share":"49%"}"#, r#"{"fixed_window":{"limit":1,"window":"1s","align":"first"}}"#),
    (r#"{"max_share":"50%"}"#, r#"{"fixed_window":{"limit":5,"calendar":"day"}}"#),
    (r#"{"term":"100ms"}"#, r#"{"sliding_window":{"limit":1,"window":"10s"}}"#),
    (r#"{"term":"2s"}"#, r#"{"sliding_counter":{"limit":1,"window":"10s"}}"#),
    (r#"{"term":"2000000us"}"#, r#"{"sliding_log":{"limit":1,"window":"10s"}}"#),
    (r#"{"term":"1sec"}"#, r#"{"sliding_log":{"limit":1,"window":"1d"}}"#),
    (
        r#"{"term":"1s"}"#,
        r#"{"name":"a","token_bucket":{"rate":"1/s"}},{"name":"b","fixed_window":{"limit":1,"window":"1m"}}"#,
    ),
    (r#"{"term":"1s"}"#, r#"{"name":"a","token_bucket":{"rate":"1/s","initial":0}}"#),
];

/// Documents with an error each; the rest is as it should be.
const WRONG: &[&str] = &[
    "",
    "[]",
    "null",
    "{",
    r#"{"name":"a"}"#,
    r#"{"rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":"A","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":"","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":7,"rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[]}"#,
    r#"{"name":"a","rules":{}}"#,
    r#"{"name":"a","rules":[{}]}"#,
    r#"{"name":"a","rules":[7]}"#,
    r#"{"name":"a","rules":[{"gcra":{"limit":1}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}},{"sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"name":"x","sliding_log":{"limit":1,"window":"1s"}},{"name":"x","sliding_log":{"limit":2,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"},"token_bucket":{"rate":"1/s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":0,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":10001,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":"1","window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1.5,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":-1,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":-0,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":5.0,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1e1,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":true,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"apps":["*","*"]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"key":["header:x","header:X"]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"method":["get"]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1 s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"0s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"367d"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1.5s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1h30m"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":60}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s","more":1}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":null,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"10"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"0/s"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/0s"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1.5/s"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/fortnight"}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"10/s","burst":0}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"10/s","burst":4294967297}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"10/s","burst":5,"initial":6}}]}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"10/s","refill":"never"}}]}"#,
    r#"{"name":"a","rules":[{"leaky_bucket":{"rate":"10/s","burst":5,"delay":6}}]}"#,
    r#"{"name":"a","rules":[{"leaky_bucket":{"rate":"10/s","burst":5,"delay":"some"}}]}"#,
    r#"{"name":"a","rules":[{"smooth_warmup":{"rate":"10/s"}}]}"#,
    r#"{"name":"a","rules":[{"smooth_warmup":{"rate":"10/s","warmup":"1s","cold_factor":1}}]}"#,
    r#"{"name":"a","rules":[{"smooth_warmup":{"rate":"10/s","warmup":"1s","cold_factor":1001}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"window":"1s","calendar":"day"}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"calendar":"decade"}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"calendar":"day","time_zone":"Mars/Base"}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"window":"1s","time_zone":"UTC"}}]}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"window":"1s","align":"calendar"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_window":{"limit":1,"window":"1s","buckets":0}}]}"#,
    r#"{"name":"a","rules":[{"sliding_window":{"limit":1,"window":"5us","buckets":10}}]}"#,
    r#"{"name":"a","rules":[{"concurrency":{"limit":1}}]}"#,
    r#"{"name":"a","rules":[{"concurrency":{"limit":1,"ttl":"1s","queue":3}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"more":1}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"apps":[]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"apps":["X"]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"apps":"shop"}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overflow":"shrug"}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overflow":{"queue":{}}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overflow":{"queue":{"max_wait":"0s"}}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overflow":{"divert":{}}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"on_store_failure":"maybe"}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"on_overload":"maybe"}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":"on"}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":false}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":null}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":"10%"}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"share":"5%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":"0%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":"51%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":"05%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":"2.5%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":10}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"max_share":"10"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"term":"99ms"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"term":"2001ms"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"leases":{"term":"1"}}"#,
    r#"{"name":"a","rules":[{"leaky_bucket":{"rate":"1/s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"leaky_bucket":{"rate":"1/s","burst":5,"delay":5}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"smooth_bursty":{"rate":"1/s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"smooth_warmup":{"rate":"1/s","warmup":"1s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"fixed_window":{"limit":1,"window":"999ms"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"sliding_window":{"limit":1,"window":"9999ms"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"sliding_counter":{"limit":1,"window":"9s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"concurrency":{"limit":1,"ttl":"1s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"name":"x","token_bucket":{"rate":"1/s"}},{"name":"slots","concurrency":{"limit":5,"ttl":"1s"}}],"leases":{}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"overrides":[{"key":"k","rules":[{"token_bucket":{"rate":"1/s"}}]},{"key":"l","rules":[{"name":"slots","concurrency":{"limit":5,"ttl":"1s"}}]}],"leases":{"max_share":"10%"}}"#,
    r#"{"name":"a","rules":[{"token_bucket":{"rate":"1/s"}}],"overflow":{"queue":{"max_wait":"1s"}},"leases":{"term":"1s"}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"carry":"some"}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"key":["cookie"]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"key":[]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"path":"a"}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":[]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"path":{"prefix":"/","starts_with":"/"}}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"host":["Shop"]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"host":["a","a"]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"host":["*.a..b"]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"host":[]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":[{"method":["GET"]},{"path":{"starts_with":"a"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"method":["GET"],"except":[]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"method":["GET"],"except":[{}]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"match":{"except":[{"host":["a"],"except":[]}]}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k"}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","rules":[{"sliding_log":{"limit":0,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]},{"key":"k","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"name":"Ä","sliding_log":{"limit":1,"window":"1s"}}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"tomorrow","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T18:00:00","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T18:00:00+00:00","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T18:00:00.5Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-02-29T00:00:00Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T24:00:00Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T23:59:60Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"1969-12-31T23:59:59Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2100-01-01T00:00:00Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31t18:00:00z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-13-01T00:00:00Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"+026-12-31T18:00:00Z","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":"2026-12-31T18:00:00Z\n","rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","until":1798740000,"rules":[{"sliding_log":{"limit":1,"window":"1s"}}]}]}"#,
    r#"{"name":"a","rules":[{"concurrency":{"limit":1,"ttl":"1s"}}],"overflow":{"queue":{"max_wait":"1s"}}}"#,
    r#"{"name":"a","rules":[{"concurrency":{"limit":1,"ttl":"1s"}}],"match":{"method":["GET"]}}"#,
    r#"{"name":"a","rules":[{"name":"x","sliding_log":{"limit":1,"window":"1s"}},{"name":"y","concurrency":{"limit":1,"ttl":"1s"}}],"match":{"path":{"exact":"/"}}}"#,
    r#"{"name":"a","rules":[{"sliding_log":{"limit":1,"window":"1s"}}],"overrides":[{"key":"k","rules":[{"concurrency":{"limit":1,"ttl":"1s"}}]}],"overflow":{"queue":{"max_wait":"1s"}}}"#,
];

/// Values of `match`.
const MATCHES: [&str; 3] = [
    r#"{"host":["shop.example","*.a_b-1.example"],"except":[{"path":{"exact":"/a"},"method":["GET"]},{"host":["b"]}]}"#,
    r#"[{"path":{"starts_with":"/a"}},{"path":{"prefix":"/b/"},"except":[{"path":{"starts_with":"/b/c"}}]}]"#,
    r#"{"except":[{"host":["*.0"]}]}"#,
];

#[test]
fn documents_come_to_the_same_rules_and_wrong_ones_are_refused() {
    let mut documents: Vec<String> = POLICIES.map(String::from).to_vec();
    for (place, rule) in RULES.iter().enumerate() {
        documents.push(format!(r#"{{"name":"edge-{place}","rules":[{rule}]}}"#));
    }
    for (more, place) in [r#""carry":"proportional""#, r#""carry":"reset""#].iter().zip(0..) {
        let rule = RULES[0];
        documents.push(format!(r#"{{"name":"carry-{place}","rules":[{rule}],{more}}}"#));
    }
    let (one, other) = (RULES[0], RULES[25]);
    documents.push(format!(
        r#"{{"name":"overrides","rules":[{one}],"overrides":[{{"key":"vip","rules":[{other}]}},{{"key":"ü","rules":[{one}]}}]}}"#
    ));
    documents.push(format!(
        r#"{{"name":"boost","rules":[{one}],"overrides":[{{"key":"vip","until":"2026-12-31T18:00:00Z","rules":[{other}]}},{{"key":"ü","until":"2099-12-31T23:59:59Z","rules":[{one}]}},{{"key":"always","rules":[{other}]}}]}}"#
    ));
    for (place, (leases, rule)) in LEASES.iter().enumerate() {
        documents
            .push(format!(r#"{{"name":"leases-{place}","rules":[{rule}],"leases":{leases}}}"#));
    }
    let mut rng = Rng::with_seed(13);
    documents.extend((0..RANDOM).map(|number| random(&mut rng, number)));
    documents.extend((0_u32..).zip(MATCHES).map(|(place, of)| {
        let rules = r#"[{"fixed_window":{"limit":1,"window":"1s"}}]"#;
        format!(r#"{{"name":"match-{place}","rules":{rules},"match":{of}}}"#)
    }));
    let mut entries: Vec<_> = documents.iter().map(|text| right(text)).collect();
    entries.extend(WRONG.iter().map(|text| wrong(text)));
    is_fresh(
        "documents",
        "Policies, what is published of their rules (redis-protocol.md, Compiled rules), and the blob \
         of the rules that a program took over at `since_us`. Or, of texts that are no policies, where \
         and what the problems are.",
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

fn right(text: &str) -> Value {
    let policy = Policy::parse_one(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let overrides = policy.overrides();
    let overrides = overrides.map(|(key, own)| (key, &**own.rules().set(), own.until()));
    let compiled = CompiledPolicy::new(policy.rules().set(), overrides);
    let blob = RulesBlob::new(policy.rules().set(), RuleOrigin::Policy { since: SINCE });
    let document: Value = serde_json::from_str(text).expect("it is JSON");
    json!({
        "document": document, "compiled": compiled, "since_us": SINCE.get(),
        "blob_hex": hex(blob.as_bytes()),
        "generation": blob.stamp().expect("a policy's").generation().to_string(),
    })
}

fn wrong(text: &str) -> Value {
    let errors = Policy::parse_one(text).expect_err(text);
    let errors: Vec<_> = errors.errors().iter().map(ToString::to_string).collect();
    json!({ "text": text, "errors": errors })
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

/// A number from 1 to `most`, as often a small one as a large one.
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
