//! Listeners that permit some verbs only.

use serde_json::{Value, json};
use tonic::Code;

use super::Server;
use super::wires::ask_login;
use crate::program::{Process, serve};

/// A server on which each wire permits `verbs`.
fn start(verbs: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    let config =
        ["http", "resp", "rls"].map(|wire| format!("[{wire}]\nverbs = {verbs}\n")).concat();
    Server { process: Process::start(&mut serve(&folder, &config), 4) }
}

#[tokio::test]
async fn a_verb_that_is_not_permitted_is_refused_and_the_others_are_decided() {
    let server = start("['check', 'peek']");
    for (path, body, expected) in [
        ("/v1/check", json!({"policy": "login", "key": "k"}), 200),
        ("/v1/check", json!({"policy": "login", "key": "k", "max_wait_ms": 1}), 200),
        ("/v1/check:batch", json!({"checks": [{"policy": "login", "key": "k"}]}), 200),
        ("/v1/peek", json!({"policy": "login", "key": "k"}), 200),
        ("/v1/explain", json!({"policy": "login", "key": "k"}), 200),
        ("/v1/at_most", json!({"policy": "login", "key": "k"}), 403),
        ("/v1/refund", json!({"policy": "login", "key": "k"}), 403),
        ("/v1/reset", json!({"policy": "login", "key": "k"}), 403),
        ("/v1/acquire", json!({"policy": "login", "key": "k"}), 403),
        ("/v1/settle", json!({}), 403),
    ] {
        let (status, head, answer) = server.http(&format!("POST {path}"), "", &body.to_string());
        assert_eq!(status, expected, "{path}: {answer}");
        if status == 403 {
            let problem: Value = serde_json::from_str(&answer).unwrap();
            let verb = path.trim_start_matches("/v1/");
            assert_eq!(
                problem["detail"],
                format!("the verb `{verb}` is not permitted on this address")
            );
            assert_eq!(problem["type"], "urn:sluicegate:problem:verb");
            assert!(head.contains("application/problem+json"), "{head}");
        }
    }
    let answered = server.raw("resp", "SG.RESET login k\r\nSG.PEEK login k\r\nQUIT\r\n");
    let refused = "-NOPERM the verb `reset` is not permitted on this address\r\n*8\r\n";
    assert!(answered.starts_with(refused), "{answered}");
    assert_eq!(ask_login(&server, None).await, None);
    let metrics = server.raw("admin", "GET /metrics HTTP/1.0\r\n\r\n");
    let refused = r#"sluicegate_callers_refused_total{wire="http",reason="verb"} 5"#;
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn a_listener_for_peeks_admits_no_checks_of_gateways_either() {
    let server = start("'peek'");
    assert_eq!(ask_login(&server, None).await, Some(Code::PermissionDenied));
    let gateway = "x-original-uri: /\r\nx-original-method: GET\r\n";
    let (status, _, answer) = server.http("GET /v1/auth/login", gateway, "");
    assert_eq!(status, 500, "{answer}");
    assert!(answer.contains("the verb `check` is not permitted"), "{answer}");
}

#[test]
fn an_unknown_verb_and_an_empty_list_are_errors_with_the_list() {
    let folder = tempfile::tempdir().unwrap();
    for (verbs, words) in [
        (
            "['chek']",
            "http.verbs[0]: unknown variant `chek`, expected one of `check`, `at_most`, `peek`",
        ),
        ("[]", "http.verbs: is empty: expected one or more of `check`, `at_most`, `peek`"),
        ("'off'", "http.verbs: is empty"),
    ] {
        let ended = serve(&folder, &format!("[http]\nverbs = {verbs}\n")).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && told.contains(words), "{told}");
    }
}
