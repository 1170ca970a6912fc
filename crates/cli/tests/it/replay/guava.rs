//! The published example runs of Guava's limiters and of a sliding log, to the microsecond.
//!
//! Guava's callers sleep for the returned time, then ask again. Their clocks drift by a little;
//! these values have no drift.

use crate::replay::{allowed, decisions, numbers};

/// Sends requests one after the other, each after the wait of the previous one; `steps` are pauses,
/// costs and expected waits.
fn check_waits(rule: &str, steps: &[(u64, u64, u64)]) {
    let policies = format!("policies: [{{ name: p, rules: [{{ {rule} }}] }}]");
    let (mut at_us, mut events, mut expected) = (0, Vec::new(), Vec::new());
    for (pause_us, cost, wait_us) in steps {
        at_us += pause_us;
        events.push(format!(
            r#"{{"at_us":{at_us},"policy":"p","key":"k","cost":{cost},"op":"reserve"}}"#
        ));
        at_us += wait_us;
        expected.push(Some(*wait_us));
    }
    let lines = decisions(&policies, &events);
    assert_eq!(numbers(&lines, "wait_us"), expected, "{rule}");
    assert!(allowed(&lines).into_iter().all(|allowed| allowed));
}

#[test]
fn smooth_bursty_hands_out_five_a_second_evenly() {
    let later = (0, 1, 200_000);
    check_waits(
        "smooth_bursty: { rate: 5/s }",
        &[(0, 1, 0), later, later, later, later, later, later],
    );
}

#[test]
fn smooth_bursty_lets_the_next_one_pay_for_a_burst() {
    check_waits("smooth_bursty: { rate: 5/s }", &[(0, 5, 0), (0, 1, 1_000_000), (0, 1, 200_000)]);
}

#[test]
fn smooth_bursty_stores_a_second_of_idle_time() {
    check_waits(
        "smooth_bursty: { rate: 2/s }",
        &[(0, 1, 0), (5_000_000, 1, 0), (0, 1, 0), (0, 1, 0), (0, 1, 500_000)],
    );
}

#[test]
fn smooth_warmup_starts_cold_and_is_cold_again_after_a_pause() {
    let (slow, slower, slowest) = ((0, 1, 220_000), (0, 1, 360_000), (0, 1, 520_000));
    let warm = (0, 1, 200_000);
    let start = [(0, 1, 0), slowest, slower, slow, warm, warm];
    let again = [(1_000_000, 1, 0), slower, slow, warm, warm, warm, warm, warm, warm, warm];
    check_waits("smooth_warmup: { rate: 5/s, warmup: 1s }", &[&start[..], &again[..]].concat());
}

#[test]
fn a_sliding_log_of_two_rules_gives_the_published_run() {
    let policies = "policies: [{ name: p, rules: [\
        { name: second, sliding_log: { limit: 1, window: 1s } },\
        { name: minute, sliding_log: { limit: 5, window: 60s } }] }]";
    let seconds = [1_484_551_710_u64, 1_484_551_710, 11, 12, 13, 14, 15, 76];
    let at = |second: u64| if second < 100 { 1_484_551_700 + second } else { second };
    let event = |second: &u64| {
        format!(r#"{{"at_us":{}000000,"policy":"p","key":"192.168.1.100"}}"#, at(*second))
    };
    let lines = decisions(policies, &seconds.iter().map(event).collect::<Vec<_>>());
    assert_eq!(allowed(&lines), [true, false, true, true, true, true, false, true]);
    assert_eq!(
        (&lines[1]["rule"], &lines[1]["retry_after_us"]),
        (&"second".into(), &1_000_000.into())
    );
    assert_eq!(
        (&lines[6]["rule"], &lines[6]["retry_after_us"]),
        (&"minute".into(), &55_000_000.into())
    );
}
