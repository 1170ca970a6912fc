//! `/v1/auth` itself, with requests like those of gateways.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::process::Command;

use sluicegate_testkit::need;

use super::PATIENCE;
use super::client::{GATEWAY, ask, send};
use super::stage::{Server, example};

const ASKS: &str = "x-original-uri: /a\r\nx-original-method: GET\r\n";

#[tokio::test]
async fn a_gateway_is_told_what_to_answer() {
    let server = need!(Server::start(&example("gateways/policies.yaml"), &[]).await);
    for _ in 0..5 {
        let call = ask(server.http, "/v1/auth", ASKS).await;
        assert_eq!((call.status, &*call.body), (200, ""), "{}", call.head);
        assert_eq!(call.header("x-sluicegate-verdict"), Some("pass"));
    }
    let refused = ask(server.http, "/v1/auth/site", ASKS).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.body.contains(r#""violated-policies":["per-client"]"#), "{}", refused.body);
    assert!(refused.body.contains(r#""status":429"#), "{}", refused.body);
    let refused = ask(server.http, "/v1/auth?deny=403", ASKS).await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains(r#""status":403"#), "{}", refused.body);
    let head =
        format!("HEAD /v1/auth HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{ASKS}\r\n");
    let refused = send(server.http, Ipv4Addr::LOCALHOST.into(), &head).await.expect("it answers");
    assert_eq!((refused.status, &*refused.body), (429, ""));
}

/// Policies with permits, by a field of the client's request.
const JOBS: &str = "
policies:
  - { name: jobs, key: ['header:x-user'], rules: [ { name: running, concurrency: { limit: 1, ttl: 1h } } ] }
  - { name: quiet, overflow: shadow, rules: [ { concurrency: { limit: 1, ttl: 1h } } ] }
";

#[tokio::test]
async fn a_gateway_that_names_a_policy_with_permits_gets_one_and_can_release_it() {
    let server = need!(Server::start(JOBS, &[]).await);
    for user in ["ann", "\"quoted\" \\", "\u{540d}\u{5b57}"] {
        let asks = format!("{ASKS}x-user: {user}\r\n");
        let held = ask(server.http, "/v1/auth/jobs", &asks).await;
        assert_eq!(held.status, 200, "{}", held.body);
        let release = held.header("x-sluicegate-permit").expect("it is held").to_owned();
        let refused = ask(server.http, "/v1/auth/jobs?deny=503", &asks).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("3600")));
        assert_eq!(refused.header("x-sluicegate-permit"), None);
        let length = release.len();
        let request = format!(
            "POST /v1/release HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{release}"
        );
        let released = send(server.http, Ipv4Addr::LOCALHOST.into(), &request).await.unwrap();
        assert!(released.body.contains(r#""allowed":true"#), "{release}: {}", released.body);
        assert_eq!(ask(server.http, "/v1/auth/jobs", &asks).await.status, 200, "{user}");
    }
    for _ in 0..2 {
        let shadow = ask(server.http, "/v1/auth/quiet", ASKS).await;
        assert_eq!(shadow.status, 200);
    }
    let shadow = ask(server.http, "/v1/auth/quiet", ASKS).await;
    assert_eq!(shadow.header("x-sluicegate-verdict"), Some("shadow"));
    assert_eq!(shadow.header("x-sluicegate-permit"), None);
}

#[tokio::test]
async fn what_is_wrong_with_the_question_is_told() {
    let server = need!(Server::start(&example("gateways/policies.yaml"), &[]).await);
    let site = "http.trusted_peers";
    for (path, headers, status, detail) in [
        ("/v1/auth", "", 500, "x-original-uri: is missing"),
        ("/v1/auth/nope", ASKS, 500, "unknown policy `nope`"),
        ("/v1/auth?a=b", ASKS, 500, "query: unknown field `a`"),
        (
            "/v1/auth",
            "x-original-uri: a\r\nx-original-method: GET\r\n",
            400,
            "path: does not begin",
        ),
    ] {
        let call = ask(server.http, path, headers).await;
        assert_eq!(call.status, status, "{path}: {}", call.body);
        assert!(call.body.contains(detail) && !call.body.contains(site), "{path}: {}", call.body);
    }
}

#[tokio::test]
async fn only_trusted_peers_are_believed() {
    let trust =
        "[admin]\nlisten = []\n[http]\nlisten = '127.0.0.1:0'\ntrusted_peers = '127.0.0.3'\n";
    let policies = example("gateways/policies.yaml");
    let server = need!(Server::start_with(&policies, &[], trust).await);
    let call = ask(server.http, "/v1/auth", ASKS).await;
    assert_eq!(call.status, 500);
    assert!(call.body.contains("peer `127.0.0.1` is not in http.trusted_peers"), "{}", call.body);
    // The client is 127.0.0.1 now: its gateway added that after the forged address.
    let mut statuses = Vec::new();
    for forged in 0..6 {
        let request = format!(
            "GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{ASKS}x-forwarded-for: 6.6.6.{forged}, 127.0.0.1\r\n\r\n"
        );
        let call = send(server.http, GATEWAY, &request).await.expect("it answers");
        statuses.push(call.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

#[tokio::test]
async fn whoever_comes_through_a_socket_is_on_this_machine_and_believed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let trust = format!(
        "[admin]\nlisten = []\n[http]\nlisten = ['127.0.0.1:0', 'unix:{}']\ntrusted_peers = []\n",
        socket.display()
    );
    let server = need!(Server::start_with(&example("gateways/policies.yaml"), &[], &trust).await);
    assert_eq!(ask(server.http, "/v1/auth", ASKS).await.status, 500);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request =
        format!("GET /v1/auth HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{ASKS}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[test]
fn what_is_no_network_is_refused_with_its_path() {
    let program = env!("CARGO_BIN_EXE_sluicegate");
    let output = Command::new(program)
        .args(["config", "check"])
        .env("SLUICEGATE__HTTP__TRUSTED_PEERS", "10.0.0.0/8,10.0.0.0/33")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{stderr}");
    assert!(
        stderr.contains("http.trusted_peers") && stderr.contains("invalid network `10.0.0.0/33`")
    );
}
