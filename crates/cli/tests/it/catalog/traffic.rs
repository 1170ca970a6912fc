//! Traffic of all nodes, as any of them reports it.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::{SqlKind, SqlServer, need};

use crate::catalog::stage::{Node, Who, ask, policy, until};

#[test]
fn each_node_tells_what_all_of_them_counted_also_after_a_restart() {
    let first = Node::start("sqlite:DIR/catalog.db", "node = 'a'\n");
    let url = format!("sqlite:{}", first.folder.path().join("catalog.db").display());
    tells_what_all_counted(first, &Node::start(&url, "node = 'b'\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_of_a_fleet_on_postgres_tells_what_all_of_them_counted() {
    let url = need!(SqlServer::shared(SqlKind::Postgres).await).database().unwrap();
    let node = |name: &str| Node::start(&url, &format!("node = '{name}'\n"));
    tells_what_all_counted(node("a"), &node("b"));
}

fn tells_what_all_counted(mut first: Node, second: &Node) {
    let ada = first.set_up();
    first.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(first.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| [&first, second].iter().all(|node| node.limit("orders") == Some(5)));
    for _ in 0..7 {
        first.check(&Who::default(), "orders", "ann");
    }
    for _ in 0..3 {
        second.check(&Who::default(), "orders", "bob");
    }

    // A node has its own counts as soon as a bucket is over, and those of others from the catalog.
    until(|| sum(&first, &ada) == (8, 2) && sum(second, &ada) == (8, 2));
    first.restart();
    assert_eq!(sum(&first, &ada), (8, 2), "the rows are there");
    let (_, fleet) = first.admin(&ada, "GET", "/fleet", &Value::Null);
    let nodes = fleet["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 2, "{fleet}");
    for node in nodes {
        let report = &node["report"];
        let found = (&report["ready"], &report["mode"], &report["store"]["kind"]);
        assert_eq!(found, (&json!(true), &json!("store"), &json!("memory")), "{fleet}");
    }
    let (_, _, metrics) =
        ask(first.address("admin"), &Who::default(), "GET", "/metrics", "").unwrap();
    assert!(metrics.contains("sluicegate_history_dropped_total 0"), "{metrics}");
}

#[test]
fn a_policy_in_the_state_shadow_refuses_no_acquire_and_counts_what_it_would_refuse() {
    let node = Node::start("sqlite:DIR/catalog.db", "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let rules = json!([{ "concurrency": { "limit": 1, "ttl": "1h" } }]);
    let new = json!({ "document": { "name": "jobs", "rules": rules } });
    let (status, made) = node.admin(&ada, "POST", "/apps/shop/policies", &new);
    assert_eq!((status, &made["state"]), (201, &json!("shadow")), "{made}");
    until(|| node.limit("jobs") == Some(1));
    let ask = |path: &str, id: &str| {
        let body = json!({ "policy": "jobs", "key": "k", "app": "shop", "id": id }).to_string();
        let reply = ask(node.address("http"), &Who::default(), "POST", path, &body).unwrap();
        let answer: Value = serde_json::from_str(&reply.2).unwrap();
        (reply.0, answer["allowed"].clone(), answer["overflow"].clone())
    };
    let shadowed = (200, json!(true), json!("shadow"));
    assert_eq!(ask("/v1/acquire", "one"), (200, json!(true), Value::Null));
    assert_eq!(ask("/v1/acquire", "two"), shadowed);
    assert_eq!(ask("/v1/renew", "two"), shadowed);
    assert_eq!(ask("/v1/release", "two"), shadowed);
    let metrics = ask_metrics(&node);
    let counted = r#"{policy="jobs",wire="http",result="shadowed",mode="store"} 1"#;
    assert!(metrics.contains(counted) && !metrics.contains("result=\"refused\""), "{metrics}");
    // The rollout of the policy is a sum of the same series.
    until(|| {
        let path = "/apps/shop/traffic?policy=jobs";
        let (_, traffic) = node.admin(&ada, "GET", path, &Value::Null);
        let points = traffic["series"][0]["shadowed"].as_array();
        points.is_some_and(|points| points.iter().filter_map(Value::as_u64).sum::<u64>() == 1)
    });
}

fn ask_metrics(node: &Node) -> String {
    ask(node.address("admin"), &Who::default(), "GET", "/metrics", "").expect("it answers").2
}

#[test]
fn a_node_that_ends_loses_nothing_that_it_counted() {
    let mut node = Node::start("sqlite:DIR/catalog.db", "node = 'a'\n");
    let url = format!("sqlite:{}", node.folder.path().join("catalog.db").display());
    let other = Node::start(&url, "node = 'b'\n");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| node.limit("orders") == Some(5));
    for _ in 0..7 {
        node.check(&Who::default(), "orders", "ann");
    }
    node.end();
    // In memory, every key begins again.
    node.start_again();
    // Decisions right before the end are visible when their ten seconds are over.
    until(|| sum(&node, &ada) == (5, 2));
    assert_eq!(sum(&other, &ada), (5, 2));
}

#[test]
fn a_node_that_ended_is_no_node_that_is_missing() {
    let first = Node::start("sqlite:DIR/catalog.db", "node = 'a'\n");
    let url = format!("sqlite:{}", first.folder.path().join("catalog.db").display());
    let mut second = Node::start(&url, "node = 'b'\n");
    let ada = first.set_up();
    let names = || {
        let (_, fleet) = first.admin(&ada, "GET", "/fleet", &Value::Null);
        let nodes = fleet["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until(|| names() == ["a", "b"]);
    second.end();
    assert_eq!(names(), ["a"]);
}

#[test]
fn history_can_be_switched_off() {
    let node = Node::start("sqlite:DIR/catalog.db", "history = 'off'\n");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    // A node that records has something to report after a second.
    #[expect(clippy::disallowed_methods, reason = "another process needs its second")]
    std::thread::park_timeout(Duration::from_millis(1_500));
    let (status, traffic) = node.admin(&ada, "GET", "/apps/shop/traffic", &Value::Null);
    assert_eq!((status, &traffic["nodes"][0]["through"]), (200, &Value::Null), "{traffic}");
}

#[test]
fn a_stream_tells_each_second_and_decisions_as_they_are_made() {
    let node = Node::start("sqlite:DIR/catalog.db", "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 1), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| node.limit("orders") == Some(1));
    let path = "/v1/admin/apps/shop/stream?policy=orders&tail=orders&result=refused";
    let mut lines = ada.lines(node.address("admin"), path);
    assert!(lines.any(|line| line == "event: revision"));
    for _ in 0..3 {
        node.check(&Who::default(), "orders", "ann");
    }
    let (mut allowed, mut refused, mut decisions) = (0, 0, 0);
    while (allowed, refused, decisions) != (1, 2, 2) {
        let line = lines.next().expect("it goes on");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let data: Value = serde_json::from_str(data).unwrap();
        let counts = &data["counts"]["orders"];
        allowed += counts["allowed"].as_u64().unwrap_or_default();
        refused += counts["refused"].as_u64().unwrap_or_default();
        decisions += u64::from(data["result"] == "refused");
    }
}

/// Numbers of requests of `orders` that were allowed and refused.
fn sum(node: &Node, who: &Who) -> (u64, u64) {
    let path = "/apps/shop/traffic?policy=orders";
    let (status, traffic) = node.admin(who, "GET", path, &Value::Null);
    assert_eq!(status, 200, "{traffic}");
    let sum = |result: &str| {
        let points = traffic["series"][0][result].as_array().unwrap();
        points.iter().filter_map(Value::as_u64).sum()
    };
    (sum("allowed"), sum("refused"))
}
