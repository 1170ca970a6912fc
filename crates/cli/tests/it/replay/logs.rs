//! Access logs: sorted, checked and counted, including damaged ones.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::replay::{allowed, lines, replay, summary};

const LOG: &[u8] = include_bytes!("../../data/small.log");
const POLICY: &str =
    "policies: [{ name: site, rules: [{ token_bucket: { rate: 1/min, burst: 2 } }] }]";
const START: u64 = 1_431_856_800;

#[test]
fn a_log_is_decided_in_the_order_of_time_and_its_bad_lines_are_told() {
    let replayed = replay(POLICY, LOG, &["--decisions", "-", "--bad-max", "25%"]);
    let lines = lines(&replayed.stdout);
    let (bad, good): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| !line["error"].is_null());
    let seconds: Vec<_> =
        good.iter().map(|line| line["at_us"].as_u64().unwrap() / 1_000_000 - START).collect();
    // The line of second 3 comes more than five minutes late: second 2 was decided by then, but second 600 was not, so
    // the line still finds its place.
    assert_eq!(seconds, [0, 1, 1, 2, 3, 600, 601]);
    let keys: Vec<_> = good.iter().map(|line| line["key"].as_str().unwrap()).collect();
    assert_eq!(keys[..4], ["203.0.113.7", "2001:db8::/64", "203.0.113.7", "203.0.113.7"]);
    assert_eq!(allowed(&good), [true, true, true, false, false, true, true]);
    let numbers: Vec<_> = bad.iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [4, 6]);
    assert!(replayed.stderr.contains("standard input:4: time: is missing"), "{}", replayed.stderr);
    assert!(replayed.stderr.contains(":6: time: `31/Feb/2015:10:00:01 +0000` does not exist"));
    assert!(replayed.stderr.contains("bad lines"), "the summary says so too");
    assert_eq!(replayed.code, 0);
}

#[test]
fn a_line_that_comes_too_late_is_decided_at_the_time_already_reached() {
    let line = |second: u64| {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "192.0.2.1 - - [17/May/2015:10:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 1\n"
        )
    };
    let log = [10, 20, 40, 5, 41].map(line).concat();
    let late = summary(POLICY, &log, &["--reorder", "10s"]);
    assert_eq!((&late["late"], &late["requests"]), (&1.into(), &5.into()));
    assert_eq!(late["first_at_us"], (START + 10) * 1_000_000);
    let in_time = summary(POLICY, &log, &["--reorder", "1m"]);
    assert_eq!(
        (&in_time["late"], &in_time["first_at_us"]),
        (&0.into(), &((START + 5) * 1_000_000).into())
    );
    let text = replay(POLICY, &log, &["--reorder", "10s"]).stdout;
    assert!(text.contains("late lines"), "{text}");
}

#[test]
fn keys_are_made_of_any_attributes() {
    let key = |options: &[&str]| {
        let options = [&["--decisions", "-"], options].concat();
        let lines = lines(&replay(POLICY, LOG, &options).stdout);
        let second = lines.iter().find(|line| line["at_us"] == (START + 1) * 1_000_000).unwrap();
        second["key"].clone()
    };
    assert_eq!(key(&["--key", "method"]), "POST");
    assert_eq!(key(&["--key", "path,status"]), "/orders|201");
    assert_eq!(key(&["--key", "user_agent"]), r#"a "quoted" agent"#);
    assert_eq!(key(&["--key", "user_agent,remote_ip"]), r#"a "quoted" agent|2001:db8::/64"#);
}

#[test]
fn a_request_without_the_attribute_takes_the_budget_of_all_who_lack_it() {
    let lines = lines(&replay(POLICY, LOG, &["--key", "path", "--decisions", "-"]).stdout);
    assert!(lines.last().unwrap()["key"].is_null());
}

#[test]
fn a_line_that_was_cut_is_decided_unless_the_key_needs_what_is_missing() {
    let start = r#"192.0.2.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 1"#;
    let log = format!("{start} \"-\" \"curl\"\n{start} \"-\" \"cu\n{start} \"http://x\n");
    let counts = |key: &str| {
        let summary = summary(POLICY, &log, &["--format", "combined", "--key", key]);
        (summary["requests"].clone(), summary["errors"].clone())
    };
    assert_eq!(counts("remote_ip"), (3.into(), 0.into()));
    assert_eq!(counts("user_agent,path"), (2.into(), 1.into()));
    let replayed = replay(POLICY, &log, &["--key", "user_agent", "--decisions", "-"]);
    assert!(replayed.stderr.contains("standard input:3: user_agent: is missing"));
    let keys: Vec<_> = lines(&replayed.stdout).iter().map(|line| line["key"].clone()).collect();
    assert_eq!(keys, [Value::Null, "curl".into(), "cu".into()], "the bad line has no key");
}

#[test]
fn policies_that_match_guard_their_own_paths() {
    let policies = "policies: [\
        { name: writes, match: { path: { prefix: /orders }, method: [POST] }, rules: [{ token_bucket: { rate: 1/s } }] },\
        { name: orders, match: { path: { prefix: /orders } }, key: [method], rules: [{ token_bucket: { rate: 1/h } }] }]";
    let replayed = replay(policies, LOG, &["--decisions", "-"]);
    let lines = lines(&replayed.stdout);
    let good = lines.iter().filter(|line| line["error"].is_null());
    let decided: Vec<_> =
        good.map(|line| (line["policy"].as_str().unwrap(), line["also"].clone())).collect();
    let alone = |policy| (policy, Value::Null);
    // The second request of GET in the hour is refused by the one policy, and charged to none.
    assert_eq!(
        decided,
        [alone("orders"), ("writes", json!(["orders"])), alone("orders"), alone("orders")]
    );
    assert_eq!(good_keys(&lines), [json!("GET"), Value::Null, json!("GET"), json!("GET")]);
    let summary = summary(policies, LOG, &[]);
    assert_eq!((&summary["unmatched"], &summary["requests"]), (&3.into(), &4.into()));
    let one = summary_of_one(policies);
    assert_eq!((&one["unmatched"], &one["requests"]), (&0.into(), &7.into()));
}

/// The keys of the lines that were decided.
fn good_keys(lines: &[Value]) -> Vec<Value> {
    let good = lines.iter().filter(|line| line["error"].is_null());
    good.map(|line| line["key"].clone()).collect()
}

fn summary_of_one(policies: &str) -> serde_json::Value {
    summary(policies, LOG, &["--policy", "orders"])
}

#[test]
fn the_summary_tells_people_what_happened() {
    let text = replay(POLICY, LOG, &[]).stdout;
    for line in [
        "standard input: 2015-05-17 10:00:00 to 2015-05-17 10:10:01 UTC (10 min 1 s)",
        "requests                                   7",
        "allowed                                    5   71.4 %",
        "refused                                    2   28.6 %",
        "distinct keys                              3",
        "bad lines                                  2   not decided; see standard error",
        "busiest second, before                     2   requests/s at 2015-05-17 10:00:01",
        "             2  203.0.113.7",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
}

#[test]
fn gzip_is_read_and_a_truncated_one_is_told_and_what_was_read_is_summarised() {
    let log = LOG.repeat(500);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&log).unwrap();
    let whole = encoder.finish().unwrap();
    let plain = summary(POLICY, &log, &[]);
    assert_eq!(summary(POLICY, &whole, &[]), plain);
    let replayed = replay(POLICY, &whole[..whole.len() / 2], &["--json"]);
    assert_eq!(replayed.code, 1);
    assert!(
        replayed.stderr.contains("error: standard input: cannot read past line "),
        "{}",
        replayed.stderr
    );
    let cut: serde_json::Value = serde_json::from_str(&replayed.stdout).unwrap();
    assert_eq!(cut["complete"], false);
    let requests = |summary: &serde_json::Value| summary["requests"].as_u64().unwrap();
    assert!(requests(&cut) > 0 && requests(&cut) < requests(&plain));
    let text = replay(POLICY, &whole[..whole.len() / 2], &[]).stdout;
    assert!(text.contains("the input could not be read to the end"), "{text}");
}

#[test]
fn a_log_is_known_by_its_first_lines() {
    let garbage = [b"??\n".as_slice(), LOG].concat();
    assert_eq!(summary(POLICY, garbage, &[])["requests"], 7);
    let events = "??\n{\"at_us\":0,\"policy\":\"site\"}\n";
    assert_eq!(summary(POLICY, events, &[])["requests"], 1);
}

/// The exit status and the messages of a replay of a log with `good` and `bad` lines.
fn status(good: usize, bad: usize, options: &[&str]) -> (i32, String) {
    let line = "10.0.0.1 - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 12\n";
    let log = [line.repeat(good), "no line of a log\n".repeat(bad)].concat();
    let policies = "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s } }] }]";
    let replayed = replay(policies, log, &[&["--format", "combined"], options].concat());
    let error = replayed.stderr.lines().find(|line| line.starts_with("error: "));
    (replayed.code, error.unwrap_or_default().to_owned())
}

#[test]
fn a_log_that_cannot_be_read_fails_with_the_share_that_is_permitted() {
    assert_eq!(status(99, 1, &[]), (0, String::new()));
    let more = "error: standard input: 2 of 101 lines could not be read, more than --bad-max 1%";
    assert_eq!(status(99, 2, &[]), (1, more.to_owned()));
    assert_eq!(status(99, 2, &["--bad-max", "2%"]), (0, String::new()));
    assert_eq!(status(99, 1, &["--bad-max", "0"]).0, 1);
    let nothing = "error: standard input: no line could be read, so nothing was decided";
    assert_eq!(status(0, 3, &[]), (1, nothing.to_owned()));
    assert_eq!(status(0, 3, &["--bad-max", "100%"]), (1, nothing.to_owned()));
    assert_eq!(status(0, 0, &[]), (1, nothing.to_owned()));
    let (code, error) = status(1, 0, &["--bad-max", "101%"]);
    assert_eq!(code, 2);
    assert!(error.contains("`101%` is not a percentage 0%..=100%"), "{error}");
}

#[test]
fn a_log_of_which_no_policy_matches_a_line_fails_with_its_paths() {
    let policies = "policies: [{ name: p, match: { path: { prefix: /api } }, rules: [{ token_bucket: { rate: 1/s } }] }]";
    let line = |path: &str| {
        format!("203.0.113.7 - - [17/May/2015:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 12\n")
    };
    let log: String = ["/shop", "/", "/shop?a=1"].map(line).concat();
    let replayed = replay(policies, &log, &[]);
    let expected = "error: standard input: no policy matches any line (3 in all), so nothing was decided; compare the \
                    `match` of the policies with the paths of the log: `/shop` (2), `/` (1)\n";
    assert!(replayed.code == 1 && replayed.stderr.ends_with(expected), "{}", replayed.stderr);
    let one = replay(policies, &(log + &line("/api/1")), &[]);
    assert!(one.code == 0 && !one.stderr.contains("no policy matches"), "{}", one.stderr);
}

#[test]
fn a_log_does_not_say_when_permits_are_given_back() {
    let policies = "policies: [{ name: p, rules: [{ concurrency: { limit: 1, ttl: 1s } }] }]";
    let log = "203.0.113.7 - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 12\n";
    let replayed = replay(policies, log, &[]);
    let expected = "error: policy `p` has a `concurrency` rule: a log does not say when requests end; choose another \
                    policy, or replay events with `acquire` and `release`\n";
    assert_eq!((replayed.code, replayed.stderr.as_str()), (1, expected));
}

/// With `HostnameLookups On`, Apache writes the names of clients. A line then has no address, and all
/// lines share one budget.
#[test]
fn a_log_of_host_names_is_no_log_of_one_client() {
    let line = |host| {
        format!(
            "host{host}.example.com - - [17/May/2015:10:00:00 +0000] \"GET / HTTP/1.1\" 200 12\n"
        )
    };
    let log: String = (0..6).map(|number| line(number % 3)).collect();
    let policies = "policies: [{ name: p, key: [remote_ip], rules: [{ token_bucket: { rate: 1/min, burst: 2 } }] }]";
    let replayed = replay(policies, &log, &[]);
    let problem =
        "client: `host0.example.com` is not an address; names of clients need --client-names";
    assert!(replayed.code == 1 && replayed.stderr.contains(problem), "{}", replayed.stderr);
    let named = summary(policies, &log, &["--client-names"]);
    assert_eq!((&named["requests"], &named["refused"]), (&6.into(), &0.into()), "{named}");
}

#[test]
fn instants_in_another_unit_are_noted() {
    for (at, unit) in [(1_760_104_536_u64, "seconds"), (1_760_104_536_000, "milliseconds")] {
        let event = format!(r#"{{"at_us":{at},"policy":"site"}}"#);
        let said = replay(POLICY, event, &[]).stderr;
        let note = format!("these instants look like {unit} since 1970");
        assert!(said.contains(&note), "{said}");
    }
    for at in [0_u64, 5_000_000, 1_760_104_536_000_000] {
        let event = format!(r#"{{"at_us":{at},"policy":"site"}}"#);
        assert!(!replay(POLICY, event, &[]).stderr.contains("look like"), "{at}");
    }
}
