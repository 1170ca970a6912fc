//! Log lines about clients that use another protocol, or request a path that no policy guards.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use sluicegate_testkit::until;

use super::PATIENCE;
use crate::server::Server;

/// The bytes that a client gets after it has sent `bytes`, until the server closes the connection.
fn say(address: SocketAddr, bytes: &str) -> String {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(bytes.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    // A reset closes the connection as well, if the server did not read everything.
    client.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends two requests as a gateway does: both pass.
fn let_pass_twice(server: &Server) {
    for _ in 0..2 {
        let request = "GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nx-original-uri: /\r\nx-original-method: GET\r\n\
                       connection: close\r\n\r\n";
        let answer = say(server.address("http"), request);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// Waits until the log has `line`, and checks that it has it once.
async fn logged_once(server: &Server, line: &str) {
    let look = async || server.told().contains(line).then_some(());
    until(line, PATIENCE, look).await.unwrap_or_else(|_| panic!("{line}\n{}", server.told()));
    assert_eq!(server.told().matches(line).count(), 1, "{line}: {}", server.told());
}

#[tokio::test]
async fn a_client_of_another_protocol_is_logged_once_in_a_while() {
    let server = Server::start("");
    let [resp, http, admin, rls] =
        ["resp", "http", "admin", "rls"].map(|scheme| server.address(scheme));
    for _ in 0..3 {
        assert_eq!(say(resp, "GET /v1/check HTTP/1.1\r\nhost: localhost\r\n\r\n"), "");
        say(rls, "GET /v1/check HTTP/1.1\r\nhost: localhost\r\n\r\n");
        for address in [http, admin] {
            say(address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
    }
    let since = "its connection is closed (1 such connections since the last line)";
    let advice = "checks over HTTP belong to an address of `http.listen`";
    logged_once(&server, &format!("WARN {resp}: a client speaks HTTP, {since}; {advice}")).await;
    let advice =
        "this address speaks gRPC (HTTP/2); checks over HTTP belong to an address of `http.listen`";
    logged_once(&server, &format!("WARN {rls}: a client speaks no HTTP/2, {since}; {advice}"))
        .await;
    for address in [http, admin] {
        let advice =
            "this address speaks HTTP/1.1; gRPC of gateways belongs to an address of `rls.listen`";
        let line = format!("WARN {address}: a client speaks HTTP/2, {since}; {advice}");
        logged_once(&server, &line).await;
    }
}

#[tokio::test]
async fn a_decision_at_the_admin_address_names_the_right_one() {
    let server = Server::start("");
    let admin = server.address("admin");
    for path in ["/v1/check", "/v1/settle", "/v1/auth", "/v1/auth/login"] {
        for method in ["GET", "POST"] {
            let request =
                format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            let answer = say(admin, &request);
            assert!(answer.starts_with("HTTP/1.1 404 "), "{method} {path}: {answer}");
            let detail =
                "this is an address of `admin.listen`; decisions are made at `http.listen`";
            assert!(answer.contains(detail), "{method} {path}: {answer}");
        }
    }
    let answer = say(admin, "POST /apps HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && answer.contains("method not allowed"),
        "{answer}"
    );
    assert!(answer.contains("allow: GET,HEAD"), "{answer}");
}

#[tokio::test]
async fn a_request_for_a_policy_that_its_app_may_not_use_is_logged() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let policies = folder.path().join("policies.yaml");
    let document =
        "policies: [ { name: pay, apps: [shop], rules: [ { token_bucket: { rate: 1/s } } ] } ]";
    fs::write(&policies, document).expect("it can be written");
    let server = Server::start(&format!("[policies]\npath = '{}'\n", policies.display()));
    for app in ["", " APP web"] {
        let answer = say(server.address("resp"), &format!("SG.CHECK pay alice{app}\r\nQUIT\r\n"));
        assert!(answer.starts_with("*8\r\n:0\r\n"), "{answer}");
    }
    let line = "WARN resp: request for policy `pay` by no app, which may not use it, not decided \
                (1 such requests since the last line)";
    logged_once(&server, line).await;
}

#[tokio::test]
async fn a_client_that_speaks_tls_to_an_address_without_it_is_logged() {
    let server = Server::start("");
    let resp = server.address("resp");
    let mut client = TcpStream::connect(resp).expect("it listens");
    client.write_all(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 3, b'\r', b'\n']).expect("it reads");
    client.read_to_end(&mut Vec::new()).ok();
    let line = format!("WARN {resp}: a client speaks TLS, its connection is closed");
    logged_once(&server, &line).await;
}

#[tokio::test]
async fn a_gateway_that_names_no_app_is_logged_where_policies_are_for_apps() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let policies = folder.path().join("policies.yaml");
    let document = "policies: [ { name: pay, apps: [shop], match: { path: { prefix: / } }, \
                    rules: [ { token_bucket: { rate: 1/s } } ] } ]";
    fs::write(&policies, document).expect("it can be written");
    let server = Server::start(&format!("[policies]\npath = '{}'\n", policies.display()));
    let_pass_twice(&server);
    let line = "WARN forward-auth: a request without an app passed, because each policy that matches it has `apps` \
                (1 such requests since the last line); set `http.app`, or ask for /v1/auth?app=NAME";
    logged_once(&server, line).await;
}

#[tokio::test]
async fn gateways_that_no_policy_can_apply_to_are_logged() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let policies = folder.path().join("policies.yaml");
    let document = "policies: [ { name: pay, rules: [ { token_bucket: { rate: 1/s } } ] } ]";
    fs::write(&policies, document).expect("it can be written");
    let server = Server::start(&format!("[policies]\npath = '{}'\n", policies.display()));
    let_pass_twice(&server);
    let line = "WARN forward-auth: a request passed because no policy has `match` (1 such requests since the last \
                line); give policies `match`, or ask for one by /v1/auth/NAME";
    logged_once(&server, line).await;

    fs::write(&policies, "policies: []").expect("it can be written");
    logged_once(&server, "WARN policies: there are none now, so that no request is decided").await;
}
