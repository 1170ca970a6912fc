//! Hosts for which the real server answers: pages in browsers send a host of their own.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Server, ask, raw};
use crate::program::program;

/// The answer to a request that a browser sends for a page of `evil.example`, a name that resolves
/// to this machine.
fn from_a_page(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let (port, length) = (address.port(), body.len());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\n\
         Sec-Fetch-Site: same-origin\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    raw(address, request.as_bytes())
}

#[test]
fn a_page_whose_name_leads_here_is_answered_nothing() {
    let server = Server::start();
    let alice = json!({"policy": "login", "key": "alice"});
    for _ in 0..5 {
        server.post("/v1/check", &alice);
    }
    let body = alice.to_string();
    for (address, method, path) in [
        (server.address, "POST", "/v1/check"),
        (server.address, "POST", "/v1/reset"),
        (server.address, "POST", "/v1/check:batch"),
        (server.address, "POST", "/json"),
        (server.address, "GET", "/v1/auth"),
        (server.address, "GET", "/v1/openapi.json"),
        (server.address, "GET", "/nowhere"),
        (server.admin, "GET", "/v1/top?policy=login"),
        (server.admin, "GET", "/v1/events"),
        (server.admin, "GET", "/v1/policies"),
        (server.admin, "GET", "/metrics"),
        (server.admin, "GET", "/v1/admin/openapi.json"),
        (server.admin, "GET", "/v1/admin/meta"),
        (server.admin, "POST", "/v1/admin/setup"),
    ] {
        let (status, head, said) = from_a_page(address, method, path, &body);
        assert_eq!(status, 421, "{method} {path}: {head}");
        assert!(head.to_lowercase().contains("application/problem+json"), "{head}");
        let problem: Value = serde_json::from_str(&said).unwrap();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("host: `evil.example` is not allowed"), "{detail}");
        assert!(detail.contains("server.allowed_hosts"), "{detail}");
    }
    let (_, decision) = server.post("/v1/peek", &alice);
    assert_eq!(decision["remaining"], 0, "it was not reset: {decision}");
    for path in ["/livez", "/healthz", "/readyz"] {
        assert_eq!(from_a_page(server.admin, "GET", path, "").0, 200, "{path}");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(from_a_page(server.address, "GET", path, "").0, 200, "{path}");
    }
}

#[test]
fn hosts_that_are_configured_are_answered() {
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), "[server]\nallowed_hosts = ['gate.example', 'evil.example']").unwrap();
    let config = config.path().to_str().unwrap();
    let server = Server::start_with(&["--config", config]);
    let body = json!({"policy": "login", "key": "alice"}).to_string();
    assert_eq!(from_a_page(server.address, "POST", "/v1/check", &body).0, 200);
    assert_eq!(from_a_page(server.admin, "GET", "/v1/policies", "").0, 200);
    assert_eq!(ask(server.admin, "/v1/policies").0, 200);
    let check = |value: &str| {
        let mut check = program();
        let check = check.args(["config", "check"]).env("SLUICEGATE__SERVER__ALLOWED_HOSTS", value);
        let output = check.stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(check("gate.example, 10.0.0.7, [::7]"), "");
    for wrong in ["http://gate.example", "gate.example:80", "[::7]:80", "*"] {
        let told = check(wrong);
        let problem = format!("server.allowed_hosts: invalid host `{wrong}`");
        assert!(told.contains(&problem), "{told}");
    }
}

#[test]
fn a_request_without_a_host_or_with_two_is_refused_on_every_address() {
    let server = Server::start();
    for (address, path) in [(server.address, "/v1/openapi.json"), (server.admin, "/metrics")] {
        for (version, hosts, expected) in [
            ("1.1", "", 400),
            ("1.1", "host: localhost\r\nhost: localhost\r\n", 400),
            ("1.1", "host: localhost\r\n", 200),
            ("1.0", "host: localhost\r\nhost: localhost\r\n", 400),
            ("1.0", "host: evil.example\r\n", 421),
            ("1.0", "", 200),
        ] {
            let request = format!("GET {path} HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
            let (status, _, body) = raw(address, request.as_bytes());
            assert_eq!(status, expected, "{version} {hosts} {body}");
        }
    }
}

#[test]
fn a_server_without_a_catalog_says_that_there_is_none() {
    let server = Server::start();
    let (status, meta) = ask(server.admin, "/v1/admin/meta");
    let meta: Value = serde_json::from_str(&meta).unwrap();
    assert_eq!((status, &meta["catalog"], &meta["setup_due"]), (200, &json!("none"), &json!(null)));
    let (status, problem) = ask(server.admin, "/v1/admin/session");
    assert_eq!(status, 404);
    assert!(problem.contains("no catalog is configured: start with `--catalog URL`"), "{problem}");
}
