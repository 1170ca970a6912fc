//! A server without a catalog whose tokens are in a file: the real program and its client.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use sluicegate_testkit::until;
use tempfile::TempDir;
use tonic::Code;

use super::Server;
use super::wires::ask_login;
use crate::program::{PATIENCE, Process, program, serve};

const OLD: &str = "old-0123456789abcdef";
const NEW: &str = "new-0123456789abcdef";

/// Writes a file that only its owner can read.
fn secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A server whose `http` and `rls` require a token of the returned file.
fn start(folder: &TempDir, text: &str) -> (Server, PathBuf) {
    let file = folder.path().join("tokens");
    secret(&file, text);
    let config = format!("[http]\ntoken_file = {file:?}\n[rls]\ntoken_file = {file:?}\n");
    (Server { process: Process::start(&mut serve(folder, &config), 4) }, file)
}

/// The status, the challenge and the problem type of a check with this header field.
fn check(server: &Server, path: &str, field: &str) -> (u16, Option<String>, Option<String>) {
    let body = json!({ "policy": "login", "key": "k" }).to_string();
    let (status, head, body) = server.http(&format!("POST {path}"), field, &body);
    let challenge = head.lines().find_map(|line| line.strip_prefix("www-authenticate: "));
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    (status, challenge.map(str::to_owned), body["type"].as_str().map(str::to_owned))
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn client(server: &Server, token_file: &Path) -> Output {
    let mut client = program();
    client.args(["check", "login", "k", "--to"]).arg(format!("http://{}", server.address("http")));
    client.arg("--token-file").arg(token_file).output().unwrap()
}

#[tokio::test]
async fn a_request_needs_a_token_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _) = start(&folder, &format!("# of the gateway\n{OLD}\n{NEW}\n"));
    for path in ["/v1/check", "/v1/peek"] {
        for token in [OLD, NEW] {
            assert_eq!(check(&server, path, &bearer(token)), (200, None, None), "{path}");
        }
        let missing =
            (401, Some("bearer".to_owned()), Some("urn:sluicegate:problem:no-token".into()));
        assert_eq!(check(&server, path, ""), missing, "{path}");
        let invalid = Some(r#"bearer error="invalid_token""#.to_owned());
        let invalid = (401, invalid, Some("urn:sluicegate:problem:bad-token".into()));
        assert_eq!(check(&server, path, &bearer("other-0123456789")), invalid, "{path}");
    }
    assert_eq!(ask_login(&server, Some(OLD)).await, None);
    assert_eq!(ask_login(&server, None).await, Some(Code::Unauthenticated));
    assert_eq!(ask_login(&server, Some("other-0123456789")).await, Some(Code::Unauthenticated));
    assert_eq!(server.http("GET /readyz", "", "").0, 200);
    let descriptor = r#"{"domain":"sluicegate","descriptors":[{"entries":[{"key":"policy","value":"login"},{"key":"key","value":"k"}]}]}"#;
    assert_eq!(server.http("POST /json", "", descriptor).0, 401);
    assert_eq!(server.http("POST /json", &bearer(NEW), descriptor).0, 200);
    let metrics = server.raw("admin", "GET /metrics HTTP/1.0\r\n\r\n");
    for refused in [r#"wire="http",reason="missing"} 3"#, r#"wire="rls",reason="unknown"} 1"#] {
        assert!(
            metrics.contains(&format!("sluicegate_callers_refused_total{{{refused}\n")),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn a_changed_file_is_in_effect_after_a_hangup_and_an_invalid_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    secret(&file, OLD);
    let log = folder.path().join("log");
    let mut serving = serve(&folder, &format!("[http]\ntoken_file = {file:?}\n"));
    serving.stderr(fs::File::create(&log).unwrap());
    let server = Server { process: Process::start(&mut serving, 4) };
    secret(&file, NEW);
    server.process.signal("HUP");
    let replaced = async || (check(&server, "/v1/check", &bearer(NEW)).0 == 200).then_some(());
    until("the new token is valid", PATIENCE, replaced).await.unwrap();
    assert_eq!(check(&server, "/v1/check", &bearer(OLD)).0, 401);
    secret(&file, "short");
    server.process.signal("HUP");
    let kept = "token file: reload failed, keeping the current tokens";
    let rejected = async || fs::read_to_string(&log).unwrap().contains(kept).then_some(());
    until("the file is rejected", PATIENCE, rejected).await.unwrap();
    assert_eq!(check(&server, "/v1/check", &bearer(NEW)).0, 200);
}

#[test]
fn the_client_sends_the_token_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (server, file) = start(&folder, OLD);
    let checked = client(&server, &file);
    assert!(checked.status.success(), "{checked:?}");
    let wrong = folder.path().join("wrong");
    secret(&wrong, NEW);
    let refused = client(&server, &wrong);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("invalid token"), "{told}");
}

#[test]
fn a_token_file_that_cannot_be_used_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    secret(&file, "short");
    let of_file = format!("[http]\ntoken_file = {file:?}\n");
    for (config, words) in [
        (of_file.clone(), "tokens: line 1: `5` bytes are outside 16..=256"),
        (
            format!("{of_file}[catalog]\nurl = 'sqlite:c.db'\n"),
            "http.token_file: cannot be combined with `catalog.url`",
        ),
    ] {
        let ended = serve(&folder, &config).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && told.contains(words), "{told}");
    }
}
