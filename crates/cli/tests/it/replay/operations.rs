//! Every operation of the `jsonl` format, and the shape of its decision line.

use crate::replay::{allowed, decisions, numbers, replay};

const POLICIES: &str = "policies: [{ name: p, rules: [{ name: burst, token_bucket: { rate: 1/s, burst: 5 } }] },\
    { name: c, rules: [{ name: slots, concurrency: { limit: 2, ttl: 10s } }] }]";

fn events(policy: &str, events: &[(u64, &str)]) -> Vec<String> {
    let event =
        |(at_us, rest): &(u64, &str)| format!(r#"{{"at_us":{at_us},"policy":"{policy}"{rest}}}"#);
    events.iter().map(event).collect()
}

#[test]
fn a_decision_line_has_these_fields_in_this_order() {
    let input = concat!(
        r#"{"at_us":0,"policy":"p","key":"k","cost":1,"op":"check"}"#,
        "\n",
        r#"{"at_us":0,"policy":"p","cost":6}"#,
        "\n",
        r#"{"at_us":0,"policy":"c","key":"a\"b","op":"acquire"}"#,
        "\n",
    );
    let replayed = replay(POLICIES, input, &["--decisions", "-"]);
    assert_eq!(
        replayed.stdout,
        concat!(
            r#"{"at_us":0,"policy":"p","key":"k","op":"check","allowed":true,"granted":1,"wait_us":0,"#,
            r#""limit":5,"remaining":4,"retry_after_us":0,"reset_after_us":1000000,"rule":"burst"}"#,
            "\n",
            r#"{"at_us":0,"policy":"p","key":null,"op":"check","allowed":false,"granted":0,"wait_us":0,"#,
            r#""limit":5,"remaining":5,"retry_after_us":null,"reset_after_us":0,"rule":"burst"}"#,
            "\n",
            r#"{"at_us":0,"policy":"c","key":"a\"b","op":"acquire","allowed":true,"granted":1,"wait_us":0,"#,
            r#""limit":2,"remaining":1,"retry_after_us":0,"reset_after_us":10000000,"rule":"slots","id":"p1"}"#,
            "\n",
        )
    );
    assert!(replayed.stderr.contains("distinct keys"), "the summary goes to standard error");
}

#[test]
fn peek_refund_reset_and_at_most_do_what_they_say() {
    let lines = decisions(
        POLICIES,
        &events(
            "p",
            &[
                (0, r#","cost":3"#),
                (0, r#","op":"peek","cost":3"#),
                (0, r#","op":"at_most","cost":9"#),
                (0, r#","op":"refund","cost":1"#),
                (0, r#","op":"reset","cost":1"#),
                (0, r#","op":"reserve","cost":5"#),
                (0, r#","op":"reserve","cost":2,"max_wait_us":2000000"#),
            ],
        ),
    );
    assert_eq!(allowed(&lines), [true, false, true, true, true, true, true]);
    let granted = [Some(3), Some(0), Some(2), Some(1), Some(0), Some(5), Some(2)];
    assert_eq!(numbers(&lines, "granted"), granted);
    assert_eq!(numbers(&lines, "remaining")[..5], [Some(2), Some(2), Some(0), Some(1), Some(5)]);
    assert_eq!(lines[6]["wait_us"], 2_000_000);
}

#[test]
fn permits_are_acquired_renewed_and_released_by_name() {
    let lines = decisions(
        POLICIES,
        &events(
            "c",
            &[
                (0, r#","op":"acquire","id":"a""#),
                (0, r#","op":"acquire""#),
                (1_000_000, r#","op":"acquire""#),
                (2_000_000, r#","op":"renew","id":"p1""#),
                (3_000_000, r#","op":"release","id":"a""#),
                (3_000_000, r#","op":"release","id":"a""#),
                (3_000_000, r#","op":"acquire""#),
                (11_999_999, r#","op":"acquire","id":"b""#),
                (12_000_000, r#","op":"acquire","id":"b""#),
            ],
        ),
    );
    assert_eq!(allowed(&lines), [true, true, false, true, true, false, true, false, true]);
    let ids: Vec<_> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a", "p1", "p2", "p1", "a", "a", "p3", "b", "b"]);
    assert_eq!(lines[2]["retry_after_us"], 9_000_000);
}

#[test]
fn a_new_version_of_a_policy_holds_from_the_next_event_and_usage_stays() {
    let document =
        r#"{"name":"p","rules":[{"name":"burst","token_bucket":{"rate":"1/s","burst":6}}]}"#;
    let configure = format!(r#","op":"configure","document":{document}"#);
    let take_all = r#","cost":5"#;
    let lines = decisions(
        POLICIES,
        &events("p", &[(0, take_all), (0, ""), (0, &configure), (0, ""), (0, "")]),
    );
    let outcome: Vec<_> = allowed(&lines);
    assert_eq!(outcome, [true, false, true, true, false]);
    assert_eq!(lines[2].to_string(), r#"{"allowed":true,"at_us":0,"op":"configure","policy":"p"}"#);
}

#[test]
fn events_may_leave_the_policy_to_the_command_line() {
    let replayed = replay(POLICIES, r#"{"at_us":0}"#, &["--policy", "p", "--decisions", "-"]);
    assert!(replayed.stdout.contains(r#""policy":"p""#), "{}", replayed.stderr);
}

#[test]
fn a_policy_for_some_apps_is_replayed_for_whoever_asked() {
    let policies =
        "policies: [{ name: p, apps: [checkout], rules: [{ token_bucket: { rate: 1/s } }] }]";
    assert_eq!(allowed(&decisions(policies, &events("p", &[(0, ""), (0, "")]))), [true, false]);
}
