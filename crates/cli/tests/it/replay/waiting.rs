//! Reservations: booked if the algorithm can, else tried again in virtual time.

use crate::replay::{allowed, decisions, decisions_and_errors, numbers, summary};

const WINDOW: &str = "policies: [{ name: w, rules: [{ fixed_window: { limit: 1, window: 1s } }] },\
    { name: c, rules: [{ concurrency: { limit: 1, ttl: 1s } }] }]";

fn window(at_us: u64, rest: &str) -> String {
    format!(r#"{{"at_us":{at_us},"policy":"w"{rest}}}"#)
}

#[test]
fn a_reservation_is_tried_again_until_it_passes_first_come_first_served() {
    let reserve = r#","op":"reserve""#;
    let lines = decisions(
        WINDOW,
        &[
            window(0, reserve),
            window(100, reserve),
            window(200, reserve),
            window(300, ""),
            window(1_000_000, ""),
            window(2_500_000, ""),
            window(3_000_000, ""),
        ],
    );
    assert_eq!(allowed(&lines), [true, true, true, false, false, false, true]);
    let waits = numbers(&lines[..3], "wait_us");
    assert_eq!(waits, [Some(0), Some(999_900), Some(1_999_800)]);
    assert_eq!(numbers(&lines, "at_us")[3..5], [Some(300), Some(1_000_000)]);
    assert_eq!(lines[1]["reset_after_us"], 1_999_900);
}

#[test]
fn patience_ends_to_the_microsecond() {
    let reserve = |max_wait_us: u64| {
        let rest = format!(r#","op":"reserve","max_wait_us":{max_wait_us}"#);
        [window(0, ""), window(0, &rest)]
    };
    let passes = decisions(WINDOW, &reserve(1_000_000));
    assert_eq!((allowed(&passes), &passes[1]["wait_us"]), (vec![true, true], &1_000_000.into()));
    let refused = decisions(WINDOW, &reserve(999_999));
    assert_eq!(allowed(&refused), [true, false]);
    assert_eq!(refused[1]["retry_after_us"], 1_000_000);
}

#[test]
fn patience_that_ends_while_waiting_says_when_it_would_have_passed() {
    let reserve =
        |max_wait_us: u64| window(0, &format!(r#","op":"reserve","max_wait_us":{max_wait_us}"#));
    let lines = decisions(WINDOW, &[window(0, ""), reserve(1_000_000), reserve(1_500_000)]);
    assert_eq!(allowed(&lines), [true, true, false]);
    assert_eq!(lines[2]["retry_after_us"], 2_000_000);
    assert_eq!(lines[2]["wait_us"], 0);
}

#[test]
fn a_bad_event_lets_no_time_pass_for_those_who_wait() {
    let lines = decisions_and_errors(
        WINDOW,
        &[
            &window(0, ""),
            &window(0, r#","op":"reserve""#),
            r#"{"at_us":5000000,"policy":"nobody"}"#,
            r#"{"at_us":5000000,"policy":"c"}"#,
            r#"{"at_us":5000000,"policy":"w","key":""}"#,
            &window(10, r#","op":"reset""#),
            &window(20, ""),
        ],
    );
    assert_eq!(lines[1]["wait_us"], 1_000_000);
    assert!(lines[2..5].iter().all(|line| line["error"].is_string()));
    assert_eq!((&lines[5]["at_us"], &lines[6]["allowed"]), (&10.into(), &true.into()));
}

#[test]
fn a_new_version_of_the_policy_counts_when_it_is_tried_again() {
    let document = r#"{"name":"w","rules":[{"concurrency":{"limit":1,"ttl":"1s"}}]}"#;
    let configure = window(10, &format!(r#","op":"configure","document":{document}"#));
    let lines = decisions_and_errors(
        WINDOW,
        &[&window(0, ""), &window(0, r#","op":"reserve""#), &configure],
    );
    let error = lines[1]["error"].as_str().unwrap();
    assert!(error.starts_with("op: `reserve` is not supported by this policy"), "{error}");
    assert_eq!((&lines[1]["line"], &lines[2]["op"]), (&2.into(), &"configure".into()));
}

#[test]
fn a_rule_that_books_answers_at_once_also_beside_one_that_does_not() {
    let policies = "policies: [{ name: w, rules: [\
        { name: bucket, token_bucket: { rate: 1/s, burst: 1 } },\
        { name: window, fixed_window: { limit: 2, window: 1s } }] }]";
    let reserve = r#","op":"reserve","max_wait_us":10000000"#;
    let events = [window(0, ""), window(0, reserve), window(0, reserve), window(100, "")];
    let lines = decisions(policies, &events);
    assert_eq!(allowed(&lines), [true, true, true, false]);
    let waits = numbers(&lines, "wait_us");
    assert_eq!(waits[..2], [Some(0), Some(1_000_000)]);
    // Tried again at 1 s, when the window has room; the bucket then books another second.
    assert_eq!(waits[2], Some(2_000_000));
}

#[test]
fn whoever_holds_too_many_lines_back_gives_up_and_was_charged_nothing() {
    let policies = "policies: [{ name: w, rules: [{ fixed_window: { limit: 1, window: 1h } }] },\
        { name: other, rules: [{ fixed_window: { limit: 1, window: 1s } }] }]";
    let mut input = format!("{}\n{}\n", window(0, ""), window(0, r#","op":"reserve""#));
    for at_us in 0..70_000 {
        input.push_str(&format!("{{\"at_us\":{at_us},\"policy\":\"other\"}}\n"));
    }
    let summary = summary(policies, input, &[]);
    assert_eq!((&summary["errors"], &summary["requests"]), (&1.into(), &70_001.into()));
    assert_eq!((&summary["allowed"], &summary["would_wait"]), (&2.into(), &0.into()));
}

#[test]
fn the_summary_counts_what_would_wait_and_when_it_passes() {
    let reserve = r#"{"at_us":100000,"policy":"w","op":"reserve"}"#;
    let policies = "policies: [{ name: w, rules: [{ fixed_window: { limit: 2, window: 1s } }] }]";
    let summary = summary(policies, [reserve; 5].join("\n"), &[]);
    assert_eq!((&summary["allowed"], &summary["would_wait"]), (&5.into(), &3.into()));
    let busiest =
        |name: &str| (summary[name]["at_us"].as_u64(), summary[name]["requests"].as_u64());
    assert_eq!(busiest("busiest_second_before"), (Some(0), Some(5)));
    assert_eq!(busiest("busiest_second_after"), (Some(0), Some(2)));
    let waited = summary["timeline"]["buckets"][0]["waited"].as_u64();
    assert_eq!(waited, Some(3));
}

#[test]
fn an_event_of_a_calendar_is_decided_while_others_wait() {
    let policies = "policies: [{ name: log, rules: [{ sliding_log: { limit: 1, window: 1s } }] },\
        { name: day, rules: [{ fixed_window: { limit: 1, calendar: day, time_zone: UTC } }] }]";
    let lines = decisions(
        policies,
        &[
            r#"{"at_us":0,"policy":"log"}"#.to_owned(),
            r#"{"at_us":1,"policy":"log","op":"reserve","max_wait_us":60000000}"#.to_owned(),
            r#"{"at_us":2000000,"policy":"day"}"#.to_owned(),
            r#"{"at_us":2000001,"policy":"day"}"#.to_owned(),
        ],
    );
    assert_eq!(allowed(&lines), [true, true, true, false]);
    assert_eq!(numbers(&lines, "wait_us")[1], Some(999_999));
}
