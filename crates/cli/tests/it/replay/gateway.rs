//! A replay decides a line of a log as a gateway decides its request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Cursor;
use std::sync::Arc;
use std::thread;

use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_replay::ClientArgs;
use sluicegate_replay::whatif::{CompareOptions, REORDER_DEFAULT, ReadLimits, compare_log};
use sluicegate_testkit::need;

use crate::gateways::client::ask;
use crate::gateways::stage::Server;
use crate::replay::{allowed, decisions, lines, numbers, replay, summary};

/// Lines of a log, one a second, each from a client, a method and a target.
fn log(lines: &[(&str, &str, &str)]) -> String {
    let line = |(second, (client, method, target)): (usize, &(&str, &str, &str))| {
        format!(
            "{client} - - [02/Nov/2026:10:00:{second:02} +0000] \"{method} {target} HTTP/1.1\" 200 12 \"-\" \"curl/8.5\"\n"
        )
    };
    lines.iter().enumerate().map(line).collect()
}

/// Numbers of requests, of those that passed, of those that were refused, and of undecided lines.
fn counts(summary: &Value) -> [u64; 4] {
    ["requests", "allowed", "refused", "errors"].map(|name| summary[name].as_u64().unwrap())
}

const SITE_AND_API: &str = "policies:
  - { name: a.site, match: { path: { prefix: / } }, key: [remote_ip], rules: [ { name: site, token_bucket: { rate: 1/min, burst: 10 } } ] }
  - { name: b.api, match: { path: { prefix: /api } }, key: [remote_ip], rules: [ { name: api, token_bucket: { rate: 1/min, burst: 2 } } ] }
";

#[test]
fn all_policies_that_match_a_line_decide_it() {
    let log = log(&[("203.0.113.9", "GET", "/api/x"); 3]);
    let replayed = replay(SITE_AND_API, &log, &["--decisions", "-"]);
    let lines = lines(&replayed.stdout);
    assert_eq!(allowed(&lines), [true, true, false]);
    assert_eq!(lines[0]["also"], json!(["b.api"]));
    assert_eq!((&lines[2]["policy"], &lines[2]["verdict"]), (&json!("b.api"), &json!("refuse")));
    assert_eq!(counts(&summary(SITE_AND_API, &log, &[])), [3, 2, 1, 0]);
}

#[test]
fn a_refused_line_is_charged_to_no_policy() {
    let paths = ["/api/x", "/api/x", "/api/x", "/api/x", "/a"];
    let log = log(&paths.map(|path| ("203.0.113.9", "GET", path)));
    let lines = lines(&replay(SITE_AND_API, &log, &["--decisions", "-"]).stdout);
    // Of ten permits of the site, two requests took two and the last one takes another.
    assert_eq!(lines.last().unwrap()["remaining"], 7);
}

#[test]
fn a_replay_of_one_policy_names_those_that_it_left_out() {
    let log = log(&[("203.0.113.9", "GET", "/api/x"); 3]);
    let text = replay(SITE_AND_API, &log, &["--policy", "a.site"]).stdout;
    let expected = "1 further policy matches these lines and was not decided: b.api (3 lines)";
    assert!(text.contains(expected), "{text}");
    let summary = summary(SITE_AND_API, &log, &["--policy", "a.site"]);
    assert_eq!(summary["undecided_policies"], json!([{ "policy": "b.api", "lines": 3 }]));
}

#[test]
fn a_policy_in_shadow_refuses_no_line() {
    let policies = SITE_AND_API.replace("name: b.api,", "name: b.api, overflow: shadow,");
    let log = log(&[("203.0.113.9", "GET", "/api/x"); 3]);
    let summary = summary(&policies, &log, &[]);
    assert_eq!(counts(&summary), [3, 3, 0, 0]);
    assert_eq!(summary["would_be_refused_in_shadow"], 1);
}

#[test]
fn a_line_that_a_gateway_holds_back_passes_after_its_wait() {
    for rule in [
        "overflow: { queue: { max_wait: 10s } }, rules: [ { sliding_log: { limit: 1, window: 3s } } ]",
        "overflow: { queue: { max_wait: 10s } }, rules: [ { token_bucket: { rate: 1/3s, burst: 1 } } ]",
        "rules: [ { leaky_bucket: { rate: 1/3s, burst: 3 } } ]",
    ] {
        let policies =
            format!("policies: [ {{ name: p, match: {{ path: {{ prefix: / }} }}, {rule} }} ]");
        let log = log(&[("203.0.113.9", "GET", "/"); 3]);
        let lines = lines(&replay(&policies, &log, &["--decisions", "-"]).stdout);
        assert_eq!(allowed(&lines), [true, true, true], "{rule}");
        let waits = numbers(&lines, "wait_us");
        assert_eq!(waits, [Some(0), Some(2_000_000), Some(4_000_000)], "{rule}");
    }
}

#[test]
fn every_spelling_of_a_path_takes_from_one_budget() {
    let policies = "policies: [ { name: login, match: { path: { exact: /login } }, key: [remote_ip], rules: [ { fixed_window: { limit: 3, window: 1h } } ] } ]";
    let spellings = ["/login", "//login", "/./login", "/%6Cogin", "/x/../login", "/login?next=/"];
    let log = log(&spellings.map(|path| ("203.0.113.9", "POST", path)));
    let summary = summary(policies, &log, &[]);
    assert_eq!((counts(&summary), &summary["unmatched"]), ([6, 3, 3, 0], &json!(0)));
}

#[test]
fn a_client_behind_proxies_has_one_budget() {
    let policies = "policies: [ { name: site, key: [remote_ip], rules: [ { fixed_window: { limit: 2, window: 1h } } ] } ]";
    let clients = [
        "203.0.113.9, 198.51.100.4",
        "203.0.113.9",
        "203.0.113.9:51123",
        "203.0.113.9:51124",
        "::ffff:203.0.113.9",
        "\"203.0.113.9, 198.51.100.4\"",
    ];
    let log = log(&clients.map(|client| (client, "GET", "/")));
    let trusted = summary(policies, &log, &["--trusted-proxies", "198.51.100.0/24"]);
    assert_eq!((counts(&trusted), &trusted["distinct_keys"]), ([6, 2, 4, 0], &json!(1)));
    // Only an operator knows which address of a list is the client's.
    let replayed = replay(policies, &log, &[]);
    assert!(
        replayed.stderr.contains(":1: client: `203.0.113.9, 198.51.100.4` is a list of addresses")
    );
    assert_eq!(counts(&summary(policies, &log, &[])), [4, 2, 2, 2]);
}

#[test]
fn a_key_that_is_too_long_for_a_store_is_its_hash() {
    let policies = "policies: [ { name: pth, match: { path: { prefix: /p/ } }, key: [remote_ip, path], rules: [ { fixed_window: { limit: 2, window: 1h } } ] } ]";
    let path = format!("/p/{}", "a".repeat(1_500));
    let log = log(&[("203.0.113.9", "GET", path.as_str()); 3]);
    assert_eq!(counts(&summary(policies, &log, &[])), [3, 2, 1, 0]);
}

#[test]
fn a_log_with_hosts_is_read_as_what_it_is() {
    let policies = "policies: [ { name: site, match: { path: { prefix: / } }, key: [host, remote_ip], rules: [ { fixed_window: { limit: 1, window: 1h } } ] } ]";
    let log = log(&[
        ("www.example.com:443 192.0.2.10", "GET", "/a"),
        ("www.example.com:443 192.0.2.11", "GET", "/b"),
        ("www.example.com:443 192.0.2.11", "GET", "/c"),
    ]);
    for options in [&[][..], &["--format", "vhost_combined"]] {
        let summary = summary(policies, &log, options);
        assert_eq!((counts(&summary), &summary["distinct_keys"]), ([3, 2, 1, 0], &json!(2)));
    }
    let replayed = replay(policies, &log, &["--format", "combined", "--key", "remote_ip"]);
    assert!(replayed.stderr.contains("the format is vhost_combined"), "{}", replayed.stderr);
}

#[test]
fn a_prefix_of_syslog_or_compose_makes_no_client_of_all() {
    let policies = "policies: [ { name: site, match: { path: { prefix: / } }, key: [remote_ip], rules: [ { fixed_window: { limit: 1, window: 1h } } ] } ]";
    for prefix in ["Nov 27 10:00:00 web nginx: 203.0.113.9", "web-1  | 203.0.113.9"] {
        let log = log(&[(prefix, "GET", "/"); 2]);
        let replayed = replay(policies, &log, &["--format", "combined", "--json"]);
        assert!(replayed.stderr.contains("client: the line begins with `"), "{}", replayed.stderr);
        assert_eq!(counts(&serde_json::from_str(&replayed.stdout).unwrap()), [0, 0, 0, 2]);
        let detected = replay(policies, &log, &[]);
        let expected = "an access log whose lines cannot be read: client: the line begins with `";
        assert!(detected.code == 1 && detected.stderr.contains(expected), "{}", detected.stderr);
        // The command in the message.
        let command = r"s|^.* ([^ ]+ [^ ]+ [^ ]+ \[[0-9]{2}/)|\1|";
        assert!(detected.stderr.contains(command), "{}", detected.stderr);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &log).unwrap();
        let cut = std::process::Command::new("sed").args(["-E", command]).arg(file.path()).output();
        let cut = String::from_utf8(cut.unwrap().stdout).unwrap();
        assert_eq!(counts(&summary(policies, &cut, &[])), [2, 1, 1, 0]);
    }
}

#[test]
fn a_waiter_is_charged_when_it_passes_whatever_comes_next() {
    let policies =
        "policies: [ { name: log, rules: [ { sliding_log: { limit: 1, window: 200ms } } ] } ]";
    let first = r#"{"at_us":100000000,"policy":"log","key":"k"}"#.to_owned();
    let waiter =
        r#"{"at_us":100100000,"policy":"log","key":"k","op":"reserve","max_wait_us":5000000}"#
            .to_owned();
    let alone = decisions(policies, &[first.clone(), waiter.clone()]);
    for later in [100_700_000_u64, 101_050_000, 105_000_000] {
        let next = format!(r#"{{"at_us":{later},"policy":"log","key":"k"}}"#);
        let decided = decisions(policies, &[first.clone(), waiter.clone(), next]);
        assert_eq!(decided[..2], alone[..], "{later}");
        // The waiter passed at 100.2 s and has left the window.
        assert_eq!(decided[2]["allowed"], true, "{later}");
    }
}

/// A catalog of up to 20 policies, more than a gateway decides, whose budgets last longer than a test.
fn catalog(rng: &mut Rng) -> String {
    let pick = |rng: &mut Rng, choices: &[&str]| choices[rng.usize(..choices.len())].to_owned();
    let mut text = "policies:\n".to_owned();
    // In a crowd, more policies match each request than a gateway decides.
    let is_crowd = rng.u8(..4) == 0;
    let policies = if is_crowd { rng.usize(17..=20) } else { rng.usize(1..=8) };
    for number in 0..policies {
        let path = pick(
            rng,
            &[
                "prefix: /",
                "prefix: /api",
                "exact: /api/x",
                "prefix: /api/",
                "exact: /%41",
                "exact: /login",
            ],
        );
        let path = if is_crowd { "prefix: /".to_owned() } else { path };
        let method = pick(rng, &["", ", method: [POST]", ", method: [GET, HEAD]"]);
        let method = if is_crowd { String::new() } else { method };
        let key = pick(
            rng,
            &[
                "",
                "key: [remote_ip], ",
                "key: [path], ",
                "key: [remote_ip, method], ",
                "key: [host], ",
                "key: [user_agent, host], ",
            ],
        );
        let overflow = pick(
            rng,
            &[
                "",
                "",
                "overflow: shadow, ",
                "overflow: { degrade: { tag: t } }, ",
                "overflow: { divert: { target: d } }, ",
            ],
        );
        let limit = rng.u32(1..=9);
        let rule = pick(
            rng,
            &[
                "fixed_window: { limit: N, window: 300d, align: first }",
                "token_bucket: { rate: 1/300d, burst: N }",
                "sliding_log: { limit: N, window: 300d }",
                "sliding_window: { limit: N, window: 300d }",
            ],
        );
        let rule = rule.replace('N', &limit.to_string());
        let second = pick(rng, &["", ", { name: two, sliding_log: { limit: 3, window: 300d } }"]);
        writeln!(
            text,
            "  - {{ name: p{number}, match: {{ path: {{ {path} }}{method} }}, {key}{overflow}rules: [ {{ name: one, {rule} }}{second} ] }}"
        )
        .unwrap();
    }
    text
}

/// A request in the second `second` of a minute: its line in a log, and the header fields that a gateway sends.
fn request(rng: &mut Rng, second: u32) -> (String, String) {
    let mut pick = |choices: &[&'static str]| choices[rng.usize(..choices.len())];
    let host = pick(&["www.example.com:443", "WWW.Example.com.:443", "shop.example.com:80"]);
    let client = pick(&["203.0.113.9", "203.0.113.10:51123", "2001:db8::1", "2001:db8::2"]);
    let method = pick(&["GET", "POST", "HEAD"]);
    let path = pick(&[
        "/",
        "/api",
        "/api/x",
        "//api/x",
        "/%61pi/x?y",
        "/a/../api/x",
        "/login",
        "/%41",
        "/api/%2e./x",
    ]);
    let agent = pick(&["curl/8.5", "Mozilla/5.0 (X11)"]);
    let line = format!(
        "{host} {client} - - [02/Nov/2026:10:00:{second:02} +0000] \"{method} {path} HTTP/1.1\" 200 1 \"-\" \"{agent}\"\n"
    );
    let fields = format!(
        "x-original-uri: {path}\r\nx-original-method: {method}\r\nx-original-host: {host}\r\n\
         x-forwarded-for: {client}\r\nuser-agent: {agent}\r\n"
    );
    (line, fields)
}

/// The answer to a gateway: its status, and the verdict with the deciding policy, if a policy guards the request.
type Told = (u16, Option<(String, String)>);

/// Asserts that a what-if of `policies`, compared with none, counts on `log` the answers that a gateway was `told`.
fn check_whatif(policies: &str, log: &str, told: &[Told], what: &str) {
    let new = PolicySet::new(Document::parse(policies).unwrap().for_every_app());
    let clients = ClientArgs::default();
    let options = CompareOptions { policy: None, key: None, clients, reorder: REORDER_DEFAULT };
    let limits = ReadLimits { bytes_max: 1 << 20, lines_max: 1_000, is_over: Arc::new(|| false) };
    let log = Cursor::new(log.to_owned());
    let summary = compare_log(log, PolicySet::default(), new, &options, &limits).unwrap().summary;
    let bad = told.iter().filter(|(status, _)| *status == 400).count();
    let guarded: Vec<_> = told.iter().filter_map(|(_, verdict)| verdict.as_ref()).collect();
    let refused = guarded.iter().filter(|(verdict, _)| verdict != "pass" && verdict != "shadow");
    let mut refused_by = BTreeMap::new();
    for (_, policy) in refused {
        *refused_by.entry(policy.clone()).or_insert(0) += 1;
    }
    assert_eq!(
        [summary.errors, summary.requests, summary.unguarded, summary.refused_new],
        [
            bad as u64,
            guarded.len() as u64,
            (told.len() - bad - guarded.len()) as u64,
            refused_by.values().sum::<u64>()
        ],
        "{what}"
    );
    let counted = summary.policies.into_iter().filter(|named| named.counts.new.refused > 0);
    let counted = counted.map(|named| (named.policy, named.counts.new.refused));
    assert_eq!(counted.collect::<BTreeMap<_, _>>(), refused_by, "{what}");
}

#[tokio::test]
async fn a_gateway_a_replay_and_a_what_if_decide_the_same() {
    let seed = Rng::new().u64(..);
    let mut rng = Rng::with_seed(seed);
    for round in 0..8 {
        let policies = catalog(&mut rng);
        let server = need!(Server::start(&policies, &[]).await);
        let (mut log, mut told) = (String::new(), Vec::<Told>::new());
        for second in 0..50 {
            let (line, fields) = request(&mut rng, second);
            log.push_str(&line);
            let call = ask(server.http, "/v1/auth", &fields).await;
            let verdict = call.header("x-sluicegate-verdict").map(ToOwned::to_owned);
            let policy = call.header("x-sluicegate-policy").map(ToOwned::to_owned);
            told.push((call.status, verdict.zip(policy)));
        }
        let what = format!("seed {seed} round {round}\n{policies}");
        let replayed = replay(&policies, &log, &["--decisions", "-"]);
        // Bad lines are printed as they are read, good ones in the order of time.
        let (bad, good): (Vec<_>, Vec<_>) =
            lines(&replayed.stdout).into_iter().partition(|line| !line["error"].is_null());
        assert_eq!(bad.len(), told.iter().filter(|(status, _)| *status == 400).count(), "{what}");
        // Where no policy guards a request, there is no verdict and no line.
        let verdicts: Vec<_> = told.iter().filter_map(|(_, verdict)| verdict.clone()).collect();
        let text = |value: &Value| value.as_str().expect("a line of a log").to_owned();
        let replayed = good.iter().map(|line| (text(&line["verdict"]), text(&line["policy"])));
        assert_eq!(replayed.collect::<Vec<_>>(), verdicts, "{what}");
        // A comparison blocks its thread.
        let compared = thread::spawn(move || check_whatif(&policies, &log, &told, &what));
        compared.join().expect("what-if decides the same");
    }
}
