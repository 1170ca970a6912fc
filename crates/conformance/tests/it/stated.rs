//! Promises of the algorithms' essays, and answers that articles about other limiters print,
//! written by hand a second time: the kernel writes the vectors' answers, and these tests keep it
//! from confirming a mistake.
//!
//! Each claim names a vector and repeats the answers that matter in words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sluicegate_conformance::{Answer, ErrorCode, Expect, Failure, load_one};

/// Returns the decisions of a vector, `None` where it configures.
fn answers(folder: &str, name: &str) -> Vec<Answer> {
    let steps = load_one(folder, name).unwrap().steps;
    let decision = |expect| match expect {
        Some(Expect::Decision(answer)) => Some(answer),
        _ => None,
    };
    steps.into_iter().filter_map(|step| decision(step.expect)).collect()
}

/// Checks how long each request of a vector is held back, in µs; all of them pass.
fn check_waits(folder: &str, name: &str, waits: &[u64]) {
    let answers = answers(folder, name);
    assert!(answers.iter().all(|answer| answer.allowed), "{name}: {answers:?}");
    let given: Vec<_> = answers.iter().map(|answer| answer.wait_us).collect();
    assert_eq!(given, waits, "{name}");
}

const PASS: Option<u64> = Some(0);
const NEVER: Option<u64> = None;

const fn retry(us: u64) -> Option<u64> {
    Some(us)
}

/// Checks when each request of a vector can pass: [`PASS`], [`retry`] or [`NEVER`].
fn check(folder: &str, name: &str, retries: &[Option<u64>]) {
    let answers = answers(folder, name);
    let given: Vec<_> = answers.iter().map(|answer| answer.retry_after_us).collect();
    assert_eq!(given, retries, "{name}");
    for answer in answers {
        assert_eq!(answer.allowed, answer.retry_after_us == PASS, "{name}: {answer:?}");
    }
}

#[test]
fn guava_s_smooth_bursty_waits_as_an_article_prints() {
    check_waits(
        "smooth_bursty",
        "guava_one_by_one",
        &[0, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000],
    );
    check_waits("smooth_bursty", "guava_five_then_one", &[0, 1_000_000, 200_000]);
    check_waits("smooth_bursty", "guava_stored", &[0, 0, 0, 0, 500_000]);
}

#[test]
fn guava_s_smooth_warming_up_waits_as_an_article_prints() {
    let cold = [0, 520_000, 360_000, 220_000, 200_000, 200_000];
    let rested =
        [0, 360_000, 220_000, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000, 200_000];
    check_waits("smooth_warmup", "guava_cold_start", &[&cold[..], &rested[..]].concat());
}

#[test]
fn the_sliding_log_runs_as_an_article_prints() {
    let name = "sliding_log_of_a_second_and_a_minute";
    let second = retry(1_000_000);
    check("ruleset", name, &[PASS, second, PASS, PASS, PASS, PASS, retry(55_000_000), PASS]);
    let rules: Vec<_> = answers("ruleset", name).into_iter().map(|answer| answer.rule).collect();
    assert_eq!((rules[1].as_str(), rules[6].as_str()), ("second", "minute"));
}

#[test]
fn the_table_of_the_last_five_requests_says_four_more_seconds() {
    let four = [PASS, PASS, PASS, PASS, PASS, retry(4_000_000), retry(1), PASS, PASS];
    check("ruleset", "a_list_of_the_last_five", &four);
}

#[test]
fn the_essays_worked_examples_hold() {
    let retry_70_ms = retry(70_000);
    check("token_bucket", "worked_example", &[PASS, PASS, retry_70_ms, PASS]);
    check_waits("smooth_bursty", "worked_example", &[0, 1_000_000, 200_000, 400_000]);
    let minute = [PASS, PASS, retry(1_000_000), retry(1), PASS];
    check("fixed_window", "worked_example", &minute);
    let bucket =
        [PASS, retry(99_999), retry(50_000), retry(49_999), retry(1), PASS, retry(1_000_000)];
    check("sliding_window", "worked_example", &bucket);
    check("sliding_log", "worked_example", &[PASS, retry(1), PASS]);
    let estimate = [PASS, PASS, PASS, retry(750_000), PASS, retry(750_000)];
    check("sliding_counter", "worked_example", &estimate);
    let remaining: Vec<_> =
        answers("sliding_counter", "worked_example").iter().map(|a| a.remaining).collect();
    assert_eq!(remaining, [20, 10, 10, 10, 0, 0], "80 · 0.75 + 30 = 90 of 100");
    let held = [PASS, PASS, retry(28_000_000), PASS, PASS, PASS, retry(2_000_000)];
    check("concurrency", "worked_example", &held);
}

#[test]
fn nginx_s_burst_of_three_is_spread_over_a_second_and_a_half() {
    let leaky = answers("leaky_bucket", "worked_example");
    let waits: Vec<_> = leaky.iter().map(|answer| answer.wait_us).collect();
    assert_eq!(waits, [0, 500_000, 1_000_000, 1_500_000, 0, 0, 1_500_000]);
    assert_eq!(leaky[4].retry_after_us, retry(500_000));
    let after_two = answers("leaky_bucket", "delay_after_some");
    let waits: Vec<_> = after_two.iter().map(|answer| answer.wait_us).collect();
    assert_eq!(waits, [0, 0, 0, 500_000, 1_000_000, 1_500_000, 0]);
    let meter = answers("leaky_bucket", "delay_none");
    assert!(meter.iter().all(|answer| answer.wait_us == 0) && !meter[4].allowed);
}

#[test]
fn a_rate_is_an_exact_fraction() {
    // 1/7 s = 142857.14… µs: refused at 142857, and the fraction is still there two tokens later.
    let refused = [0, 142_857, 1, 0, 142_858, 2, 1, 0, 142_857];
    check("token_bucket", "the_retry_is_exact", &refused.map(retry));
}

#[test]
fn a_day_is_a_day_whatever_the_tick() {
    let day = 86_400_000_000;
    let coarse = answers("token_bucket", "a_coarse_tick");
    let retries: Vec<_> = coarse[2..6].iter().map(|answer| answer.retry_after_us).collect();
    assert_eq!(retries, [retry(day), retry(1), PASS, retry(day)]);
    assert_eq!(coarse[6].wait_us, day);
}

#[test]
fn an_interval_gives_all_its_tokens_at_its_end() {
    let interval = answers("token_bucket", "all_at_the_end_of_the_interval");
    let granted: Vec<_> = interval.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted, [10, 0, 0, 10, 0, 10, 0, 0, 0, 10, 9]);
    assert_eq!(interval[2].retry_after_us, retry(1));
    assert_eq!(interval[5].wait_us, 1_000_000);
}

#[test]
fn initial_tokens_are_what_a_new_key_has() {
    let initial = answers("token_bucket", "initial_tokens");
    let remaining: Vec<_> = initial.iter().map(|answer| answer.remaining).collect();
    assert_eq!(remaining, [3, 3, 3, 0, 3, 0, 0]);
    check("token_bucket", "starting_empty", &[retry(1_000_000), retry(1), PASS, retry(1_000_000)]);
}

#[test]
fn a_cost_above_the_limit_never_passes() {
    check("token_bucket", "a_reservation_above_the_burst_never_passes", &[NEVER, NEVER, PASS]);
    for (folder, name, step) in [
        ("leaky_bucket", "costs", 0),
        ("sliding_window", "a_cost_waits_for_as_many_buckets_as_it_needs", 7),
        ("sliding_log", "a_cost_waits_for_as_many_entries_as_it_needs", 6),
        ("concurrency", "costs", 4),
    ] {
        assert_eq!(answers(folder, name)[step].retry_after_us, NEVER, "{folder}");
    }
}

#[test]
fn no_rule_is_charged_unless_every_rule_allows() {
    let set = answers("ruleset", "nothing_is_charged_unless_all_allow");
    let granted: Vec<_> = set.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted, [1, 1, 0, 0, 0, 0, 1, 0]);
    let partial = answers("ruleset", "a_partial_grant_is_the_least_that_all_have");
    let granted: Vec<_> = partial.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted, [5, 0, 1, 2, 0], "5 + 1 + 2 are the 8 of the hour");
}

#[test]
fn the_slowest_rule_decides() {
    let refused = answers("ruleset", "the_longest_retry_decides");
    let rules: Vec<_> = refused.iter().map(|answer| answer.rule.as_str()).collect();
    assert_eq!(rules[3..], ["minute", "minute", "second", "second"]);
    assert_eq!(refused[3].retry_after_us, retry(59_000_000));
    assert_eq!(refused[5].retry_after_us, NEVER, "2 never fit into 1 a second");
    let waits = answers("ruleset", "the_longest_wait_decides");
    let waits: Vec<_> = waits.iter().map(|answer| (answer.wait_us, answer.rule.as_str())).collect();
    assert_eq!(waits[..3], [(0, "bucket"), (1_000_000, "slow"), (2_000_000, "slow")]);
}

#[test]
fn usage_stays_usage_under_a_new_limit() {
    let configured = answers("token_bucket", "a_new_rate_holds_from_the_next_call");
    let left: Vec<_> = configured.iter().map(|answer| (answer.remaining, answer.limit)).collect();
    assert_eq!(left[..3], [(2, 10), (12, 20), (0, 20)], "8 in use of 10, then of 20");
    assert_eq!(configured[5].retry_after_us, retry(16_000_000), "20 in use of now 5, at 1/s");
    let half = answers("token_bucket", "proportional");
    assert_eq!((half[0].remaining, half[1].remaining), (5, 50));
}

#[test]
fn a_limit_that_changes_often_still_gives_permits_back() {
    for (folder, passed) in [("token_bucket", 6), ("leaky_bucket", 6), ("smooth_bursty", 4)] {
        let answers = answers(folder, "proportional_keeps_a_part_of_a_permit");
        let granted: u64 = answers[1..].iter().map(|answer| answer.granted).sum();
        assert_eq!(
            granted, passed,
            "{folder}: a permit every three minutes of 18, and of 9 once a debt is paid"
        );
    }
}

#[test]
fn a_refill_by_interval_comes_when_it_was_due_under_another_rate() {
    const HOUR: u64 = 3_600_000_000;
    let answers = answers("token_bucket", "a_new_rate_of_an_interval_keeps_its_period");
    let granted: Vec<_> = answers.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted[..4], [100, 0, 0, 50], "100 of the day, then 50 of the next");
    assert_eq!(answers[1].retry_after_us, retry(HOUR / 2), "half an hour before the day ends");
    assert_eq!(granted[5..7], [0, 50], "a day later, as a part of the new limit");
}

#[test]
fn guava_s_stored_permits_are_rescaled_and_a_debt_keeps_its_time() {
    let stored = answers("smooth_bursty", "a_new_rate_rescales_what_is_stored");
    assert_eq!((stored[1].remaining, stored[2].remaining), (4, 8), "4 of 10 are 8 of 20");
    check_waits("smooth_bursty", "a_new_rate_with_a_debt", &[0, 500_000, 510_000]);
}

#[test]
fn twice_the_limit_passes_around_a_fixed_boundary_and_not_around_a_sliding_one() {
    let fixed = answers("fixed_window", "twice_the_limit_around_a_boundary");
    assert_eq!((fixed[0].granted, fixed[2].granted), (5, 5), "in two microseconds");
    let sliding = answers("sliding_window", "never_more_in_any_window");
    let granted: Vec<_> = sliding.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted, [5, 0, 0, 0, 5]);
}

#[test]
fn a_month_ends_when_its_calendar_says() {
    let month = answers("fixed_window", "a_calendar_month");
    let granted: Vec<_> = month.iter().map(|answer| answer.granted).collect();
    assert_eq!(granted, [2, 1, 0, 3, 0]);
    assert_eq!(month[4].retry_after_us, retry(30 * 86_400_000_000), "November has 30 days");
}

#[test]
fn a_verb_that_the_rules_do_not_know_is_an_error() {
    let errors = |folder: &str| {
        let failed = |expect| match expect {
            Some(Expect::Failure(Failure { error })) => Some(error),
            _ => None,
        };
        let steps = load_one(folder, "every_verb").unwrap().steps;
        steps
            .into_iter()
            .filter_map(|step| failed(step.expect).map(|error| (step.op, error)))
            .collect::<Vec<_>>()
    };
    use sluicegate_conformance::Op::{Acquire, AtMost, Check, Release, Renew, Reserve};
    let unsupported = ErrorCode::Unsupported;
    for folder in ["token_bucket", "leaky_bucket", "smooth_bursty", "smooth_warmup"] {
        let permits = [(Acquire, unsupported), (Release, unsupported), (Renew, unsupported)];
        assert_eq!(errors(folder), permits, "{folder}");
    }
    let rates = [(Check, unsupported), (Reserve, unsupported), (AtMost, unsupported)];
    assert_eq!(errors("concurrency"), rates);
}
