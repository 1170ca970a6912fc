//! The what-if of the admin API: a draft of policies on the requests of a log.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Shutdown;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::catalog::stage::{Node, Who, answer, begin, until};
use crate::program::program;

const PATH: &str = "/v1/admin/apps/shop/whatif";
const KIND: &str = "application/x-sluicegate-whatif";

/// A node with the app `shop` and its policy `site`, and its administrator.
fn stage() -> (Node, Who) {
    let node = Node::start("sqlite:DIR/catalog.db", "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": site(40), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    (node, ada)
}

fn site(limit: u64) -> Value {
    let rule = json!({ "fixed_window": { "limit": limit, "window": "1m" } });
    json!({ "name": "site", "key": ["remote_ip"], "rules": [rule] })
}

/// Requests of three addresses in half an hour, one with markup as its browser's name.
fn log() -> String {
    let mut log = String::new();
    for second in 0..1_800 {
        let (minute, rest) = (second / 60, second % 60);
        let address = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"][second % 4];
        for _ in 0..=(second / 600) {
            writeln!(
                log,
                "{address} - - [17/May/2015:10:{minute:02}:{rest:02} +0000] \"GET /a HTTP/1.1\" 200 12 \"-\" \"<script>\"",
            )
            .unwrap();
        }
    }
    log
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn ask(node: &Node, who: &Who, first: &str, log: &[u8]) -> (u16, Value) {
    let body = [first.as_bytes(), b"\n", log].concat();
    let mut stream = begin(node.address("admin"), who, PATH, KIND, body.len());
    // A server may answer before it has read all.
    stream.write_all(&body).ok();
    let (status, _, reply) = answer(&mut stream).expect("it answers");
    (status, serde_json::from_str(&reply).unwrap())
}

fn draft(limit: u64) -> String {
    json!({ "policies": { "name": "site", "document": site(limit) } }).to_string()
}

/// The error: its status and code, and the pointer and code of the first field.
fn wrong((status, reply): &(u16, Value)) -> (u16, &str, &str, &str) {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned().leak() as &str;
    let first = &reply["errors"][0];
    (*status, text(&reply["code"]), text(&first["pointer"]), text(&first["code"]))
}

#[test]
fn the_figures_are_those_of_the_command_line_also_for_a_log_that_is_sent_once() {
    let (node, ada) = stage();
    let log = log();
    let folder = node.folder.path();
    std::fs::write(folder.join("access.log"), &log).unwrap();
    std::fs::write(folder.join("today.json"), json!({ "policies": [site(40)] }).to_string())
        .unwrap();
    for limit in [10, 20, 60] {
        std::fs::write(folder.join("new.json"), json!({ "policies": [site(limit)] }).to_string())
            .unwrap();
        let command =
            "policies whatif -f new.json --policies today.json --log access.log --output json";
        let ran = program().args(command.split(' ')).current_dir(folder).output().unwrap();
        let expected: Value = serde_json::from_slice(&ran.stdout).unwrap();

        let (status, first) = ask(&node, &ada, &draft(limit), log.as_bytes());
        assert_eq!(status, 200, "{first}");
        for (name, figure) in expected.as_object().unwrap() {
            assert_eq!(&first[name], figure, "{name} of {limit}");
        }
        let whole = json!({ "policies": [site(limit)] }).to_string();
        assert_eq!(
            ask(&node, &ada, &whole, &gzip(log.as_bytes())).1["timeline"],
            first["timeline"]
        );

        let (_, first) = ask(&node, &ada, &draft(limit), log.as_bytes());
        let mut again: Value = serde_json::from_str(&draft(limit)).unwrap();
        again["log_id"] = first["log_id"].clone();
        assert_eq!(ask(&node, &ada, &again.to_string(), b""), (200, first), "sent once");
    }
}

#[test]
fn the_picture_counts_every_request_in_at_most_400_buckets() {
    let (node, ada) = stage();
    let (_, compared) = ask(&node, &ada, &draft(10), log().as_bytes());
    let buckets = compared["timeline"]["buckets"].as_array().unwrap();
    assert!((2..=400).contains(&buckets.len()), "{}", buckets.len());
    let sum = |side: &str, result: &str| -> u64 {
        buckets.iter().map(|bucket| bucket[side][result].as_u64().unwrap()).sum()
    };
    let requests = compared["requests"].as_u64().unwrap();
    for (side, refused) in [("today", "refused_today"), ("new", "refused_new")] {
        assert_eq!(sum(side, "allowed") + sum(side, "refused"), requests);
        assert_eq!(json!(sum(side, "refused")), compared[refused]);
    }
    let step = compared["timeline"]["bucket_us"].as_u64().unwrap();
    let at = |place: usize| buckets[place]["at_us"].as_u64().unwrap();
    assert!((1..buckets.len()).all(|place| at(place) == at(0) + step * place as u64), "no gaps");
}

#[test]
fn those_who_see_the_policies_may_ask_and_a_log_is_of_its_sender_alone() {
    let (node, ada) = stage();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "bank" }));
    let vic = node.join(&ada, "vic", &[("shop", "viewer")]);
    let bob = node.join(&ada, "bob", &[("bank", "owner")]);
    let entries = || node.admin(&ada, "GET", "/audit", &Value::Null).1["items"][0]["seq"].clone();
    let before = entries();
    let (status, compared) = ask(&node, &vic, &draft(10), log().as_bytes());
    assert_eq!((status, &compared["complete"]), (200, &json!(true)), "{compared}");
    assert_eq!(entries(), before, "it changes nothing");
    let mut again: Value = serde_json::from_str(&draft(10)).unwrap();
    again["log_id"] = compared["log_id"].clone();
    assert_eq!(ask(&node, &vic, &again.to_string(), b"").0, 200);
    assert_eq!(wrong(&ask(&node, &ada, &again.to_string(), b"")), (404, "log_gone", "", ""));
    assert_eq!(ask(&node, &bob, &draft(10), log().as_bytes()).0, 403, "no app of his");
    assert_eq!(ask(&node, &Who::default(), &draft(10), log().as_bytes()).0, 401);
}

#[test]
fn a_shadow_policy_refuses_nobody_today_and_its_draft_does() {
    let (node, ada) = stage();
    let first = ada.of_version(1);
    let path = "/apps/shop/policies/site/shadow";
    let (status, reply) = node.admin(&first, "POST", path, &Value::Null);
    assert_eq!(status, 200, "{reply}");
    let (_, compared) = ask(&node, &ada, &draft(40), log().as_bytes());
    assert_eq!(compared["refused_today"], 0);
    assert_ne!(compared["refused_new"], 0, "{compared}");
}

#[test]
fn what_cannot_be_compared_is_named() {
    let (node, ada) = stage();
    let ask = |first: &str, log: &str| ask(&node, &ada, first, log.as_bytes());
    let line = &log()[..100];
    let member = |name: &str, value: Value| {
        let mut all: Value = serde_json::from_str(&draft(10)).unwrap();
        all[name] = value;
        all.to_string()
    };
    for (first, log, expected) in [
        ("{", line, (422, "invalid", "/?", "unreadable")),
        ("[]", line, (422, "invalid", "", "")),
        (&draft(0), line, (422, "invalid", "/policies/document/rules/0/fixed_window/limit", "")),
        (
            &member("policy", json!("other")),
            line,
            (422, "invalid", "/policy", "unknown_policy_name"),
        ),
        (&member("key", json!(["header:x"])), line, (422, "invalid", "/key", "not_logged")),
        (&member("key", json!(["nothing"])), line, (422, "invalid", "/key/0", "unknown_attribute")),
        (&member("log_id", json!("x")), line, (422, "invalid", "/log_id", "log_and_id")),
        (&member("log_id", json!("x")), "", (404, "log_gone", "", "")),
        (&draft(10), "", (422, "invalid", "", "log_missing")),
        (&draft(10), "{\"at_us\":0}\n", (422, "invalid", "", "log_of_events")),
    ] {
        let answer = ask(first, log);
        let (status, _, pointer, code) = wrong(&answer);
        let same = status == expected.0 && pointer == expected.2;
        assert!(same && (expected.3.is_empty() || code == expected.3), "{first}: {answer:?}");
    }
    // Binary data has lines that cannot be decided.
    let (status, compared) = ask(&draft(10), "\u{0}\u{1}\nnothing\n");
    assert_eq!((status, &compared["requests"], &compared["errors"]), (200, &json!(0), &json!(2)));
    let body = format!("{}\n{line}", draft(10));
    let mut stream = begin(node.address("admin"), &ada, PATH, "application/json", body.len());
    stream.write_all(body.as_bytes()).ok();
    assert_eq!(answer(&mut stream).unwrap().0, 415);
}

#[test]
fn one_runs_at_a_time_and_a_client_that_goes_away_makes_room() {
    let (node, ada) = stage();
    let log = log();
    let body = format!("{}\n{log}", draft(10));
    let busy = || {
        let mut stream = begin(node.address("admin"), &ada, PATH, KIND, body.len());
        stream.write_all(body.as_bytes()).ok();
        answer(&mut stream).expect("it answers")
    };
    // The server chooses which of two requests gets its turn; the helper retries until the one that sends nothing more
    // has it.
    let hold = || {
        let begun = || begin(node.address("admin"), &ada, PATH, KIND, body.len());
        (0..100).find_map(|_| Some(begun()).filter(|_| busy().0 == 429)).expect("it has its turn")
    };
    let mut slow = hold();
    let (_, head, _) = busy();
    assert!(head.contains("retry-after: 2"), "{head}");
    slow.write_all(body.as_bytes()).unwrap();
    assert_eq!(answer(&mut slow).unwrap().0, 200);
    assert_eq!(busy().0, 200);

    let gone = hold();
    gone.shutdown(Shutdown::Both).unwrap();
    drop(gone);
    until(|| busy().0 == 200);
}

#[test]
fn a_log_beyond_the_limits_is_read_up_to_them() {
    let (node, ada) = stage();
    let begins = log();
    let zeros = vec![0; 300 << 20];
    let bomb = [gzip(begins.as_bytes()), gzip(&zeros)].concat();
    drop(zeros);
    assert!(bomb.len() < 8 << 20);
    let (status, compared) = ask(&node, &ada, &draft(10), &bomb);
    assert_eq!((status, &compared["complete"]), (200, &json!(false)), "{compared}");
    assert_eq!(compared["requests"], json!(begins.lines().count()));
    let long = vec![b'x'; 33 << 20];
    let (status, refused) = ask(&node, &ada, &draft(10), &long);
    assert_eq!(status, 413, "{refused}");
    assert_eq!(ask(&node, &ada, &draft(10), begins.as_bytes()).0, 200);
}
