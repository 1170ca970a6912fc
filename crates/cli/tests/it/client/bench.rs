//! `bench`.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::time::sleep;

use super::{POLICIES, Ran, Server, finish, path, run, sluicegate};
use crate::program::PATIENCE;

/// The report of `sluicegate bench COMMAND`, and its exit status.
fn bench(command: &str) -> (Value, Option<i32>) {
    let Ran { out, err, status } = run(&format!("bench {command} --output json"));
    (serde_json::from_str(&out).unwrap_or_else(|_| panic!("{command}: {err}")), status)
}

/// `http`, `resp` and `rls` with the addresses of `server`.
fn wires(server: &Server) -> [String; 3] {
    let Server { http, resp, rls, .. } = server;
    [format!("http --to {http}"), format!("resp --to {resp}"), format!("rls --to {rls}")]
}

#[test]
fn what_a_limit_lets_through_is_what_is_counted_on_every_wire() {
    for (place, pipeline) in [(0, 1), (1, 1), (1, 16), (2, 1), (2, 16)] {
        let server = Server::start();
        let wire = &wires(&server)[place];
        let load = "--policy hundred --connections 7 --threads 2 --requests 3000 --keys 3";
        let (report, status) = bench(&format!("{wire} {load} --pipeline {pipeline}"));
        assert_eq!(status, Some(0), "{report}");
        assert_eq!(
            (&report["passed"], &report["refused"]),
            (&json!(300), &json!(2700)),
            "{report}"
        );
        assert_eq!((&report["decisions"], &report["failed"]), (&json!(3000), &json!(0)));
        let latency = ["p50", "p90", "p99", "p99_9", "max"]
            .map(|name| report["latency_us"][name].as_f64().expect("a number"));
        assert!(latency[0] > 0.0 && latency.is_sorted(), "{report}");
        assert!(report["generator_busy"].as_f64().is_some_and(|busy| (0.0..1.05).contains(&busy)));
    }
}

#[test]
fn the_cost_the_app_and_the_password_go_along() {
    let file = |text: &str| {
        let file = NamedTempFile::new().expect("there is room for files");
        std::fs::write(file.path(), text).expect("it can be written");
        file
    };
    let (right, wrong, long) = (file("hunter2\n"), file("hunter3"), file(&"x".repeat(1025)));
    let server = Server::start_with(POLICIES, &["--resp-password-file", path(right.path())]);
    let load = "--app checkout --cost 2 --requests 10 --keys 1 --connections 1 --policy shop";
    let right = format!("--password-file {}", path(right.path()));
    let refused = wires(&server).map(|wire| {
        let (report, status) = bench(&format!("{wire} {load} {right}"));
        assert_eq!(status, Some(0), "{report}");
        report["refused"].as_u64()
    });
    // One request takes all permits.
    assert_eq!(refused, [Some(9), Some(10), Some(10)]);

    let resp = format!("bench {} --policy wide --requests 1", wires(&server)[1]);
    for (password, told) in [
        (String::new(), "NOAUTH"),
        (format!("--password-file {}", path(wrong.path())), "the server rejected the password"),
        (
            format!("--password-file {}", path(long.path())),
            "--password-file: `1025` bytes are outside",
        ),
    ] {
        let Ran { out, err, status } = run(&format!("{resp} {password}"));
        let is_of_command_line = told.starts_with("--");
        assert_eq!((out.as_str(), status), ("", Some(if is_of_command_line { 2 } else { 1 })));
        assert!(err.starts_with(&format!("error: {told}")) && !err.contains("hunter"), "{err}");
    }
}

#[test]
fn a_report_for_people_says_the_same() {
    let server = Server::start();
    let report = server.ask("bench --policy hundred --requests 200 --keys 1 --connections 2");
    assert_eq!((report.status, report.err.as_str()), (Some(0), ""));
    let mut lines = report.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let first = lines.next().unwrap();
    assert_eq!(first[..4], ["http", &format!("{},", &server.http[7..]), "policy", "hundred,"]);
    assert_eq!(lines.nth(1).unwrap()[..2], ["decisions", "200"]);
    for line in [
        ["passed", "100", "50.0", "%"],
        ["refused", "100", "50.0", "%"],
        ["failed", "0", "0.0", "%"],
    ] {
        assert_eq!(lines.next().unwrap(), line);
    }
    assert_eq!(lines.nth(1).unwrap()[..2], ["latency,", "ms,"]);
    for name in ["p50", "p90", "p99", "p99.9", "max"] {
        assert_eq!(lines.next().unwrap()[0], name);
    }
}

#[test]
fn what_is_wrong_is_known_before_the_run() {
    let server = Server::start();
    let unknown = "unknown policy `nope`";
    for (wire, told) in wires(&server).iter().zip([unknown, "unknown policy", unknown]) {
        let Ran { out, err, status } = run(&format!("bench {wire} --policy nope"));
        assert_eq!((out.as_str(), status), ("", Some(1)));
        assert!(err.contains(told), "{err}");
    }
    let Server { http, resp, .. } = &server;
    for (wire, to) in [("http", resp), ("rls", resp), ("resp", http)] {
        let crossed = run(&format!("bench {wire} --policy wide --to {to}"));
        assert_eq!(crossed.status, Some(1), "{crossed:?}");
    }
    let remote = run("bench --policy wide --to 192.0.2.1:80");
    let told = "error: --to: `192.0.2.1:80` is another machine: add --allow-remote\n";
    assert_eq!((remote.err.as_str(), remote.status), (told, Some(2)));
}

#[test]
fn an_open_loop_keeps_to_its_rate() {
    let server = Server::start();
    for wire in wires(&server) {
        let (report, _) = bench(&format!("{wire} --policy wide --rate 400 --requests 200"));
        let elapsed = report["elapsed_s"].as_f64().expect("a number");
        // The last one is due after 497.5 ms.
        assert!((0.497..5.0).contains(&elapsed), "{report}");
        let (report, _) = bench(&format!("{wire} --policy wide --rate 400 --duration 250ms"));
        assert_eq!(report["decisions"], 100);
    }
}

/// Waits until the load has used its key.
async fn begun(server: &Server) {
    let asked = async || {
        let peeked = server.ask("peek hundred bench:0");
        (!peeked.out.contains("100 of 100 left")).then_some(())
    };
    sluicegate_testkit::until("the load begins", PATIENCE, asked).await.expect("it does");
}

#[tokio::test]
async fn an_open_loop_charges_a_server_that_stood_still_for_all_who_would_have_come() {
    let server = Server::start();
    let load =
        "--policy hundred --keys 1 --connections 2 --rate 500 --duration 1500ms --output json";
    let running = sluicegate(&format!("bench {} {load}", wires(&server)[0]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    begun(&server).await;
    server.process.signal("STOP");
    sleep(Duration::from_millis(600)).await;
    server.process.signal("CONT");
    let Ran { out, .. } = finish(running.wait_with_output());
    let report: Value = serde_json::from_str(&out).unwrap();
    // 300 of 750 were due meanwhile, 200 of them more than 200 ms before its end. A closed loop
    // would have sent two of them.
    assert!(report["latency_us"]["p90"].as_f64().is_some_and(|us| us > 200_000.0), "{report}");
    assert_eq!(report["decisions"], 750);
}

#[tokio::test]
async fn a_run_ends_when_its_server_is_gone_and_says_what_was_lost() {
    for place in 0..3 {
        let mut server = Server::start();
        let load = "--policy hundred --keys 1 --connections 3 --duration 60s --output json";
        let running = sluicegate(&format!("bench {} {load}", wires(&server)[place]))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        begun(&server).await;
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        let Ran { out, status, .. } = finish(running.wait_with_output());
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((status, &report["connections_lost"]), (Some(1), &json!(3)), "{report}");
        assert!(report["failed"].as_u64().is_some_and(|failed| failed >= 3), "{report}");
        assert!(report["passed"].as_u64().is_some_and(|passed| passed > 0), "{report}");
        assert!(report["elapsed_s"].as_f64().is_some_and(|elapsed| elapsed < 30.0), "{report}");
    }
}
