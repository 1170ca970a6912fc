//! Permits of a key that are held: an owner sees them and releases one, and a request that waits gets it.

use std::thread;

use serde_json::{Value, json};
use sluicegate_testkit::{Options, RedisServer, need};

use crate::catalog::stage::{Node, Who, ask, until};

const PATH: &str = "/apps/shop/policies/slots/keys";

/// Starts a node with the policy `slots`, which hands out five permits, and its administrator.
fn start(more: &str) -> (Node, Who) {
    let node = Node::start("sqlite:DIR/catalog.db", more);
    let ada = node.set_up();
    assert_eq!(node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" })).0, 201);
    let rules = json!([{ "concurrency": { "limit": 5, "ttl": "1h", "queue": 10 } }]);
    let new = json!({ "document": { "name": "slots", "rules": rules }, "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| node.admin(&ada, "POST", &format!("{PATH}/permits"), &json!({ "key": "a" })).0 == 200);
    (node, ada)
}

/// Sends a verb of permits; returns the answer.
fn verb(address: std::net::SocketAddr, verb: &str, id: &str, wait_ms: u64) -> Value {
    let mut body = json!({ "policy": "slots", "key": "alice", "app": "shop", "id": id });
    if verb == "acquire" {
        body["max_wait_ms"] = wait_ms.into();
    }
    let path = format!("/v1/{verb}");
    let reply = ask(address, &Who::default(), "POST", &path, &body.to_string());
    serde_json::from_str(&reply.expect("it answers").2).expect("it is JSON")
}

fn listed(node: &Node, who: &Who) -> Value {
    let (status, held) =
        node.admin(who, "POST", &format!("{PATH}/permits"), &json!({ "key": "alice" }));
    assert_eq!(status, 200, "{held}");
    held
}

fn releases_one(more: &str) {
    let (node, ada) = start(more);
    let (vic, olga) = (
        node.join(&ada, "vic", &[("shop", "viewer")]),
        node.join(&ada, "olga", &[("shop", "owner")]),
    );
    let http = node.address("http");
    for job in 0..5 {
        let answer = verb(http, "acquire", &format!("job-{job}"), 0);
        assert_eq!(answer["code"], 1, "{answer}");
    }
    let waiting = thread::spawn(move || verb(http, "acquire", "job-5", 60_000));
    until(|| listed(&node, &vic)["waiting"] == 1);
    let held = listed(&node, &vic);
    let items = held["items"].as_array().expect("a list");
    assert_eq!((items.len(), &held["total"], &held["held"]), (5, &json!(5), &json!(5)));
    let ends = items.iter().map(|item| item["lapses_after_us"].as_u64().expect("a time"));
    assert!(ends.clone().is_sorted() && ends.clone().all(|us| us > 3_000_000_000), "{held}");
    // The first is the oldest.
    let release = json!({ "key": "alice", "permit": items[0]["permit"] });
    let path = format!("{PATH}/release");
    assert_eq!(node.admin(&vic, "POST", &path, &release).0, 403);
    let (status, tried) = node.admin(&olga, "POST", &format!("{path}?dry_run=true"), &release);
    assert_eq!((status, &tried["total"]), (200, &json!(5)), "{tried}");
    assert!(!waiting.is_finished());
    let (status, after) = node.admin(&olga, "POST", &format!("{path}?reason=stuck"), &release);
    assert_eq!(status, 200, "{after}");
    let answer = waiting.join().expect("it answers");
    assert_eq!(answer["code"], 1, "{answer}");
    let after = listed(&node, &vic);
    assert_eq!((&after["total"], &after["waiting"]), (&json!(5), &json!(0)));
    // Its holder learns of it, and breaks nothing.
    let renewed = verb(http, "renew", "job-0", 0);
    assert_eq!(renewed["code"], -1, "{renewed}");
    let released = verb(http, "release", "job-0", 0);
    assert_eq!(released["code"], -1, "{released}");
    assert_eq!(listed(&node, &vic)["total"], 5);
    // A permit is also found by its name.
    let by_name = json!({ "key": "alice", "id": "job-5" });
    let (status, after) = node.admin(&olga, "POST", &path, &by_name);
    assert_eq!((status, &after["total"]), (200, &json!(4)), "{after}");
    let (status, problem) = node.admin(&olga, "POST", &path, &by_name);
    assert_eq!((status, &problem["code"]), (404, &json!("permit_not_held")), "{problem}");
    let (_, audit) = node.admin(&ada, "GET", "/apps/shop/audit?action=key.release", &Value::Null);
    let of = |entry: &Value| {
        ["actor", "outcome", "reason"].map(|name| entry[name].as_str().unwrap_or("").to_owned())
    };
    let entries: Vec<_> = audit["items"].as_array().expect("a list").iter().map(of).collect();
    let expected = [
        ["account:olga", "done", ""],
        ["account:olga", "done", "stuck"],
        ["account:vic", "denied", ""],
    ];
    assert_eq!(entries, expected);
}

#[test]
fn an_owner_releases_a_permit_and_a_request_that_waits_gets_it() {
    releases_one("");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_releases_a_permit_in_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = format!("[store]\nurl = '{}'\n", redis.url());
    tokio::task::spawn_blocking(move || releases_one(&store)).await.expect("it does not panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_nothing_is_listed_and_nothing_released() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let (node, ada) = start(&format!("[store]\nurl = '{}'\n", redis.url()));
    assert_eq!(verb(node.address("http"), "acquire", "job", 0)["code"], 1);
    redis.kill();
    for (what, body) in [
        ("permits", json!({ "key": "alice" })),
        ("release", json!({ "key": "alice", "id": "job" })),
    ] {
        let (status, problem) = node.admin(&ada, "POST", &format!("{PATH}/{what}"), &body);
        assert_eq!((status, &problem["code"]), (503, &json!("store_unavailable")), "{problem}");
    }
    let path = "/apps/shop/audit?action=key.release";
    let (_, audit) = node.admin(&ada, "GET", path, &Value::Null);
    assert_eq!(audit["items"][0]["outcome"], "failed", "{audit}");
    redis.restart().await.expect("it comes back on its port");
    // What it held is lost with it, as Redis keeps nothing here.
    until(|| node.admin(&ada, "POST", &format!("{PATH}/permits"), &json!({ "key": "a" })).0 == 200);
}
