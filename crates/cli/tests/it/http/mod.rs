//! The HTTP wire for clients: the real program, started as users start it.
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

mod description;
mod hosts;
mod leases;
mod live;
mod overflow;
mod page;
mod redis;
mod shapes;
mod snapshot;
mod verbs;
mod waits;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::{Clock, Micros, MonotonicClock};

use crate::program::program;
use crate::program::{EXAMPLES, PATIENCE, Process};

struct Server {
    process: Process,
    address: SocketAddr,
    /// The admin address.
    admin: SocketAddr,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more options.
    fn start_with(options: &[&str]) -> Self {
        let policies = EXAMPLES;
        Self::spawn(policies, options, Stdio::inherit())
    }

    /// Starts a server with these policies, whose standard error goes to `told`.
    fn spawn(policies: &str, options: &[&str], told: Stdio) -> Self {
        let mut program = program();
        program
            .args(["serve", "--listen", "127.0.0.1:0", "--policies", policies])
            .args(options)
            .envs(["RESP", "RLS"].map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "off")))
            .env("SLUICEGATE__ADMIN__LISTEN", "127.0.0.1:0")
            .stderr(told);
        let process = Process::start(&mut program, 2);
        let (address, admin) = (process.address("http"), process.address("admin"));
        Self { process, address, admin }
    }

    /// Sends `request` as it is and returns status, headers and body.
    fn raw(&self, request: &[u8]) -> (u16, String, String) {
        raw(self.address, request)
    }
    /// A client that has sent the head of a check and `rest`, and was accepted.
    fn half_sent(&self, rest: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        let head =
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).expect("the server reads");
        // Connections are accepted in their order: this one comes after.
        let live = self.raw(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        assert_eq!(live.0, 200);
        stream
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let (status, head, body) = self.raw(request.as_bytes());
        let media = if status == 200 { "application/json" } else { "application/problem+json" };
        assert!(head.to_lowercase().contains(&format!("content-type: {media}")), "{head}");
        (status, serde_json::from_str(&body).unwrap())
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", &body.to_string())
    }
}

fn raw(address: SocketAddr, request: &[u8]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    stream.write_all(request).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("the server says text");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.expect("a status");
    description::holds(request, (status, head, body));
    (status, head.to_owned(), body.to_owned())
}

/// Status and body of the answer for `path`.
fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let (status, _, body) = raw(address, request.as_bytes());
    (status, body)
}

#[test]
fn five_logins_pass_and_the_sixth_is_refused_until_one_is_refunded_or_forgotten() {
    let server = Server::start();
    let alice = json!({"policy": "login", "key": "alice"});
    for remaining in (0..5).rev() {
        let (status, decision) = server.post("/v1/check", &alice);
        assert_eq!((status, &decision["allowed"]), (200, &json!(true)));
        assert_eq!(decision["remaining"], remaining);
        assert_eq!((&decision["limit"], &decision["rule"]), (&json!(5), &json!("tries")));
    }
    let (status, refused) = server.post("/v1/check", &alice);
    assert_eq!((status, &refused["allowed"]), (200, &json!(false)));
    assert!(refused["retry_after_us"].as_u64().unwrap() > 500_000_000, "{refused}");

    let (_, refunded) = server.post("/v1/refund", &alice);
    assert_eq!((&refunded["granted"], &refunded["remaining"]), (&json!(1), &json!(1)));
    let (_, peeked) = server.post("/v1/peek", &alice);
    assert_eq!((&peeked["allowed"], &peeked["remaining"]), (&json!(true), &json!(1)));
    let (_, reset) = server.post("/v1/reset", &alice);
    assert_eq!(reset["remaining"], 5);
    let (_, never) = server.post("/v1/check", &json!({"policy": "login", "key": "a", "cost": 6}));
    assert_eq!((&never["allowed"], &never["retry_after_us"]), (&json!(false), &Value::Null));
}

#[test]
fn bad_requests_get_a_problem_that_names_the_field_and_spend_nothing() {
    let server = Server::start();
    let bob = |field: &str, value: Value| {
        let mut body = json!({"policy": "login", "key": "bob"});
        body[field] = value;
        server.post("/v1/check", &body)
    };
    for (field, value, status, detail) in [
        ("cost", json!(0), 400, "cost: `0` is outside 1..=2147483648"),
        ("cost", json!(-1), 400, "cost: `-1` is not a whole number 1..=2147483648"),
        ("key", json!(""), 400, "key: is empty, expected 1..=1024 bytes"),
        ("key", json!("x".repeat(2048)), 400, "key: `2048` bytes are outside 1..=1024"),
        ("policy", json!("nope"), 404, "policy: unknown policy `nope`"),
        ("kee", json!("k"), 400, "unknown field `kee`"),
        ("key", json!(5), 400, "key: `5` is not a string of 1..=1024 bytes"),
        ("cost", Value::Null, 400, "cost: `null` is not a whole number 1..=2147483648"),
    ] {
        let (given, problem) = bob(field, value);
        assert_eq!(given, status, "{problem}");
        assert!(problem["detail"].as_str().unwrap().starts_with(detail), "{problem}");
        assert_eq!(problem["status"], status);
    }
    assert_eq!(server.post("/v1/check", &json!(["login", "bob"])).0, 400);
    let (_, decision) = server.post("/v1/peek", &json!({"policy": "login", "key": "bob"}));
    assert_eq!(decision["remaining"], 5);
}

#[test]
fn a_problem_repeats_no_more_of_the_request_than_a_line() {
    let server = Server::start();
    let long = "x".repeat(60_000);
    for body in [
        json!({"policy": long}),
        json!({"policy": "login", "key": [long]}),
        json!({"policy": "login", "cost": long}),
        json!({"policy": "login", (&long): 1}),
        json!(long),
    ] {
        let (status, problem) = server.post("/v1/check", &body);
        assert!((400..500).contains(&status), "{problem}");
        assert!(problem.to_string().len() < 500, "{problem}");
    }
}

#[test]
fn what_is_no_request_for_a_decision_is_told_so() {
    let server = Server::start();
    let body = r#"{"policy":"login"}"#;
    assert_eq!(server.send("POST", "/v1/check", "text/plain", body).0, 415);
    assert_eq!(server.send("GET", "/v1/check", "application/json", "").0, 405);
    assert_eq!(server.send("POST", "/v2/check", "application/json", body).0, 404);
    assert_eq!(server.send("POST", "/v1/check", "application/json", "{").0, 400);
    let (status, problem) =
        server.send("POST", "/v1/check", "application/json", &" ".repeat(65537));
    assert_eq!((status, &problem["detail"]), (413, &json!("body: more than 65536 bytes")));
    let live = server.raw(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert_eq!((live.0, live.2.as_str()), (200, "ok\n"));
}

/// Sends `server` the signal to stop, and returns once it no longer listens.
fn stop(server: &Server) {
    signal(server);
    let begin = MonotonicClock.now();
    while TcpStream::connect(server.address).is_ok() {
        assert!(since(begin) < PATIENCE, "the server still listens");
        std::thread::yield_now();
    }
}

fn since(begin: Micros) -> Duration {
    Duration::from_micros(MonotonicClock.now().since(begin).get())
}

fn signal(server: &Server) {
    server.process.signal("TERM");
}

#[test]
fn a_server_that_is_told_to_stop_ends_with_success() {
    let mut server = Server::start();
    stop(&server);
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn a_server_that_is_told_to_stop_waits_for_a_request_that_is_half_sent() {
    let mut server = Server::start();
    let body = r#"{"policy":"login"}"#;
    let mut client = server.half_sent(&format!("content-length: {}\r\n\r\n{{", body.len()));
    stop(&server);
    client.write_all(&body.as_bytes()[1..]).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""allowed":true"#));
    assert!(server.process.wait().unwrap().success());
}

#[test]
fn a_server_that_is_told_to_stop_twice_ends_at_once_whatever_is_half_sent() {
    for rest in ["x-half: ", "content-length: 10\r\n\r\n{"] {
        let mut server = Server::start();
        let mut client = server.half_sent(rest);
        stop(&server);
        let begin = MonotonicClock.now();
        signal(&server);
        assert_eq!(server.process.wait().unwrap().code(), Some(1));
        assert!(since(begin) < Duration::from_secs(5), "{:?}", since(begin));
        let mut answer = String::new();
        client.read_to_string(&mut answer).ok();
        assert_eq!(answer, "");
    }
}

#[test]
fn an_address_in_use_and_a_bad_document_are_errors_that_say_which() {
    let server = Server::start();
    let fail = |args: &[&str]| {
        let output = program().args(args).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let address = server.address.to_string();
    let in_use = fail(&["serve", "--listen", &address]);
    assert!(in_use.contains(&format!("cannot listen on {address}")), "{in_use}");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(fail(&["serve", "--policies", manifest]).contains("Cargo.toml:1:"));
    assert!(fail(&["policies", "check", "/nonexistent"]).contains("cannot read /nonexistent"));
}
