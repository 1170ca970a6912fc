//! Requests that wait for a permit, on one server and across servers that share a Redis.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::{Options, RedisServer, need, until};

use super::{Server, ask};
use crate::program::PATIENCE;

const POLICIES: &str = "
policies:
  - name: pool
    overflow: { queue: { max_wait: 1h } }
    rules: [ { concurrency: { limit: 1, ttl: 1h, queue: 100 } } ]
  - { name: bare, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
";

fn start(options: &[&str]) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    fs::write(&path, POLICIES).unwrap();
    Server::spawn(path.to_str().unwrap(), options, Stdio::inherit())
}

fn about(server: &Server, path: &str, id: &str) -> Value {
    let (status, answer) = server.post(path, &json!({"policy": "pool", "key": "k", "id": id}));
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// Waits until so many requests wait at `server`.
async fn waiting(server: &Server, count: usize) {
    let line = format!("sluicegate_held_requests {count}\n");
    let looked = until("requests wait", PATIENCE, async || {
        ask(server.admin, "/metrics").1.contains(&line).then_some(())
    });
    looked.await.expect("they come and go");
}

/// Has `second` wait at one server for a permit that `first` holds at another, and returns its answer.
async fn handed_over(first: &Server, second: &Server) -> Value {
    assert_eq!(about(first, "/v1/acquire", "one")["allowed"], true);
    thread::scope(|scope| {
        let waits = scope.spawn(|| about(second, "/v1/acquire", "two"));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(waiting(second, 1));
        });
        assert_eq!(about(first, "/v1/release", "one")["granted"], 1);
        waits.join().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_waits_until_a_permit_is_released() {
    let server = start(&[]);
    let passed = handed_over(&server, &server).await;
    assert_eq!((&passed["allowed"], &passed["granted"]), (&json!(true), &json!(1)), "{passed}");
    assert!(passed["held_us"].as_u64().unwrap() > 0, "{passed}");
    waiting(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_waits_for_a_permit_that_another_server_releases() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=5000", redis.url());
    let servers = [(); 2].map(|()| start(&["--store", &url]));
    let passed = handed_over(&servers[0], &servers[1]).await;
    assert_eq!((&passed["allowed"], passed.get("mode")), (&json!(true), None), "{passed}");
    // And back again: this server has heard of it, too.
    thread::scope(|scope| {
        let waits = scope.spawn(|| about(&servers[0], "/v1/acquire", "three"));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(waiting(&servers[0], 1));
        });
        assert_eq!(about(&servers[1], "/v1/release", "two")["granted"], 1);
        assert_eq!(waits.join().unwrap()["allowed"], true);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_that_disconnects_waits_no_longer_and_holds_nothing() {
    let server = start(&[]);
    about(&server, "/v1/acquire", "one");
    for id in ["", r#","id":"two""#] {
        let body = format!(r#"{{"policy":"pool","key":"k"{id}}}"#);
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = "POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
        let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        waiting(&server, 1).await;
        drop(stream);
        waiting(&server, 0).await;
    }
    about(&server, "/v1/release", "one");
    let free = until("a permit is free", PATIENCE, async || {
        let passed = about(&server, "/v1/acquire", "three");
        (passed["allowed"] == true).then_some(())
    });
    free.await.expect("nobody waits before it");
}

#[test]
fn the_wait_of_a_request_ends_and_needs_a_queue() {
    let server = start(&[]);
    about(&server, "/v1/acquire", "one");
    let ask = |policy: &str, wait: Value| {
        server.post("/v1/acquire", &json!({"policy": policy, "key": "k", "max_wait_ms": wait}))
    };
    let (status, refused) = ask("pool", json!(20));
    assert_eq!((status, &refused["allowed"]), (200, &json!(false)), "{refused}");
    let held = Duration::from_micros(refused["held_us"].as_u64().unwrap());
    assert!(held >= Duration::from_millis(20) && held < PATIENCE, "{refused}");
    let (status, problem) = ask("bare", json!(20));
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        status == 400 && detail.contains("not every `concurrency` rule has a `queue`"),
        "{problem}"
    );
    let (status, problem) = ask("pool", json!(-1));
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 400 && detail.contains("max_wait_ms"), "{problem}");
}
