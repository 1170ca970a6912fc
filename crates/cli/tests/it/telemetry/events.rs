//! `/v1/events` and `/v1/top`: decisions as they are made, and the keys that are refused most.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use super::{PATIENCE, Server};

/// Lines of an event stream, as they come.
fn watch(server: &Server, query: &str) -> impl Iterator<Item = String> + use<> {
    let mut stream = TcpStream::connect(server.address("admin")).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let request = format!("GET /v1/events{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("it goes on"));
    let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(head.iter().any(|line| line == "content-type: text/event-stream"), "{head:?}");
    lines
}

fn event(lines: &mut impl Iterator<Item = String>) -> Value {
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(ToOwned::to_owned));
    serde_json::from_str(&data.expect("an event")).expect("it is JSON")
}

#[test]
fn decisions_are_told_as_they_are_made_and_keys_are_not() {
    let server = Server::start();
    let mut refused = watch(&server, "?policy=login&result=refused");
    let mut all = watch(&server, "");
    for _ in 0..3 {
        server.check("login", "ann", "");
    }
    let (first, last) = (event(&mut all), event(&mut refused));
    assert_eq!((&first["result"], &first["remaining"]), (&"allowed".into(), &1.into()));
    assert_eq!((&last["result"], &last["rule"]), (&"refused".into(), &"tries".into()));
    assert!(last["retry_after_us"].as_u64().is_some_and(|retry| retry > 3_000_000_000), "{last}");
    assert_eq!(first["key"], last["key"]);
    assert!(first["key"].as_str().is_some_and(|key| key.starts_with('#')), "{first}");
    assert_eq!(first["weight"], 1);
}

#[test]
fn who_is_refused_most_is_a_hash_that_events_have_as_well() {
    let server = Server::start();
    let mut refused = watch(&server, "?policy=login&result=refused");
    for _ in 0..3 {
        server.check("login", "ann", "");
    }
    let (_, body) = server.see("/v1/top?policy=login", "");
    let seen: Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!(seen["top"][0]["key"], event(&mut refused)["key"]);
    assert!(!body.contains("ann"), "{body}");
}

#[test]
fn who_is_refused_most_is_shown_to_operators() {
    let clear = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(clear.path(), "[admin]\nkeys = 'clear'").unwrap();
    let options = ["--config", clear.path().to_str().unwrap()];
    let server = Server::start_with(&options, Stdio::inherit());
    let mut events = watch(&server, "");
    for (key, times) in [("ann\u{1b}", 6), ("bob", 4), ("cid", 2)] {
        for _ in 0..times {
            server.check("login", key, "");
        }
    }
    let (_, body) = server.see("/v1/top?policy=login&n=5", "");
    let seen: Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!(seen["top"][0]["key"], "ann\u{1b}");
    assert_eq!(event(&mut events)["key"], "ann\u{1b}", "one setting rules both");
    assert_eq!(seen["top"][0]["refused_at_least"], 4);
    assert_eq!((&seen["top"][1]["key"], &seen["top"][2]), (&"bob".into(), &Value::Null));
    for (path, status, problem) in [
        ("/v1/top?policy=n%0aope", "404", "policy: unknown policy `n\\nope`"),
        ("/v1/top?policy=login&n=65", "400", "n: `65` is outside 1..=64"),
        ("/v1/top", "400", "missing field `policy`"),
        ("/v1/events?polcy=login", "400", "unknown field `polcy`"),
    ] {
        let (head, body) = server.see(path, "");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {head}");
        assert!(body.contains(problem), "{path}: {body}");
    }
}

#[test]
fn a_policy_that_is_not_counted_on_its_own_is_not_called_unknown() {
    let policy = |number: u32| {
        format!("  - {{ name: p{number}, rules: [ {{ token_bucket: {{ rate: 1/s }} }} ] }}\n")
    };
    let policies: String = (0..2_001).map(policy).collect();
    let server = Server::serving(&format!("policies:\n{policies}"), &[], Stdio::inherit());
    let left_out = (0..2_001).map(|number| server.see(&format!("/v1/top?policy=p{number}"), "").1);
    let left_out: Vec<_> = left_out.filter(|body| !body.starts_with('{')).collect();
    let [problem] = &*left_out else { panic!("{left_out:?}") };
    assert!(problem.ends_with(" is not counted on its own, only 2000 policies are\n"), "{problem}");
}
