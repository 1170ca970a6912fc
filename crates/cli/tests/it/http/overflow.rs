//! What a server does with requests over the limit, as their policies say.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::Server;

/// One an hour each.
const POLICIES: &str = "
policies:
  - { name: shadow, overflow: shadow, rules: [ { token_bucket: { rate: 1/h } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { token_bucket: { rate: 1/h } } ] }
  - name: page
    overflow: { degrade: { response: { status: 503, body: later, headers: { Retry-After: '5' } } } }
    rules: [ { token_bucket: { rate: 1/h } } ]
  - { name: divert, overflow: { divert: { target: slow } }, rules: [ { token_bucket: { rate: 1/h } } ] }
  - { name: queue, overflow: { queue: { max_wait: 5s } }, rules: [ { token_bucket: { rate: 10/s, burst: 1 } } ] }
";

fn second(server: &Server, policy: &str) -> Value {
    let body = json!({"policy": policy, "key": "k"});
    let (_, first) = server.post("/v1/check", &body);
    assert_eq!((&first["allowed"], &first["overflow"]), (&json!(true), &Value::Null), "{policy}");
    server.post("/v1/check", &body).1
}

#[test]
fn over_the_limit_the_answer_says_what_the_policy_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    fs::write(&path, POLICIES).unwrap();
    let server = Server::spawn(path.to_str().unwrap(), &[], Stdio::inherit());
    let shadow = second(&server, "shadow");
    assert_eq!((&shadow["allowed"], &shadow["overflow"]), (&json!(true), &json!("shadow")));
    assert_eq!(shadow["granted"], 0);
    let tag = second(&server, "tag");
    assert_eq!((&tag["allowed"], &tag["overflow"]), (&json!(false), &json!("degrade")));
    assert_eq!(tag["tag"], "cached");
    let page = second(&server, "page");
    let response = json!({"status": 503, "headers": {"retry-after": "5"}, "body": "later"});
    assert_eq!((&page["allowed"], &page["response"]), (&json!(false), &response));
    let divert = second(&server, "divert");
    assert_eq!((&divert["allowed"], &divert["target"]), (&json!(false), &json!("slow")));
    let queue = second(&server, "queue");
    assert_eq!((&queue["allowed"], &queue["wait_us"]), (&json!(true), &json!(0)));
    let held = queue["held_us"].as_u64().unwrap();
    assert!((1..=100_000).contains(&held), "held for {held} us");
}
