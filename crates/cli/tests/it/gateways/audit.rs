//! Checks that the requests that passed are those that a token bucket lets pass, by the times at which they were sent
//! and answered: each was decided in between.

use super::client::{Call, get, get_at_once, now_us};
use super::stage::Stage;

/// The policy of `examples/gateways/policies.yaml`: five at once, one more each 100 ms.
const BURST: i64 = 5;
const EVERY_US: i64 = 100_000;

/// Most by which a clock that is adjusted may run ahead within the seconds of a test.
const SKEW_US: i64 = 2_000;

/// Time that a test keeps asking.
const ASK_US: i64 = 1_500_000;

/// Sends twenty requests at once, then one after the other for a while, and checks that exactly those pass that the
/// policy allows.
pub(crate) async fn exactly_what_the_policy_allows_passes(stage: &Stage) {
    let begin = now_us();
    let before = stage.app.requests();
    let mut calls = get_at_once(stage.gateway, "/", 20).await;
    while now_us() - begin < ASK_US {
        calls.push(get(stage.gateway, "/", "").await);
    }
    let (passed, refused): (Vec<_>, Vec<_>) = calls.iter().partition(|call| call.status == 200);
    for call in &refused {
        assert_eq!(call.status, 429, "{}", call.head);
        assert_eq!(call.header("retry-after"), Some("1"), "{}", call.head);
    }
    assert_eq!(stage.app.requests() - before, passed.len(), "what passes gets there, and no more");
    no_more_than_allowed(&passed);
    no_less_than_allowed(&passed, &refused);
}

/// Checks that in no interval more passed than a burst and the permits that refilled meanwhile.
fn no_more_than_allowed(passed: &[&Call]) {
    for first in passed {
        for last in passed {
            let within = passed.iter().filter(|call| {
                call.sent_us >= first.sent_us && call.answered_us <= last.answered_us
            });
            let span_us = (last.answered_us - first.sent_us + SKEW_US).max(0);
            let within = i64::try_from(within.count()).expect("there are not so many");
            assert!(within * EVERY_US <= BURST * EVERY_US + span_us, "{within} in {span_us} us");
        }
    }
}

/// Checks each refusal: less than one permit was left, so there is an instant since which a burst and all refilled
/// permits were used.
fn no_less_than_allowed(passed: &[&Call], refused: &[&Call]) {
    for call in refused {
        let is_used_up = passed.iter().any(|since| {
            let used = passed.iter().filter(|other| {
                other.answered_us >= since.sent_us && other.sent_us <= call.answered_us
            });
            let used = i64::try_from(used.count()).expect("there are not so many");
            let flowed_us = (call.sent_us - since.answered_us - SKEW_US).max(0);
            BURST * EVERY_US + flowed_us - used * EVERY_US < EVERY_US
        });
        assert!(is_used_up, "refused at {} us with permits left", call.sent_us);
    }
}

/// Checks that of twenty at once exactly five pass: nothing refills while the test runs.
pub(crate) async fn exactly_five_of_twenty_pass(stage: &Stage) {
    let before = stage.app.requests();
    let calls = get_at_once(stage.gateway, "/", 20).await;
    let passed = calls.iter().filter(|call| call.status == 200).count();
    let refused = calls.iter().filter(|call| call.status == 429).count();
    assert_eq!((passed, refused), (5, 15));
    assert_eq!(stage.app.requests() - before, 5, "what passes gets there, and no more");
    for call in calls.iter().filter(|call| call.status == 429) {
        let retry_after = call.header("retry-after").and_then(|text| text.parse::<u32>().ok());
        assert!(retry_after.is_some_and(|s| (350..=360).contains(&s)), "{}", call.head);
    }
}

#[test]
fn an_audit_notices_one_too_many_and_one_too_few() {
    let call = |at_us: i64| Call {
        sent_us: at_us,
        answered_us: at_us + 1_000,
        status: 0,
        head: String::new(),
        body: String::new(),
    };
    let mut passed: Vec<_> = [0, 0, 0, 0, 0, 110_000, 210_000].map(call).into();
    let refused: Vec<_> = [5_000, 90_000, 195_000].map(call).into();
    let verdict = |passed: &[Call], refused: &[Call]| {
        let (passed, refused): (Vec<_>, Vec<_>) =
            (passed.iter().collect(), refused.iter().collect());
        let audited = std::panic::catch_unwind(|| {
            no_more_than_allowed(&passed);
            no_less_than_allowed(&passed, &refused);
        });
        audited.is_ok()
    };
    assert!(verdict(&passed, &refused));
    assert!(!verdict(&passed, &[call(350_000)]), "one has flowed back since");
    assert!(!verdict(&passed[..4], &[call(5_000)]), "the fifth was refused");
    passed.push(call(60_000));
    assert!(!verdict(&passed, &refused), "a seventh within 110 ms");
}
