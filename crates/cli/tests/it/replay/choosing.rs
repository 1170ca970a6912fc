//! `docs/choosing.md`: its tables and pictures are the output of `replay` for the traffic in `examples/choosing`. With
//! `SLUICEGATE_WRITE=1` this test writes them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::program;
use crate::replay::{file, lines};

/// Each algorithm, its policy, and the traffic: the same requests, which are refused at once, wait for up to a second,
/// or hold a permit for a second.
const SHOWN: [(&str, &str, &str); 9] = [
    ("token_bucket", "bursts", "traffic.jsonl"),
    ("leaky_bucket", "steady", "traffic.jsonl"),
    ("sliding_window", "quota", "traffic.jsonl"),
    ("sliding_log", "exact", "traffic.jsonl"),
    ("sliding_counter", "estimate", "traffic.jsonl"),
    ("fixed_window", "clock", "traffic.jsonl"),
    ("smooth_bursty", "guava", "waiting.jsonl"),
    ("smooth_warmup", "cold-start", "waiting.jsonl"),
    ("concurrency", "at-once", "held.jsonl"),
];

const SECOND_US: u64 = 1_000_000;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The decisions of one policy on its traffic, and their picture.
fn replayed(policy: &str, traffic: &str) -> (Vec<Value>, String) {
    let (picture, decisions) = (file("picture.svg", ""), file("decisions.jsonl", ""));
    let mut command = program();
    command.arg("replay").args(["--policy", policy]);
    command.arg("--policies").arg(root("examples/choosing/policies.yaml"));
    command.arg("--svg").arg(&picture).arg("--decisions").arg(&decisions);
    let output = command.arg(root("examples/choosing").join(traffic)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let decisions = lines(&fs::read_to_string(decisions).unwrap()).into_iter();
    let asked = decisions.filter(|line| line["op"] != "release");
    (asked.collect(), fs::read_to_string(picture).unwrap())
}

/// Checks that the file at `path` has `text`; with `SLUICEGATE_WRITE=1`, writes it.
fn check_file(path: &Path, text: &str) {
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let is_same = fs::read_to_string(path).is_ok_and(|found| found == text);
    assert!(is_same, "{} is not what replay makes: SLUICEGATE_WRITE=1 writes it", path.display());
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap()
}

fn is_allowed(line: &Value) -> bool {
    line["allowed"].as_bool().unwrap()
}

/// The largest number of requests that pass in any interval of this length, each when its wait is over.
fn most_in(decisions: &[Value], span_us: u64) -> usize {
    let passed = decisions.iter().filter(|line| is_allowed(line));
    let mut times: Vec<_> =
        passed.map(|line| number(line, "at_us") + number(line, "wait_us")).collect();
    times.sort_unstable();
    let counts = (0..times.len())
        .map(|first| times.partition_point(|at| *at < times[first] + span_us) - first);
    counts.max().unwrap()
}

fn millis(us: u64) -> String {
    format!("{} ms", us.div_ceil(1_000))
}

fn passed_row(algorithm: &str, decisions: &[Value]) -> String {
    let waits: Vec<_> = decisions.iter().map(|line| number(line, "wait_us")).collect();
    let allowed = decisions.iter().filter(|line| is_allowed(line)).count();
    let waited = waits.iter().filter(|wait| **wait > 0).count();
    let longest = waits.into_iter().max().filter(|wait| *wait > 0).map_or("–".into(), millis);
    let (second, ten) = (most_in(decisions, SECOND_US), most_in(decisions, 10 * SECOND_US));
    let refused = decisions.len() - allowed;
    format!(
        "| [`{algorithm}`](#{algorithm}) | {allowed} | {waited} | {longest} | {refused} | {second} | {ten} |\n"
    )
}

fn refused_row(algorithm: &str, decisions: &[Value]) -> String {
    let first = decisions.iter().find(|line| !is_allowed(line)).unwrap();
    let number = |name| number(first, name);
    let at = number("at_us") as f64 / SECOND_US as f64;
    let (limit, remaining) = (number("limit"), number("remaining"));
    let (retry, reset) = (millis(number("retry_after_us")), millis(number("reset_after_us")));
    format!("| `{algorithm}` | {at:.3} s | {limit} | {remaining} | {retry} | {reset} |\n")
}

/// `page` with `table` between the comment `name` and the next one.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let (before, rest) = page.split_once(&format!("<!-- {name} -->\n")).unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    format!("{before}<!-- {name} -->\n\n{table}\n<!-- end -->\n{after}")
}

#[test]
fn the_tables_and_pictures_of_the_page_are_those_of_the_run() {
    let mut passed = "| Algorithm | Allowed | of these after a wait | Longest wait | Refused | \
        Most in any second | Most in any 10 s |\n|---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let mut refused = "| Algorithm | First refusal at | `limit` | `remaining` | `retry_after` | \
        `reset_after` |\n|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for (algorithm, policy, traffic) in SHOWN {
        let (decisions, picture) = replayed(policy, traffic);
        check_file(&root(&format!("docs/images/choosing/{algorithm}.svg")), &picture);
        passed += &passed_row(algorithm, &decisions);
        refused += &refused_row(algorithm, &decisions);
    }
    let path = root("docs/choosing.md");
    let page = fs::read_to_string(&path).unwrap();
    let page = with_table(&page, "passed", &passed);
    check_file(&path, &with_table(&page, "refused", &refused));
}

#[test]
fn every_algorithm_has_a_policy_a_picture_and_a_section() {
    let page = fs::read_to_string(root("docs/choosing.md")).unwrap();
    let policies = fs::read_to_string(root("examples/choosing/policies.yaml")).unwrap();
    let all: BTreeSet<_> =
        sluicegate_kernel::algorithm::algorithms().iter().map(|all| all.name).collect();
    let shown: BTreeSet<_> = SHOWN.into_iter().map(|(algorithm, ..)| algorithm).collect();
    assert_eq!(all, shown);
    for (algorithm, policy, _) in SHOWN {
        let rule =
            policies.lines().find(|line| line.contains(&format!("name: {policy},"))).unwrap();
        let rule = rule.trim().trim_start_matches("- ");
        assert!(rule.contains(&format!("{{ {algorithm}: ")), "{rule}");
        assert!(page.contains(&format!("\n### `{algorithm}`\n")), "{algorithm}");
        assert!(page.contains(&format!("](images/choosing/{algorithm}.svg)")), "{algorithm}");
        assert!(page.contains(&format!("`{rule}`")), "{rule}");
    }
}

#[test]
fn all_algorithms_get_the_same_traffic() {
    let arrivals = |traffic: &str| -> Vec<u64> {
        let text = fs::read_to_string(root("examples/choosing").join(traffic)).unwrap();
        let events = lines(&text).into_iter().filter(|line| line["op"] != "release");
        events.map(|line| number(&line, "at_us")).collect()
    };
    let same = arrivals("traffic.jsonl");
    assert!(same == arrivals("waiting.jsonl") && same == arrivals("held.jsonl"));
}
