//! The address for collectors, and the answers of addresses for operators to unknown paths.

use std::process::Stdio;

use sluicegate_testkit::TlsFiles;

use super::{Server, raw};
use crate::program::{Process, serve};

/// A request for `path`.
fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// The status of an answer.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).expect("a status line")
}

#[test]
fn the_address_for_metrics_has_health_and_metrics_and_shows_no_keys() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let server = Process::start(
        serve(&folder, "").args(["--metrics", "127.0.0.1:0"]).stderr(Stdio::inherit()),
        5,
    );
    let see = |path: &str| raw(server.address("metrics"), &get(path));
    assert!(see("/livez").ends_with("\r\n\r\nok\n"));
    assert!(see("/readyz").ends_with("\r\n\r\nok\n"));
    let metrics = see("/metrics");
    assert_eq!(status(&metrics), "200");
    assert!(
        metrics.contains("\nsluicegate_connections_accepted_total{wire=\"metrics\"} 3\n"),
        "{metrics}"
    );
    for path in ["/v1/top?policy=login", "/v1/events", "/v1/policies", "/v1/admin/meta", "/"] {
        let answer = see(path);
        assert_eq!(status(&answer), "404", "{path}");
        assert!(answer.contains("content-type: application/problem+json"), "{answer}");
    }
}

#[test]
fn nothing_listens_for_metrics_unless_it_is_configured() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let server = Process::start(serve(&folder, "").stderr(Stdio::inherit()), 4);
    let schemes: Vec<_> =
        server.urls().map(|url| url.split_once(':').unwrap().0.to_owned()).collect();
    assert_eq!(schemes, ["http", "resp", "rls", "admin"]);
}

#[test]
fn metrics_are_served_with_tls_as_other_listeners_are() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let TlsFiles { ca, server_cert, server_key, .. } =
        TlsFiles::write(folder.path()).expect("they can be written");
    let config = format!(
        "[metrics]\nlisten = '127.0.0.1:0'\n[metrics.tls]\ncert = {server_cert:?}\nkey = {server_key:?}\n"
    );
    let server = Process::start(serve(&folder, &config).stderr(Stdio::inherit()), 5);
    let address = server.address("metrics+https");
    let see = |path: &str| {
        let url = format!("https://localhost:{}{path}", address.port());
        let mut curl = std::process::Command::new("curl");
        let output = curl.args(["-s", "--cacert"]).arg(&ca).arg(url).output();
        String::from_utf8(output.expect("curl is installed").stdout).expect("it is text")
    };
    assert_eq!(see("/readyz"), "ok\n");
    // The certificates of tests expire with the year 4095.
    let expiry = "4096-01-01T00:00:00Z".parse::<jiff::Timestamp>().expect("a time").as_second();
    let metrics = see("/metrics");
    let gauge = "sluicegate_certificate_expiry_timestamp_seconds";
    assert!(metrics.contains(&format!("{gauge}{{wire=\"metrics\"}} {expiry}\n")), "{metrics}");
    assert_eq!(metrics.matches(&format!("\n{gauge}{{")).count(), 1, "{metrics}");
}

#[test]
fn the_time_of_the_last_snapshot_is_a_metric_where_there_is_a_snapshot() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let snapshot = folder.path().join("counters.snap");
    let options = ["--snapshot", snapshot.to_str().expect("it is text"), "--snapshot-every", "5m"];
    let server = Server::start_with(&options, Stdio::inherit());
    let (_, metrics) = server.see("/metrics", "");
    let gauge = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse::<f64>().expect("a number"))
    };
    let written = gauge("sluicegate_snapshot_last_success_timestamp_seconds").expect("it is there");
    let modified = snapshot.metadata().and_then(|file| file.modified()).expect("it is a file");
    let modified = modified.duration_since(std::time::UNIX_EPOCH).expect("it is after 1970");
    assert!((written - modified.as_secs_f64()).abs() < 1.0, "{written} {modified:?}");
    assert_eq!(gauge("sluicegate_snapshot_interval_seconds"), Some(300.0));
    assert!(!Server::start().see("/metrics", "").1.contains("sluicegate_snapshot"));
}

#[test]
fn a_path_or_method_that_the_admin_address_does_not_have_is_a_problem() {
    let server = Server::start();
    for (request, expected, detail) in [
        (get("/nowhere"), "404", "path not found"),
        (
            get("/metrics").replace("GET", "POST"),
            "405",
            "method not allowed; the `allow` header names those that are",
        ),
        (
            get("/readyz").replace("GET", "DELETE"),
            "405",
            "method not allowed; the `allow` header names those that are",
        ),
    ] {
        let answer = server.raw("admin", &request);
        assert_eq!(status(&answer), expected, "{request}");
        assert!(answer.contains("content-type: application/problem+json"), "{answer}");
        let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
        let problem: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
        assert_eq!(problem["detail"], detail);
    }
}
