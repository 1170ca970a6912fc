//! Bad events: each is reported with its line and field, changes nothing, and the run continues.

use crate::program::program;
use crate::replay::{decisions_and_errors, file, replay, summary};

const POLICIES: &str = "policies: [{ name: p, rules: [{ token_bucket: { rate: 1/s, burst: 2 } }] },\
    { name: c, rules: [{ concurrency: { limit: 1, ttl: 1s } }] }]";

#[test]
fn a_bad_event_has_its_line_changes_nothing_and_the_run_goes_on() {
    let lines = decisions_and_errors(
        POLICIES,
        &[
            r#"{"at_us":5,"policy":"p","key":"k"}"#,
            r#"{"at_us":900,"policy":"p","key":"k","cost":0}"#,
            "",
            r#"{"at_us":5,"policy":"p","key":"k"}"#,
            r#"{"policy":"p"}"#,
            r#"{"at_us":4,"policy":"p","key":"k"}"#,
            r#"{"at_us":5,"policy":"p","key":"k"}"#,
        ],
    );
    let remaining: Vec<_> = lines.iter().map(|line| line["remaining"].as_u64()).collect();
    assert_eq!(remaining, [Some(1), None, Some(0), None, None, Some(0)]);
    let errors: Vec<_> = lines
        .iter()
        .filter(|line| !line["error"].is_null())
        .map(|line| {
            (line["at_us"].as_u64(), line["line"].as_u64(), line["error"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        errors,
        [
            (Some(900), Some(2), "cost: `0` is outside 1..=2147483648"),
            (
                None,
                Some(5),
                "at_us: is missing, `check` needs a whole number of microseconds \
                 0..=9007199254740991"
            ),
            (
                Some(4),
                Some(6),
                "at_us: `4` is before the previous event at `5`; expected 5 or later"
            ),
        ]
    );
    assert!(lines[5]["allowed"] == false && lines[5]["retry_after_us"] == 1_000_000);
}

#[test]
fn what_only_the_engine_knows_is_told_the_same_way() {
    let long = "x".repeat(1025);
    for (event, problem) in [
        (r#""policy":"q""#.to_owned(), "policy: unknown policy `q`"),
        (r#""policy":"p","key":"""#.to_owned(), "key: is empty, expected 1..=1024 bytes"),
        (format!(r#""policy":"p","key":"{long}""#), "key: `1025` bytes are outside 1..=1024"),
        (r#""policy":"c""#.to_owned(), "op: `check` is not supported by this policy"),
        (r#""policy":"p","op":"acquire""#.to_owned(), "op: `acquire` is not supported by this policy"),
        (r#""key":"k""#.to_owned(), "policy: is missing, `check` needs a policy name (string)"),
        (
            r#""op":"configure","document":{"name":"q","rules":[{"token_bucket":{"rate":"1/s"}}]}"#.to_owned(),
            "policy: unknown policy `q`",
        ),
        (
            r#""policy":"p","op":"configure","document":{"name":"c","rules":[{"token_bucket":{"rate":"1/s"}}]}"#
                .to_owned(),
            "document.name: `c` is not `p`, the policy of the event",
        ),
        (
            r#""op":"configure","document":{"name":"p","rules":[{"token_bucket":{"rate":"fast"}}]}"#.to_owned(),
            "document.rules[0].token_bucket.rate: ",
        ),
        (
            r#""op":"configure","document":5"#.to_owned(),
            "document: expected a map with `name`, `apps`, ",
        ),
        (
            r#""op":"configure","document":{"name":"p","rules":[{"token_buckt":{"rate":"1/s"}}]}"#.to_owned(),
            "document.rules[0]",
        ),
    ] {
        let lines = decisions_and_errors(POLICIES, &[&format!(r#"{{"at_us":1,{event}}}"#)]);
        let error = lines[0]["error"].as_str().unwrap();
        assert!(error.starts_with(problem), "{error}, not {problem}");
        assert_eq!((lines.len(), lines[0]["line"].as_u64()), (1, Some(1)));
    }
}

#[test]
fn what_a_bad_event_says_reaches_the_terminal_on_one_line() {
    let escape = "\\u001b[31m\\n".repeat(10_000);
    for event in [
        format!(r#""policy":"{}""#, &escape[..60_000 / 2]),
        format!(r#""policy":"p","op":"{}""#, &escape[..6_000]),
        format!(r#""policy":"p","{}":1"#, &escape[..6_000]),
        format!(r#""policy":"p","cost":"{}""#, &escape[..6_000]),
        format!(
            r#""policy":"{}","op":"configure","document":{{"name":"c","rules":[{{"token_bucket":{{"rate":"1/s"}}}}]}}"#,
            &escape[..6_000]
        ),
    ] {
        let event = format!(r#"{{"at_us":1,{event}}}"#);
        let replayed = replay(POLICIES, &event, &[]);
        let said = replayed.stderr.lines().next().unwrap();
        assert!(said.starts_with("standard input:1: ") && said.len() < 700, "{said}");
        assert!(!replayed.stderr.contains('\u{1b}'), "{said}");
    }
    let said = replay(POLICIES, "", &["--format", "combined", "--policy", "\u{1b}[31m"]).stderr;
    assert!(said.contains("unknown policy `\\u{1b}[31m`"), "{said}");
}

#[test]
fn lines_that_are_no_text_or_too_long_are_bad_events() {
    let long = format!("{{\"at_us\":1,\"policy\":\"p\",\"key\":\"{}\"}}", "x".repeat(70_000));
    let good = br#"{"at_us":1,"policy":"p"}"#;
    let input =
        [&b"{\"at_us\":1,\"policy\":\"\xff\"}\n"[..], long.as_bytes(), b"\n", good].concat();
    let replayed = replay(POLICIES, input, &["--decisions", "-"]);
    let lines = crate::replay::lines(&replayed.stdout);
    assert_eq!(lines[0]["error"], "byte 21 of the line is not UTF-8");
    assert_eq!(lines[1]["error"], "the line is longer than 65536 bytes");
    assert_eq!((&lines[2]["allowed"], replayed.code), (&true.into(), 1));
}

#[test]
fn the_first_twenty_problems_are_told_and_the_rest_counted() {
    let replayed = replay(POLICIES, "{\n".repeat(25), &["--format", "jsonl"]);
    // Twenty problems, the number of the rest, and the error at the end.
    assert_eq!(replayed.stderr.matches("standard input:").count(), 22);
    assert!(replayed.stderr.contains("standard input:20: not JSON: "), "{}", replayed.stderr);
    assert!(replayed.stderr.contains("standard input: and 5 more"), "{}", replayed.stderr);
    assert!(replayed.stdout.contains("bad events"), "{}", replayed.stdout);
    assert_eq!(replayed.code, 1);
}

#[test]
fn what_cannot_begin_says_why() {
    for (policies, options, problem) in [
        ("policies: [{ name: p }]", &[][..], "policies[0] (p).rules: "),
        (POLICIES, &["--key", "remote_ip"], "--key: requires `--format combined`"),
        (POLICIES, &["--key", "colour"], "unknown attribute `colour`"),
        (POLICIES, &["--keys-max", "0"], "`0` is not a whole number 1..=100000000"),
        (POLICIES, &["--reorder", "soon"], "`soon`"),
        (
            POLICIES,
            &["--format", "combined"],
            "--policy: is missing: choose one of the 2 policies (`p`, `c`), or give them a `match`",
        ),
        (POLICIES, &["--format", "combined", "--policy", "q"], "unknown policy `q`"),
        (POLICIES, &["--format", "jsonl", "--policy", "q"], "--policy: unknown policy `q`"),
        (
            POLICIES,
            &["--format", "combined", "--policy", "p", "--key", "host"],
            "logs have no attribute `host`",
        ),
        (
            POLICIES,
            &["--svg", "-"],
            "--svg: expected a file; standard output is used for the summary",
        ),
        (POLICIES, &["--decisions", "/no/such/folder/x"], "--decisions: /no/such/folder/x: "),
    ] {
        let replayed = replay(policies, r#"{"at_us":0}"#, options);
        assert!(replayed.stderr.contains(problem), "{problem} in {}", replayed.stderr);
        assert_eq!((replayed.stdout.as_str(), replayed.code == 0), ("", false));
    }
}

#[test]
fn without_events_the_summary_is_empty_and_right() {
    let summary = summary(POLICIES, "", &[]);
    assert_eq!((&summary["requests"], &summary["complete"]), (&0.into(), &true.into()));
    assert!(summary["first_at_us"].is_null() && summary["busiest_second_after"].is_null());
}

#[test]
fn errors_of_the_input_name_it_as_it_was_given() {
    let input = file("events.jsonl", "{\"at_us\":1}x\n");
    let input = input.to_str().expect("paths of tests are text");
    let policies = file("policies.yaml", POLICIES);
    for (input, problem) in [
        (input, format!("{input}:1: not JSON: ")),
        ("no/such/file.jsonl", "error: no/such/file.jsonl: No such file".to_owned()),
        ("/", "error: /: is a directory".to_owned()),
    ] {
        let mut command = program();
        let output = command.arg("replay").arg("--policies").arg(&policies).arg(input).output();
        let said = String::from_utf8(output.unwrap().stderr).unwrap();
        assert!(said.starts_with(&problem), "{said}");
    }
}

#[test]
fn of_very_many_policies_the_first_are_listed() {
    let policy =
        |number| format!("{{ name: p{number}, rules: [{{ token_bucket: {{ rate: 1/s }} }}] }}");
    let policies: Vec<String> = (1..=21).map(policy).collect();
    let policies = format!("policies: [{}]", policies.join(", "));
    let said = replay(&policies, "", &["--format", "combined"]).stderr;
    assert!(said.contains("one of the 21 policies (`p1`, `p2`, "), "{said}");
    assert!(said.contains(", `p20`, …), or give them a `match`"), "{said}");
}

#[test]
fn help_has_the_limit_of_lines_that_are_sorted() {
    for command in [&["replay", "--help"][..], &["policies", "whatif", "--help"]] {
        let output = program().args(command).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("(at most 1,000,000 at a time)"), "{help}");
    }
}
