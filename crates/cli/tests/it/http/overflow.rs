//! Requests over the limit, handled as their policies say.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::Server;
use crate::program::program;

/// One an hour each.
const POLICIES: &str = "
policies:
  - { name: shadow, overflow: shadow, rules: [ { token_bucket: { rate: 1/h } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { token_bucket: { rate: 1/h } } ] }
  - name: page
    overflow: { degrade: { response: { status: 503, body: later, headers: { Retry-After: '5' } } } }
    rules: [ { token_bucket: { rate: 1/h } } ]
  - { name: divert, overflow: { divert: { target: slow } }, rules: [ { token_bucket: { rate: 1/h } } ] }
  - { name: jobs, overflow: shadow, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
  - { name: later, overflow: { degrade: { tag: cached } }, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
  - { name: elsewhere, overflow: { divert: { target: slow } }, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
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

fn started(policies: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    fs::write(&path, policies).unwrap();
    Server::spawn(path.to_str().unwrap(), &[], Stdio::inherit())
}

/// The answer for the permit `id`: its `allowed`, `granted` and `overflow`.
fn about(server: &Server, path: &str, policy: &str, id: &str) -> (Value, Value, Value) {
    let (status, answer) = server.post(path, &json!({"policy": policy, "key": "k", "id": id}));
    assert_eq!((status, &answer["id"]), (200, &json!(id)), "{path} {policy}: {answer}");
    let field = |name: &str| answer[name].clone();
    (field("allowed"), field("granted"), field("overflow"))
}

#[test]
fn overflow_means_for_acquire_what_it_means_for_check() {
    let server = started(POLICIES);
    let held = (json!(true), json!(1), Value::Null);
    for policy in ["jobs", "later", "elsewhere"] {
        assert_eq!(about(&server, "/v1/acquire", policy, "one"), held, "{policy}");
    }
    let shadow = (json!(true), json!(0), json!("shadow"));
    for path in ["/v1/acquire", "/v1/renew", "/v1/release"] {
        assert_eq!(about(&server, path, "jobs", "two"), shadow, "{path}");
    }
    assert_eq!(about(&server, "/v1/renew", "jobs", "one"), held);
    for (policy, overflow) in [("later", "degrade"), ("elsewhere", "divert")] {
        let refused = (json!(false), json!(0), json!(overflow));
        assert_eq!(about(&server, "/v1/acquire", policy, "two"), refused);
        let none = (json!(false), json!(0), Value::Null);
        assert_eq!(about(&server, "/v1/release", policy, "two"), none);
    }
    // A caller that does not name its permit gets a name, but no permit is held by it.
    let (_, unnamed) = server.post("/v1/acquire", &json!({"policy": "jobs", "key": "k"}));
    assert_eq!((&unnamed["allowed"], &unnamed["overflow"]), (&json!(true), &json!("shadow")));
    let id = unnamed["id"].as_str().expect("it has a name");
    assert_eq!(about(&server, "/v1/release", "jobs", id), shadow);
    // `deny` turns refusals into errors, but this is not a refusal.
    let (status, _) =
        server.post("/v1/acquire?deny=429", &json!({"policy": "jobs", "key": "k", "id": "x"}));
    assert_eq!(status, 200);
}

#[test]
fn an_imported_dry_run_of_limit_conn_refuses_nothing() {
    let nginx = "limit_conn_zone $binary_remote_addr zone=perip:10m;
server { listen 80; limit_conn_dry_run on; location / { limit_conn perip 1; } }";
    let imported = sluicegate_import::import(sluicegate_import::ImportSource::Nginx, nginx);
    let policies: Vec<_> =
        imported.expect("it is valid").policies.into_iter().map(|policy| policy.document).collect();
    let name = policies[0]["name"].as_str().expect("it has a name").to_owned();
    assert_eq!(policies[0]["rules"][0]["concurrency"]["limit"], 1, "{policies:?}");
    let server = started(&json!({ "policies": policies }).to_string());
    for (id, overflow) in [("one", Value::Null), ("two", json!("shadow"))] {
        let (allowed, _, said) = about(&server, "/v1/acquire", &name, id);
        assert_eq!((allowed, said), (json!(true), overflow), "{id}");
    }
}

#[test]
fn a_queue_for_permits_stops_the_server_at_start_with_the_policy_and_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    let policies = "policies: [ { name: jobs, rules: [ { concurrency: { limit: 1, ttl: 1m } } ], \
                    overflow: { queue: { max_wait: 1s } }, match: { method: [POST] } } ]";
    fs::write(&path, policies).unwrap();
    let serve = ["serve", "--policies", path.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let output = program().args(serve).output().expect("the program is built");
    let said = String::from_utf8_lossy(&output.stderr);
    for expected in [
        "policies[0] (jobs).overflow: `queue` needs a queue at the `concurrency` rule at `rules[0]`, whose `queue` is 0",
        "policies[0] (jobs).match: not supported with the `concurrency` rule at `rules[0]`",
    ] {
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
}
