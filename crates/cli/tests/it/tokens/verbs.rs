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
    assert!(answer.contains(r#""detail":"the verb `check` is not permitted"#), "{answer}");
}

/// The status and the text of the answer to a message with one descriptor in a domain.
fn descriptor(server: &Server, domain: &str, descriptor: &Value) -> (u16, String) {
    let body = json!({ "domain": domain, "descriptors": [descriptor] }).to_string();
    let (status, _, body) = server.http("POST /json", "", &body);
    (status, body)
}

#[test]
fn descriptors_of_gateways_take_what_there_is_where_checks_are_permitted() {
    let server = start("['check', 'peek', 'refund']");
    let entries = json!([{ "key": "user", "value": "ann" }]);
    let limit = json!({ "requestsPerUnit": 10, "unit": "HOUR" });
    let three = json!({ "entries": entries, "limit": limit, "hitsAddend": "3" });
    // The policy is a domain, in which a limit in the request is enforced.
    assert_eq!(descriptor(&server, "login", &three).0, 200);
}

#[test]
fn a_descriptor_without_a_limit_needs_the_verb_too() {
    let server = start("'peek'");
    let entries = json!([{ "key": "user", "value": "ann" }]);
    let (status, told) = descriptor(&server, "unknown", &json!({ "entries": entries }));
    assert_eq!(
        (status, told.trim_end()),
        (403, "the verb `check` is not permitted on this address"),
        "nothing of a token is wrong"
    );
    let back = json!({ "entries": entries, "isNegativeHits": true });
    assert_eq!(descriptor(&server, "unknown", &back).0, 403);
}

#[test]
fn cl_throttle_is_a_check_also_if_it_only_looks() {
    let looks = "CL.THROTTLE k 1 1 1 0\r\nQUIT\r\n";
    let answered = start("'check'").raw("resp", looks);
    assert!(answered.starts_with("*5\r\n:0\r\n"), "{answered}");
    let refused = start("'peek'").raw("resp", looks);
    assert!(refused.starts_with("-NOPERM the verb `check` is not permitted"), "{refused}");
}

#[test]
fn an_unknown_verb_and_an_empty_list_are_errors_with_the_list() {
    let folder = tempfile::tempdir().unwrap();
    for (verbs, words) in [
        (
            "['chek']",
            "http.verbs[0]: unknown value `chek`, expected one of `check`, `at_most`, `peek`",
        ),
        ("[]", "http.verbs: is empty: expected one or more of `check`, `at_most`, `peek`"),
        ("'off'", "http.verbs: is empty"),
    ] {
        let ended = serve(&folder, &format!("[http]\nverbs = {verbs}\n")).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && told.contains(words), "{told}");
    }
}
