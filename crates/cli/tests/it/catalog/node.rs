//! One node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sluicegate::Clock as _;
use sluicegate::internals::WallClock;
use sluicegate_testkit::{Options, RedisServer, need};

use crate::catalog::stage::{Node, Who, ask, policy, until};
use crate::program::program;

const SQLITE: &str = "sqlite:DIR/catalog.db";

#[test]
fn what_is_changed_by_the_api_is_decided_by_and_is_there_after_a_restart() {
    let mut node = Node::start(SQLITE, "");
    let ada = node.set_up();
    assert_eq!(node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" })).0, 201);
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| node.limit("orders") == Some(5));
    let change = json!({ "document": policy("orders", 7) });
    let path = "/apps/shop/policies/orders";
    let (status, changed) = node.admin(&ada.of_version(1), "PUT", path, &change);
    assert_eq!((status, &changed["version"]), (200, &json!(2)), "{changed}");
    until(|| node.limit("orders") == Some(7));
    for file in ["catalog.db", "catalog.db-wal", "kept.json"] {
        until(|| node.folder.path().join(file).exists());
        let mode = fs::metadata(node.folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} is for its owner");
    }
    node.restart();
    assert_eq!(node.limit("orders"), Some(7), "at once: it was read before it listened");
    assert!(!node.told().contains("sgsetup_"), "there is an account");
    let (status, _) = node.admin(&ada.of_version(2), "DELETE", path, &Value::Null);
    assert_eq!(status, 204);
    until(|| node.limit("orders").is_none());
}

#[test]
fn a_new_catalog_begins_with_the_policies_of_a_file_and_no_other_does() {
    let files = tempfile::tempdir().expect("there is room for files");
    let file = files.path().join("seed.yaml");
    let document = |limit| json!({ "policies": [policy("orders", limit)] }).to_string();
    fs::write(&file, document(5)).unwrap();
    let mut node =
        Node::start(SQLITE, &format!("seed = '{}'\n[http]\napp = 'demo'\n", file.display()));
    let limit = |node: &Node| {
        let body = json!({ "policy": "orders", "key": "nobody" }).to_string();
        let reply = ask(node.address("http"), &Who::default(), "POST", "/v1/peek", &body);
        let body: Value = serde_json::from_str(&reply.expect("it answers").2).unwrap();
        body["limit"].as_u64()
    };
    assert_eq!(limit(&node), Some(5), "at once: it was there before it listened");
    fs::write(&file, document(7)).unwrap();
    node.restart();
    assert_eq!(limit(&node), Some(5), "a catalog with an app is not new");
    let told = node.told();
    assert!(
        told.contains("seed.yaml was not used: the catalog is not new and has 1 policy"),
        "{told}"
    );
    let ada = node.set_up();
    let (status, made) = node.admin(&ada, "GET", "/apps/demo/policies/orders", &Value::Null);
    let found = (status, &made["state"], &made["created_by"]);
    assert_eq!(found, (200, &json!("active"), &json!("operator")));

    fs::write(&file, "policies: [{ name: orders, rules: 5 }]").unwrap();
    let url = format!("sqlite:{}", files.path().join("catalog.db").display());
    let check = ["config", "check", "--catalog", &url, "--seed"];
    let refused = program().args(check).arg(&file).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && told.contains("seed.yaml:1:35: policies[0] (orders).rules"),
        "{told}"
    );

    fs::write(&file, document(5)).unwrap();
    let check = |url: Option<&str>| {
        let mut checking = program();
        checking.args(["config", "check", "--seed"]).arg(&file);
        checking.envs(url.map(|url| ("SLUICEGATE__CATALOG__URL", url)));
        let checked = checking.output().unwrap();
        (checked.status.success(), String::from_utf8(checked.stderr).unwrap())
    };
    assert_eq!(check(Some(&url)), (true, String::new()), "wherever the catalog is configured");
    let (is_fine, told) = check(None);
    assert!(!is_fine && told.contains("catalog.seed: requires `catalog.url`"), "{told}");
}

#[test]
fn a_live_budget_is_seen_forgotten_and_granted() {
    let node = Node::start(SQLITE, "");
    let ada = node.set_up();
    for app in ["shop", "till"] {
        node.admin(&ada, "POST", "/apps", &json!({ "name": app }));
    }
    let mut document = policy("orders", 3);
    document["apps"] = json!(["shop", "till"]);
    let new = json!({ "document": document, "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    let body = json!({ "policy": "orders", "key": "alice", "app": "till" }).to_string();
    let check = || {
        let reply = ask(node.address("http"), &Who::default(), "POST", "/v1/check", &body);
        let reply: Value = serde_json::from_str(&reply.expect("it answers").2).unwrap();
        reply["code"].clone()
    };
    until(|| check() == json!(1));
    let of_key = |what: &str, body: &Value| {
        let path = format!("/apps/shop/policies/orders/keys/{what}");
        let (status, budget) = node.admin(&ada, "POST", &path, body);
        assert_eq!(status, 200, "{budget}");
        budget["remaining"].as_u64().unwrap()
    };
    let alice = json!({ "key": "alice" });
    assert_eq!(of_key("peek", &alice), 2);
    assert_eq!((check(), check(), check()), (json!(1), json!(1), json!(-1)));
    assert_eq!(of_key("grant", &json!({ "key": "alice", "permits": 2 })), 2);
    assert_eq!(of_key("reset", &alice), 3);
    assert_eq!(check(), json!(1));
    let (_, entries) = node.admin(&ada, "GET", "/apps/shop/audit", &Value::Null);
    let text = entries.to_string();
    assert!(text.contains("key.reset") && text.contains("key.grant"), "{text}");
}

/// The outcomes in the audit of `action` on live budgets, the newest first.
fn outcomes(node: &Node, who: &Who, action: &str) -> Vec<String> {
    let path = format!("/apps/shop/audit?action={action}");
    let (_, entries) = node.admin(who, "GET", &path, &Value::Null);
    let entries = entries["items"].as_array().expect("it is a list").iter();
    entries.map(|entry| entry["outcome"].as_str().expect("each has one").to_owned()).collect()
}

#[tokio::test]
async fn a_budget_is_not_changed_without_the_store_and_the_audit_says_so_once() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let node = Node::start(SQLITE, &format!("[store]\nurl = '{}'\n", redis.url()));
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 3), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    let of_key = |what: &str, body: &Value| {
        node.admin(&ada, "POST", &format!("/apps/shop/policies/orders/keys/{what}"), body)
    };
    let (alice, grant) = (json!({ "key": "alice" }), json!({ "key": "alice", "permits": 1 }));
    until(|| of_key("reset", &alice).0 == 200);
    let before = outcomes(&node, &ada, "key.reset");
    redis.kill();
    until(|| of_key("peek", &alice).1["mode"] == "local");
    for (what, body) in [("reset", &alice), ("grant", &grant)] {
        let (status, problem) = of_key(what, body);
        assert_eq!((status, &problem["code"]), (503, &json!("store_unavailable")), "{problem}");
    }
    let reset = outcomes(&node, &ada, "key.reset");
    assert_eq!((&*reset[0], &reset[1..]), ("failed", &*before));
    assert_eq!(outcomes(&node, &ada, "key.grant"), ["failed"]);
    // A tried request is decided from the share of this node, as any other is.
    assert_eq!(of_key("try", &alice).1["mode"], "local");
    assert_eq!(outcomes(&node, &ada, "key.try"), ["done"]);
    redis.restart().await.expect("it comes back on its port");
    until(|| of_key("reset", &alice).0 == 200);
}

#[test]
fn a_permit_that_is_held_cannot_be_tried() {
    let node = Node::start(SQLITE, "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let rules = json!([{ "concurrency": { "limit": 2, "ttl": "1m" } }]);
    let new = json!({ "document": { "name": "slots", "rules": rules }, "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    let body = json!({ "key": "alice" });
    let path = "/apps/shop/policies/slots/keys/try";
    let (status, problem) = node.admin(&ada, "POST", path, &body);
    assert_eq!((status, &problem["code"]), (409, &json!("try_of_concurrency")), "{problem}");
    assert!(outcomes(&node, &ada, "key.try").is_empty());
}

#[test]
fn what_was_changed_is_decided_by_when_the_change_is_answered() {
    let node = Node::start(SQLITE, "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    for round in 0..40 {
        let change = json!({ "document": policy("orders", 6 + round) });
        let version = i64::try_from(round + 1).expect("it is small");
        let path = "/apps/shop/policies/orders";
        assert_eq!(node.admin(&ada.of_version(version), "PUT", path, &change).0, 200);
        assert_eq!(node.limit("orders"), Some(6 + round), "round {round}");
    }
    let new = json!({ "name": "gateway", "scopes": ["check"], "expires_in_days": 1 });
    for _ in 0..20 {
        let (status, made) = node.admin(&ada, "POST", "/apps/shop/tokens", &new);
        assert_eq!(status, 201, "{made}");
        let token = Who::with_token(made["secret"].as_str().expect("a secret"));
        let body = json!({ "policy": "orders", "key": "alice" }).to_string();
        let check =
            || ask(node.address("http"), &token, "POST", "/v1/check", &body).expect("it answers").0;
        assert_eq!(check(), 200);
        let path = format!("/apps/shop/tokens/{}", made["id"].as_str().expect("an id"));
        assert_eq!(node.admin(&ada, "DELETE", &path, &Value::Null).0, 204);
        assert_eq!(check(), 401);
    }
}

#[test]
fn a_boosted_key_has_more_until_its_end_and_other_keys_have_what_they_had() {
    let node = Node::start(SQLITE, "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 3), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    let limit_of = |key: &str| {
        let body = json!({ "policy": "orders", "key": key, "app": "shop" }).to_string();
        let reply = ask(node.address("http"), &Who::default(), "POST", "/v1/peek", &body);
        let reply: Value = serde_json::from_str(&reply.expect("it answers").2).unwrap();
        reply["limit"].as_u64()
    };
    let now = WallClock.now().get() / 1_000_000;
    let end = i64::try_from(now + 4).expect("it is near");
    let end = jiff::Timestamp::from_second(end).expect("it is near").to_string();
    let boost = json!({ "key": "alice", "factor": 10, "until": end });
    let path = "/apps/shop/policies/orders/keys/boost?reason=sale";
    let (status, boosted) = node.admin(&ada, "POST", path, &boost);
    assert_eq!(status, 200, "{boosted}");
    until(|| limit_of("alice") == Some(30));
    assert_eq!(limit_of("bob"), Some(3));
    until(|| limit_of("alice") == Some(3));
    let explain = json!({ "key": "alice" });
    let path = "/apps/shop/policies/orders/keys/explain";
    assert_eq!(node.admin(&ada, "POST", path, &explain).1["is_override"], false);
}

#[test]
fn the_api_may_have_an_address_of_its_own() {
    let node = Node::start(SQLITE, "listen = '127.0.0.1:0'\n");
    let at = |scheme: &str, path: &str| {
        let reply = ask(node.address(scheme), &Who::default(), "GET", path, "");
        reply.expect("it answers").0
    };
    let api = "/v1/admin/openapi.json";
    until(|| at("catalog", api) == 200);
    assert_eq!((at("admin", api), at("admin", "/livez")), (404, 200));
    assert_eq!(at("catalog", "/metrics"), 404);
    until(|| {
        let (_, _, text) =
            ask(node.address("admin"), &Who::default(), "GET", "/metrics", "").unwrap();
        let is_told = |line: &str| text.lines().any(|told| told == line);
        is_told("sluicegate_catalog_up 1") && is_told("sluicegate_catalog_revision 0")
    });
}

#[test]
fn the_audit_has_where_a_request_came_from_also_behind_a_proxy() {
    for (config, there) in [("", "127.0.0.1"), ("trusted_proxies = '127.0.0.1'\n", "198.51.100.7")]
    {
        came_from(&Node::start(SQLITE, config), there);
    }
}

/// Checks that a forwarded request has the source `expected`, and a direct one its own address.
fn came_from(node: &Node, expected: &str) {
    let who = node.set_up();
    let by_proxy = who.forwarded_for("192.0.2.9, 198.51.100.7");
    let app = |name: &str| json!({ "name": name });
    assert_eq!(node.admin(&who, "POST", "/apps", &app("here")).0, 201);
    assert_eq!(node.admin(&by_proxy, "POST", "/apps", &app("there")).0, 201);
    let (_, entries) = node.admin(&who, "GET", "/audit", &Value::Null);
    let source = |app: &str| {
        let entries = entries["items"].as_array().expect("entries").iter();
        let mut of = entries.filter(|entry| entry["app"] == app);
        of.next().expect("it was noted")["source"].clone()
    };
    // Only the address that the proxy itself added is trusted: the last one.
    assert_eq!((source("here"), source("there")), (json!("127.0.0.1"), json!(expected)));
}

#[test]
fn a_node_without_a_catalog_and_without_anything_kept_does_not_start() {
    let told = why_not("postgres://nobody@127.0.0.1:1/none");
    assert!(
        told.contains("catalog.url: cannot read the catalog postgres://127.0.0.1:1/none, and /none/kept has no copy of it"),
        "{told}"
    );
}

#[test]
fn a_database_on_another_machine_is_verified_or_not_gone_to() {
    let told = why_not("postgres://u:secret@192.0.2.1/c");
    assert!(told.contains("catalog.url_insecure") && !told.contains("secret@"), "{told}");
}

/// The error of a node that does not start with this catalog.
fn why_not(url: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[catalog]\nurl = '{url}'\nkept = '/none/kept'");
    let output = crate::program::serve(&folder, &config).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_setup_token_in_a_file_is_not_printed_and_goes_when_it_was_used_or_the_server_stops() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let file = folder.path().join("setup-token");
    let config = format!("setup_token_file = {file:?}\n");
    for is_used in [true, false] {
        let mut node = Node::start(SQLITE, &config);
        until(|| file.exists());
        let mode = std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("it is there"));
        assert_eq!(mode & 0o777, 0o600);
        let token = std::fs::read_to_string(&file).expect("it is text");
        let token = token.trim_end();
        assert!(token.starts_with("sgsetup_"), "{token}");
        assert!(!node.told().contains("sgsetup_"), "{}", node.told());
        let named = format!("the setup token in {}", file.display());
        until(|| node.told().contains(&named));
        if is_used {
            let new = json!({ "token": token, "account": "ada", "password": "correct horse battery staple" });
            let (status, made) = node.admin(&Who::default(), "POST", "/setup", &new);
            assert_eq!(status, 201, "{made}");
            assert!(!file.exists(), "it was used");
        }
        node.end();
        assert!(!file.exists(), "the server has stopped");
    }
}

#[test]
fn a_node_that_stops_leaves_one_file_of_its_sqlite_catalog() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let catalog = folder.path().join("catalog.db");
    let mut node = Node::start(&format!("sqlite:{}", catalog.display()), "");
    node.set_up();
    node.end();
    let names = std::fs::read_dir(folder.path()).expect("it is a folder");
    let names = names.map(|entry| entry.expect("it can be read").file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["catalog.db"], "the WAL was written back");
}
