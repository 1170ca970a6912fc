//! Whether what passed is what a token bucket lets pass, by the times at which requests were sent and
//! answered: each was decided somewhere in between.

use super::client::{Call, get, get_at_once, now_us};
use super::stage::Stage;

/// Of `examples/gateways/policies.yaml`: five at once, one more each 100 ms.
const BURST: i64 = 5;
const EVERY_US: i64 = 100_000;

/// What a clock that is set right may gain on one that is not within the seconds of a test.
const SKEW_US: i64 = 2_000;

/// How long a test keeps asking.
const ASK_US: i64 = 1_500_000;

/// Twenty at once, then one after the other for a while: what passes is what the policy allows.
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

/// In no time more than a burst and what flows back meanwhile.
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

/// Whoever was refused came when less than one was left: there is an instant since which a burst and
/// what flowed back were used up to the last.
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

/// Of twenty at once exactly five pass: nothing flows back while the test runs.
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
