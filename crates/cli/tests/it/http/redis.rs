//! Servers that share a Redis, and their behaviour without it.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, need, until};
use tempfile::TempDir;

use super::{Server, signal};
use crate::program::{EXAMPLES, program};

/// Deadline of a call, ms, with room for a busy machine.
const DEADLINE_MS: u64 = 20;

/// Longest time until a server notices a change of its Redis, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `done`.
async fn soon(what: &str, mut done: impl FnMut() -> bool) {
    until(what, PATIENCE, async || done().then_some(())).await.expect("it comes true soon");
}

fn login(server: &Server, key: &str) -> Value {
    let (status, decision) = server.post("/v1/check", &json!({"policy": "login", "key": key}));
    assert_eq!(status, 200, "{decision}");
    decision
}

#[tokio::test]
async fn two_servers_on_one_redis_share_every_budget() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=5000", redis.url());
    let servers = [(); 2].map(|()| Server::start_with(&["--store", &url]));
    for remaining in (0..5).rev() {
        let decision = login(&servers[remaining % 2], "alice");
        assert_eq!(decision["remaining"], remaining, "{decision}");
        assert!(decision.get("mode").is_none(), "{decision}");
    }
    for server in &servers {
        assert_eq!(login(server, "alice")["allowed"], false);
    }
    let (_, reset) = servers[0].post("/v1/reset", &json!({"policy": "login", "key": "alice"}));
    assert_eq!(reset["remaining"], 5);
    // The other server remembers the refusal for a second at most.
    soon("it passes", || login(&servers[1], "alice")["allowed"] == true).await;
}

#[tokio::test]
async fn without_redis_a_server_answers_at_once_says_so_and_is_back_with_it() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms={DEADLINE_MS}", redis.url());
    let server = Server::start_with(&["--store", &url]);
    soon("Redis decides", || login(&server, "bob").get("mode").is_none()).await;
    redis.kill();
    soon("the loss is noticed", || login(&server, "carol")["mode"] == "local").await;
    for left in (0..5).rev() {
        let decision = login(&server, "dave");
        assert_eq!((&decision["mode"], &decision["remaining"]), (&json!("local"), &json!(left)));
    }
    assert_eq!(login(&server, "dave")["allowed"], false);
    let (status, problem) = server.post("/v1/reset", &json!({"policy": "login", "key": "dave"}));
    assert_eq!(status, 503, "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.starts_with("store: ")));
    redis.restart().await.expect("it comes back on its port");
    soon("Redis decides again", || login(&server, "erin").get("mode").is_none()).await;
}

#[tokio::test]
async fn a_server_starts_without_its_redis_and_finds_it_later() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    redis.kill();
    let server = Server::start_with(&["--store", &redis.url()]);
    assert_eq!(login(&server, "alice")["mode"], "local");
    redis.restart().await.expect("it comes back on its port");
    soon("Redis decides", || login(&server, "bob").get("mode").is_none()).await;
}

/// A server on the Redis at `url`, and the file with its standard error.
fn telling(url: &str, policies: &str, folder: &TempDir) -> (Server, PathBuf) {
    let file = folder.path().join("told");
    let told = File::create(&file).expect("there is room for it");
    (Server::spawn(policies, &["--store", url], told.into()), file)
}

/// The output of `sluicegate status` for the server.
fn status(server: &Server) -> String {
    let to = format!("http://{}", server.admin);
    let ran = program().args(["status", "--to", &to]).output().expect("the program is built");
    String::from_utf8(ran.stdout).expect("it prints text")
}

#[tokio::test]
async fn a_server_that_started_without_its_redis_tells_how_that_ended() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    redis.kill();
    let folder = tempfile::tempdir().expect("there is room for files");
    let (mut server, file) = telling(&redis.url(), EXAMPLES, &folder);
    let told = || std::fs::read_to_string(&file).expect("it was made");
    assert!(
        told().contains("retrying, meanwhile falling back to `on_store_failure`"),
        "{}",
        told()
    );
    redis.restart().await.expect("it comes back on its port");
    // No request came meanwhile.
    soon("it is back", || told().contains("available again after ")).await;
    assert!(told().contains(" s; 0 decisions without it\n"), "{}", told());
    redis.kill();
    soon("it is gone", || told().contains(": unavailable (")).await;
    let login = login(&server, "alice");
    assert_eq!((&login["mode"], &login["allowed"]), (&json!("local"), &json!(true)));
    signal(&server);
    server.process.wait().expect("it was started");
    let told = told();
    assert!(
        told.contains("still unavailable after ") && told.contains("; 1 decisions without"),
        "{told}"
    );
    let lost =
        "permits of 1 key that were admitted without it are never charged: this server stops";
    assert!(told.contains(lost), "{told}");
}

#[tokio::test]
async fn a_redis_that_is_full_is_told_of_and_shown_also_if_little_is_asked() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let folder = tempfile::tempdir().expect("there is room for files");
    let (server, file) = telling(&redis.url(), EXAMPLES, &folder);
    soon("Redis decides", || login(&server, "bob").get("mode").is_none()).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]).await.expect("it answers");
    let told = || std::fs::read_to_string(&file).expect("it was made");
    let problem = "redis refused the call: OOM command not allowed";
    soon("it is logged", || told().contains(&format!("unavailable ({problem}"))).await;
    assert!(told().contains("(its memory is full: raise `maxmemory`)"), "{}", told());
    let shown = status(&server);
    assert!(shown.contains(": unavailable since ") && shown.contains(problem), "{shown}");
    assert_eq!(login(&server, "carol")["mode"], "local");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]).await.expect("it answers");
    soon("it is well", || told().contains("available again after ")).await;
    assert!(status(&server).contains(": ok\n"));
}

#[tokio::test]
async fn permits_that_only_one_server_knows_are_told_when_redis_is_back() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let folder = tempfile::tempdir().expect("there is room for files");
    let policies = folder.path().join("policies.yaml");
    let jobs = "policies: [ { name: jobs, rules: [ { concurrency: { limit: 3, ttl: 5m } } ] } ]";
    std::fs::write(&policies, jobs).expect("it is new");
    redis.kill();
    let (mut server, file) = telling(&redis.url(), policies.to_str().expect("text"), &folder);
    for id in ["one", "two"] {
        let (_, held) = server.post("/v1/acquire", &json!({"policy": "jobs", "id": id}));
        assert_eq!((&held["mode"], &held["allowed"]), (&json!("local"), &json!(true)), "{held}");
    }
    redis.restart().await.expect("it comes back on its port");
    let told = || std::fs::read_to_string(&file).expect("it was made");
    let known = "; permits of `concurrency` rules that only this server counts: 2";
    soon("it is logged", || told().contains(known)).await;
    // Redis is available when the server stops, and charges no more than before.
    let before = told().len();
    signal(&server);
    server.process.wait().expect("it was started");
    let stopped = told().split_off(before);
    assert!(stopped.contains("permits of 1 key that were admitted without it"), "{stopped}");
    assert!(!stopped.contains("unavailable"), "{stopped}");
}

#[tokio::test]
async fn a_server_that_stops_pays_what_it_let_pass_without_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms={DEADLINE_MS}", redis.url());
    let mut server = Server::start_with(&["--store", &url]);
    soon("Redis decides", || login(&server, "bob").get("mode").is_none()).await;
    redis.stop_process().expect("it is there");
    // Three decisions that certainly did not reach Redis.
    let mut key = String::new();
    let is_local = |decision: Value| decision["mode"] == "local" && decision["allowed"] == true;
    soon("three pass without Redis", || {
        key.push('x');
        (0..3).all(|_| is_local(login(&server, &key)))
    })
    .await;
    // Redis returns after the signal, so no request charges the permits.
    signal(&server);
    redis.continue_process().expect("it is there");
    assert!(server.process.wait().expect("it stops").success());
    let next = Server::start_with(&["--store", &redis.url()]);
    let (_, left) = next.post("/v1/peek", &json!({"policy": "login", "key": key}));
    assert_eq!((&left["remaining"], left.get("mode")), (&json!(2), None), "{left}");
}

#[tokio::test]
async fn a_server_that_is_asked_for_nothing_pays_once_redis_is_back() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms={DEADLINE_MS}", redis.url());
    let server = Server::start_with(&["--store", &url]);
    soon("Redis decides", || login(&server, "bob").get("mode").is_none()).await;
    redis.stop_process().expect("it is there");
    let mut number = 0;
    soon("Redis is given up", || {
        number += 1;
        login(&server, &format!("key {number}"));
        number >= 20
    })
    .await;
    for _ in 0..3 {
        let decision = login(&server, "alice");
        assert_eq!((&decision["mode"], &decision["allowed"]), (&json!("local"), &json!(true)));
    }
    redis.continue_process().expect("it is there");
    let other = Server::start_with(&["--store", &redis.url()]);
    let left = || other.post("/v1/peek", &json!({"policy": "login", "key": "alice"})).1;
    soon("the debt is paid", || left()["remaining"] == 2).await;
}

#[tokio::test]
async fn a_permit_whose_name_nobody_has_heard_is_released_and_one_with_a_name_stays_held() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(redis.address()).await.expect("a free port");
    let folder = tempfile::tempdir().expect("there is room for files");
    let policies = folder.path().join("policies.yaml");
    let jobs = "policies: [ { name: jobs, rules: [ { concurrency: { limit: 3, ttl: 5m } } ] } ]";
    std::fs::write(&policies, jobs).expect("it is new");
    let server = |url: &str| {
        let url = format!("{url}?deadline_ms=5000");
        Server::spawn(policies.to_str().expect("text"), &["--store", &url], Stdio::inherit())
    };
    let slow = server(&format!("redis://{}", proxy.address()));
    let other = server(&redis.url());
    let left = |server: &Server| {
        let (status, left) = server.post("/v1/peek", &json!({"policy": "jobs"}));
        assert_eq!((status, left.get("mode")), (200, None), "{left}");
        left["remaining"].as_u64().expect("a number")
    };
    assert_eq!((left(&slow), left(&other)), (3, 3));
    // Long enough that both requests are abandoned before they are answered.
    let late = Faults::delay(Duration::ZERO, Duration::from_millis(1_500));
    proxy.set(late).await.expect("the proxy is there");
    let ask = |body: &str| {
        let mut client = TcpStream::connect(slow.address).expect("it listens");
        let head = "POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let length = body.len();
        write!(client, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").expect("it reads");
        client
    };
    // Requests for one key run one after the other: the second once the first was answered.
    let named = ask(r#"{"policy":"jobs","id":"mine"}"#);
    soon("one is held", || left(&other) == 2).await;
    let nameless = ask(r#"{"policy":"jobs"}"#);
    soon("both are held", || left(&other) == 1).await;
    drop((named, nameless));
    soon("one is released", || left(&other) == 2).await;
    proxy.heal().await.expect("the proxy is there");
    let (_, renewed) = other.post("/v1/renew", &json!({"policy": "jobs", "id": "mine"}));
    assert_eq!((&renewed["allowed"], left(&other)), (&json!(true), 2), "{renewed}");
}

#[test]
fn a_store_that_makes_no_sense_is_refused_without_repeating_a_password() {
    for (url, problem) in [
        (
            "rediss//:hunter2@h",
            "store.url: expected `memory`, or the URL of a Redis: scheme: expected redis",
        ),
        ("redis://:hunter2@h/1?deadline_ms=0", "store.url: deadline_ms: `0` is outside 1..=10000"),
    ] {
        let program = env!("CARGO_BIN_EXE_sluicegate");
        let output = Command::new(program).args(["serve", "--store", url]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(problem), "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}
