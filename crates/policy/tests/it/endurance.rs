//! Rules endure a load as long as they admit its requests one by one.

use proptest::prelude::*;
use sluicegate_kernel::{Cost, Micros, Moment, Rate, States, Verb};
use sluicegate_policy::{Document, Endurance, Rules};

const NOW: Micros = Micros::from_secs(1_800_000_000);

fn rules(rules: &str) -> Rules {
    let document = Document::parse(&format!("policies: [ {{ name: a, rules: [ {rules} ] }} ]"));
    document.unwrap_or_else(|errors| panic!("{errors}")).policies()[0].rules().clone()
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The endurance, in words.
fn endurance(written: &str, load: &str) -> String {
    let rules = rules(written);
    let Some(Endurance { admitted, lasts, delay, over }) = rules.endurance(rate(load), NOW) else {
        return "none".to_owned();
    };
    let delay = if delay == Micros::ZERO { String::new() } else { format!(", delayed {delay}") };
    let end = over.map_or_else(
        || "not over".to_owned(),
        |over| {
            format!("over {}, full after {}", rules.set().rules()[over.rule].name, over.full_after)
        },
    );
    format!("{admitted} in {lasts}{delay}, {end}")
}

#[test]
fn of_each_algorithm_above_its_limit_and_at_it() {
    for (rules, load, expected) in [
        // b = 200, r = 100/s, M = 500/s: b / (M - r) is half a second.
        (
            "token_bucket: { rate: 100/s, burst: 200 }",
            "500/s",
            "249 in 498000us, over token_bucket, full after 1992000us",
        ),
        ("token_bucket: { rate: 100/s, burst: 200 }", "100/s", "20000 in 200000000us, not over"),
        (
            "token_bucket: { rate: 1/s, burst: 10, initial: 0 }",
            "5/s",
            "0 in 0us, over token_bucket, full after 10000000us",
        ),
        (
            "leaky_bucket: { rate: 10/s, burst: 20 }",
            "20/s",
            "41 in 2050000us, delayed 2000000us, over leaky_bucket, full after 2050000us",
        ),
        (
            "fixed_window: { limit: 5000, window: 1h }",
            "500/s",
            "5000 in 10000000us, over fixed_window, full after 3590000000us",
        ),
        (
            "fixed_window: { limit: 5000, calendar: day, time_zone: Europe/Berlin }",
            "1/min",
            "100000 in 6000000000000us, not over",
        ),
        (
            "sliding_window: { limit: 100, window: 1m }",
            "10/s",
            "100 in 10000000us, over sliding_window, full after 61999999us",
        ),
        (
            "sliding_counter: { limit: 100, window: 1m }",
            "10/s",
            "100 in 10000000us, over sliding_counter, full after 110000000us",
        ),
        (
            "sliding_log: { limit: 100, window: 1m }",
            "10/s",
            "100 in 10000000us, over sliding_log, full after 59900000us",
        ),
        (
            "smooth_bursty: { rate: 10/s }",
            "20/s",
            "1 in 50000us, over smooth_bursty, full after 1050000us",
        ),
        ("concurrency: { limit: 5, ttl: 1m }", "10/s", "none"),
        (
            "{ name: s, token_bucket: { rate: 100/s } }, { name: h, sliding_counter: { limit: 3000, window: 1h } }",
            "90/s",
            "3000 in 33333333us, over h, full after 7166666667us",
        ),
        (
            "fixed_window: { limit: 4294967296, window: 1d }",
            "1000000/s",
            "4294967296 in 4294967296us, over fixed_window, full after 53305032704us",
        ),
        (
            "token_bucket: { rate: 1/366d, burst: 4294967296 }",
            "1/366d",
            "10 in 316224000000000us, not over",
        ),
    ] {
        assert_eq!(endurance(rules, load), expected, "{rules} at {load}");
    }
}

proptest! {
    #[test]
    fn it_is_that_of_requests_one_by_one(
        rule in prop::sample::select(vec![
            "token_bucket: { rate: R, burst: L }",
            "leaky_bucket: { rate: R, burst: L }",
            "fixed_window: { limit: L, window: W }",
            "sliding_log: { limit: L, window: W }",
            "sliding_window: { limit: L, window: W, buckets: 5 }",
            "sliding_counter: { limit: L, window: W }",
        ]),
        limit in 1_u64..60,
        window_ms in 1_u64..100_000,
        load in 1_u64..100,
    ) {
        let written = rule
            .replace('R', &format!("{limit}/{window_ms}ms"))
            .replace('L', &limit.to_string())
            .replace('W', &format!("{window_ms}ms"));
        let (rules, load) = (rules(&written), Rate::new(load, Micros::from_secs(1)).unwrap());
        let endured = rules.endurance(load, NOW).unwrap();
        let mut states = States::default();
        for request in 0..20_000 {
            let after = request * load.period().get() / load.permits();
            let moment = Moment::new(NOW.plus(Micros::new(after)));
            let verb = Verb::Check { cost: Cost::ONE };
            let verdict = rules.set().decide(&mut states, &verb, &moment).unwrap();
            if !verdict.decision.allowed() {
                prop_assert_eq!((endured.admitted, endured.lasts.get()), (request, after));
                prop_assert_eq!(endured.over.unwrap().full_after, verdict.decision.reset_after);
                return Ok(());
            }
        }
        prop_assert_eq!((endured.admitted, endured.over), (20_000, None));
    }
}
