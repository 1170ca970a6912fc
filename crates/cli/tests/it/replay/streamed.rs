//! A replay of the events of a server decides as the server did.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::program::PATIENCE;
use crate::replay::{lines, replay};
use crate::server::Server;

const POLICIES: &str = "policies:
  - { name: bucket, rules: [ { token_bucket: { rate: 20/s, burst: 5 } } ] }
  - { name: quota, rules: [ { fixed_window: { limit: 7, window: 1s, align: first } } ] }
  - { name: line, overflow: { queue: { max_wait: 300ms } }, rules: [ { token_bucket: { rate: 20/s, burst: 2 } } ] }
  - { name: tag, overflow: { degrade: { tag: t } }, rules: [ { sliding_log: { limit: 2, window: 1s } } ] }
  - { name: jobs, rules: [ { concurrency: { limit: 2, ttl: 150ms } } ] }
  - { name: site, match: { path: { prefix: / } }, key: [remote_ip], rules: [ { leaky_bucket: { rate: 30/s, burst: 3 } } ] }
  - { name: wiki, match: { path: { prefix: /wiki } }, key: [remote_ip], rules: [ { token_bucket: { rate: 5/s, burst: 3 } } ] }
";

/// Requests of a client, one after the other: fewer than the 200 events a second that a worker sends.
const REQUESTS: usize = 150;

/// Sends `request` on a connection of its own, and returns the answer.
fn say(server: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// A random request of any kind.
fn any_request(rng: &mut Rng) -> String {
    const CLOSE: &str = "host: localhost\r\nconnection: close\r\n";
    if rng.u8(0..4) == 0 {
        let path = ["/", "/wiki", "/wiki/a"][rng.usize(0..3)];
        let from = format!(
            "X-Original-URI: {path}\r\nX-Original-Method: GET\r\nX-Real-IP: 203.0.113.9\r\n"
        );
        return format!("GET /v1/auth HTTP/1.1\r\n{CLOSE}{from}\r\n");
    }
    let policy = ["bucket", "quota", "line", "tag", "jobs"][rng.usize(0..5)];
    let (key, cost) = (["k", "l", "é"][rng.usize(0..3)], rng.u32(1..4));
    let mut body = json!({ "policy": policy, "key": key });
    let verb = if policy == "jobs" {
        let verb = ["acquire", "acquire", "acquire", "release", "renew", "peek"][rng.usize(0..6)];
        if verb != "peek" {
            body["id"] = json!(["a", "b", "c"][rng.usize(0..3)]);
        }
        verb
    } else {
        let verb =
            ["check", "check", "check", "check", "peek", "refund", "reset", "at_most", "reserve"]
                [rng.usize(0..9)];
        if verb != "reset" {
            body["cost"] = json!(cost);
        }
        if verb == "reserve" {
            body["max_wait_ms"] = json!(rng.u32(0..100));
        }
        verb
    };
    let (path, body) = (if verb == "reserve" { "check" } else { verb }, body.to_string());
    let mut request =
        format!("POST /v1/{path} HTTP/1.1\r\n{CLOSE}content-type: application/json\r\n");
    write!(request, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    request
}

/// The fields that a decision and an event share.
fn decided(line: &Value) -> Vec<&Value> {
    let fields = ["policy", "key", "rule", "limit", "remaining", "retry_after_us"];
    fields.iter().map(|field| &line[*field]).collect()
}

#[test]
fn events_of_a_server_that_lost_none_are_decided_again_as_it_decided() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.yaml");
    fs::write(&path, POLICIES).unwrap();
    let server = Server::start(&format!("[policies]\npath = {path:?}\n[admin]\nkeys = \"clear\""));
    let mut stream = TcpStream::connect(server.address("admin")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream).lines();
    let head = stream.by_ref().take_while(|line| !line.as_ref().unwrap().is_empty());
    assert!(head.map(Result::unwrap).any(|line| line == "content-type: text/event-stream"));
    let seed = 1;
    let mut rng = Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..REQUESTS {
        let answer = say(server.address("http"), &any_request(&mut rng));
        assert!(!answer.starts_with("HTTP/1.1 400"), "{answer}");
        refused += usize::from(
            answer.starts_with("HTTP/1.1 403")
                || answer.contains(":-1")
                || answer.contains("\"allowed\":false"),
        );
    }
    assert!(refused > REQUESTS / 20, "{refused} were refused");
    // The stream is silent after the last request.
    let events: Vec<_> =
        stream.map_while(Result::ok).filter(|line| line.starts_with("data: ")).collect();
    assert!(events.len() >= REQUESTS, "{}", events.len());

    let replayed = replay(POLICIES, events.join("\n"), &["--decisions", "-", "--json"]);
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    let decisions = lines(&replayed.stdout);
    let mut told = lines(
        &events.iter().map(|line| format!("{}\n", &line["data: ".len()..])).collect::<String>(),
    );
    // The event of a held request comes when it passes.
    told.sort_by_key(|event| event["at_us"].as_u64());
    assert_eq!(decisions.len(), told.len());
    for (decision, event) in decisions.iter().zip(&told) {
        let passes = event["result"] != "refused";
        let agrees =
            decided(decision) == decided(event) && (decision["verdict"] != "refuse") == passes;
        assert!(agrees, "seed {seed}: {decision} of {event}");
    }
    let summary = replayed.stderr;
    for nothing in ["\"unseen\": 0,", "\"differing\": 0,"] {
        assert!(summary.contains(nothing), "{summary}");
    }
}

#[test]
fn what_the_stream_left_out_and_what_was_decided_otherwise_is_counted() {
    let event = |at_us: u64, result: &str, weight: u64| {
        format!(
            r#"{{"at_us":{at_us},"wire":"http","policy":"quota","verb":"check","cost":1,"result":"{result}","key":"k","weight":{weight}}}"#
        )
    };
    let events = [event(2, "allowed", 1), event(1, "refused", 3), r#"{"missed":5}"#.to_owned()];
    let replayed = replay(POLICIES, events.join("\n"), &["--json"]);
    let summary: Value = serde_json::from_str(&replayed.stdout).unwrap();
    assert_eq!((&summary["unseen"], &summary["differing"]), (&json!(7), &json!(1)));
    assert_eq!(replayed.code, 0, "{}", replayed.stderr);
    let text = replay(POLICIES, events.join("\n"), &[]).stdout;
    for row in [
        "missing decisions                          7",
        "different decisions                        1",
    ] {
        assert!(text.contains(row), "{text}");
    }
}
