//! Policies from files that a server publishes in Redis for other programs.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sluicegate_testkit::{Client, Options, RedisServer, Reply, need};

use crate::program::{PATIENCE, program};
use crate::server::Server;

/// A server with these policies in a file, which publishes them.
fn start(redis: &RedisServer, file: &Path, more: &str) -> Server {
    let config = format!(
        "[policies]\npath = {file:?}\n[store]\nurl = '{}?deadline_ms=5000'\n{more}",
        redis.url()
    );
    Server::start(&config)
}

/// The fields and values of the hash, as text.
async fn published(redis: &RedisServer) -> Vec<(String, String)> {
    let found = redis.cli(&["HGETALL", "sg:{policies}"]).await.expect("it answers");
    found.list().chunks(2).map(|pair| (pair[0].text(), pair[1].text())).collect()
}

fn field(fields: &[(String, String)], name: &str) -> Option<String> {
    fields.iter().find(|(found, _)| found == name).map(|(_, text)| text.clone())
}

/// Waits until `is_so`, and returns the fields.
async fn until(
    redis: &RedisServer,
    what: &str,
    is_so: impl Fn(&[(String, String)]) -> bool,
) -> Vec<(String, String)> {
    let asking = sluicegate_testkit::until(what, PATIENCE, async || {
        let fields = published(redis).await;
        is_so(&fields).then_some(fields)
    });
    asking.await.expect("it comes true")
}

/// Number of times that servers have read the published policies.
async fn looks(redis: &RedisServer) -> u64 {
    let stats = redis.cli(&["INFO", "commandstats"]).await.expect("it answers").text();
    let calls = stats.split("cmdstat_hmget:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

fn policy(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

const ORDERS: &str = r#"policies:
  - name: orders
    rules:
      - { name: burst, token_bucket: { rate: 10/s, burst: 20 } }
      - { name: daily, fixed_window: { limit: 500, calendar: day, time_zone: Europe/Berlin } }
    overrides:
      - { key: vip, rules: [ { name: minute, fixed_window: { limit: 1000, window: 1m } } ] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn programs_find_the_policies_of_files_with_what_their_rules_come_to() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.yaml");
    fs::write(&file, ORDERS).unwrap();
    let server = start(&redis, &file, "nodes = 3");
    let fields = until(&redis, "the policy", |fields| field(fields, "orders").is_some()).await;
    assert_eq!(field(&fields, "#clock").as_deref(), Some("server"));
    assert_eq!(field(&fields, "#nodes").as_deref(), Some("3"));
    let orders = policy(&field(&fields, "orders").unwrap());
    assert_eq!((&orders["app"], &orders["state"]), (&json!(""), &json!("active")));
    assert_eq!(orders["document"]["apps"], json!(["*"]), "as a file without apps means it");
    assert_eq!((&orders["record"], &orders["apps"]), (&json!(1), &json!(["*"])));
    let each = json!([
        { "name": "burst", "limit": 20, "window_us": 2_000_000 },
        { "name": "daily", "limit": 500, "calendar": { "unit": "day", "zone": "Europe/Berlin" } },
    ]);
    assert_eq!(orders["each"], each);
    let vip = &orders["overrides"][0];
    let each = json!([{ "name": "minute", "limit": 1000, "window_us": 60_000_000 }]);
    assert_eq!((&vip["key"], &vip["each"]), (&json!("vip"), &each));

    // Without a server they are the same, except for their version and its time.
    let compiled = program().args(["policies", "compile"]).arg(&file).output().unwrap();
    let mut compiled: Value = serde_json::from_slice(&compiled.stdout).unwrap();
    assert_eq!(compiled["#format"], 1);
    for (name, value) in [("version", &orders["version"]), ("since_ms", &orders["since_ms"])] {
        compiled["orders"][name] = value.clone();
    }
    assert_eq!(compiled["orders"], orders);

    // The server itself decides by the same bytes.
    let address = server.address("resp");
    let mut own = Client::connect(address).await.unwrap();
    for (key, rules) in [("vip", &orders["overrides"][0]), ("bob", &orders)] {
        own.call(&["SG.CHECK", "orders", key]).await.unwrap();
        let mut kept = Vec::new();
        for key in redis.cli(&["KEYS", "sg:rules:*"]).await.unwrap().list() {
            let Reply::Bytes(rules) = redis.cli(&["GET", &key.text()]).await.unwrap() else {
                panic!("no rules")
            };
            kept.push(rules);
        }
        let blob = URL_SAFE_NO_PAD.decode(rules["blob"].as_str().unwrap()).unwrap();
        assert!(kept.contains(&blob), "{key}: {kept:?} has no {blob:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_that_were_read_last_are_published_and_nobody_writes_them_again() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old.yaml", "new.yaml"].map(|name| folder.path().join(name));
    fs::write(&old, ORDERS).unwrap();
    fs::write(&new, ORDERS.replace("500", "700")).unwrap();
    let has = |limit: &'static str| {
        move |fields: &[(String, String)]| {
            field(fields, "orders")
                .is_some_and(|text| text.contains(&format!("\"limit\":{limit},")))
        }
    };
    let _old = start(&redis, &old, "");
    let first = until(&redis, "the old files", has("500")).await;
    let new_server = start(&redis, &new, "");
    let second = until(&redis, "the new files", has("700")).await;
    let revision = |fields: &[(String, String)]| -> u64 {
        field(fields, "#revision").unwrap().parse().unwrap()
    };
    assert!(revision(&second) > revision(&first));
    // The server with the old files reads and changes nothing; a server with the same files does the same.
    let _same = start(&redis, &new, "");
    let looks = looks(&redis).await;
    let looked = sluicegate_testkit::until("all have looked", PATIENCE, async || {
        (self::looks(&redis).await >= looks + 3).then_some(())
    });
    looked.await.unwrap();
    assert_eq!(published(&redis).await.len(), second.len());
    assert_eq!(revision(&published(&redis).await), revision(&second));
    // Lost fields are restored, and edits are published.
    redis.cli(&["FLUSHALL"]).await.unwrap();
    until(&redis, "what was lost", |fields| !fields.is_empty()).await;
    fs::write(&new, ORDERS.replace("500", "900")).unwrap();
    let third = until(&redis, "the edited file", has("900")).await;
    assert!(revision(&third) > revision(&second));
    let told = new_server.told();
    assert!(!told.contains("cannot publish"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_leave_what_a_catalog_publishes() {
    let redis = need!(RedisServer::start(Options::default()).await);
    redis.cli(&["HSET", "sg:{policies}", "#format", "1", "#revision", "7"]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.yaml");
    fs::write(&file, ORDERS).unwrap();
    let server = start(&redis, &file, "");
    let asking = sluicegate_testkit::until("it says so", PATIENCE, async || {
        server.told().contains("cannot publish policies in Redis").then_some(())
    });
    asking.await.unwrap();
    assert_eq!(published(&redis).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_logs_which_policies_programs_get_and_publishes_none_where_it_is_not_to() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.yaml");
    fs::write(&file, ORDERS).unwrap();
    let logs = async |server: &Server, line: &str| {
        let line = format!("programs that use this Redis get {line}");
        let has_line = async || server.told().contains(&line).then_some(());
        sluicegate_testkit::until(&line, PATIENCE, has_line).await.unwrap();
    };
    let off = start(&redis, &file, "publish = false");
    logs(&off, "no policies: `store.publish` is false").await;
    let on = start(&redis, &file, "");
    logs(&on, "these policies").await;
    // The first would have published before.
    let fields = until(&redis, "the files", |fields| !fields.is_empty()).await;
    assert!(field(&fields, "orders").is_some());
}
