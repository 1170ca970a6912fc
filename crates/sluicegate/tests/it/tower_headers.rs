//! A parser of RFC 9651 reads the header fields as intended.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use http::{HeaderMap, HeaderValue};
use sfv::{BareItem, List, ListEntry, Parser};
use sluicegate::internals::http::HeaderFormat;
use sluicegate::internals::http::headers::{rate_limit, rate_limit_policy, retry_after};
use sluicegate::{
    Decision, Delay, FixedWindow, LeakyBucket, Micros, Rate, Rule, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
};
use sluicegate_kernel::algorithm::{CalendarUnit, WindowKind};
use sluicegate_kernel::{Concurrency, Outcome, Retry};

/// The items of a list: each with its string and its integer parameters.
fn parse(value: &HeaderValue) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(value.as_bytes()).parse().unwrap();
    let items = list.into_iter().map(|entry| {
        let ListEntry::Item(item) = entry else { panic!("{value:?} has an inner list") };
        let BareItem::String(name) = item.bare_item else { panic!("{value:?} has no string") };
        let integers = item.params.into_iter().filter_map(|(key, value)| match value {
            BareItem::Integer(integer) => Some((key.into(), integer.into())),
            _ => None,
        });
        (name.into(), integers.collect())
    });
    items.collect()
}

fn named(name: &str, parameters: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), *value));
    (name.to_owned(), parameters.collect())
}

fn allow(remaining: u64, reset_after: Micros) -> Decision {
    let outcome = Outcome::Allow { granted: 1, wait: Micros::ZERO };
    Decision { outcome, limit: 100, remaining, reset_after }
}

fn deny(retry: Retry) -> Decision {
    let outcome = Outcome::Deny { retry };
    Decision { outcome, limit: 100, remaining: 0, reset_after: Micros::from_secs(60) }
}

fn per_second(permits: u64) -> Rate {
    Rate::per_second(permits).unwrap()
}

#[test]
fn a_policy_says_its_quota_and_its_window_in_whole_seconds() {
    let minute = Micros::from_secs(60);
    let cases: Vec<(Rule, &[(&str, i64)])> = vec![
        // 300 permits come back in 60 s.
        (TokenBucket::new(per_second(5), 300).unwrap().into(), &[("q", 300), ("w", 60)]),
        (TokenBucket::new(per_second(100), 100).unwrap().into(), &[("q", 100), ("w", 1)]),
        // 1.5 s, 0.1 s and a third of a second are not whole numbers of seconds.
        (TokenBucket::new(per_second(100), 150).unwrap().into(), &[("q", 150)]),
        (TokenBucket::new(per_second(100), 10).unwrap().into(), &[("q", 10)]),
        (TokenBucket::new(per_second(3), 1).unwrap().into(), &[("q", 1)]),
        (
            TokenBucket::new(Rate::new(10, minute).unwrap(), 10)
                .unwrap()
                .refilled_by_interval()
                .into(),
            &[("q", 10), ("w", 60)],
        ),
        (LeakyBucket::new(per_second(1), 9, Delay::None).unwrap().into(), &[("q", 10), ("w", 10)]),
        (FixedWindow::epoch(10, minute).unwrap().into(), &[("q", 10), ("w", 60)]),
        (FixedWindow::first(10, minute).unwrap().into(), &[("q", 10), ("w", 60)]),
        (
            FixedWindow::new(10, WindowKind::Calendar(CalendarUnit::Month, "UTC".into()))
                .unwrap()
                .into(),
            &[("q", 10)],
        ),
        (SlidingWindow::new(10, minute, 10).unwrap().into(), &[("q", 10)]),
        (SlidingCounter::new(10, minute).unwrap().into(), &[("q", 10), ("w", 60)]),
        (SlidingLog::new(10, minute).unwrap().into(), &[("q", 10), ("w", 60)]),
        (SmoothBursty::new(per_second(10), minute).unwrap().into(), &[("q", 600), ("w", 60)]),
        (SmoothWarmup::new(per_second(10), minute, 3.0).unwrap().into(), &[("q", 600)]),
        (Concurrency::new(10, minute, 0).unwrap().into(), &[("q", 10)]),
        // Longer than the longest span in a header.
        (
            TokenBucket::new(Rate::new(1, Micros::from_secs(366 * 86_400)).unwrap(), 1 << 32)
                .unwrap()
                .into(),
            &[("q", 1 << 32)],
        ),
    ];
    for (rule, parameters) in cases {
        let value = rate_limit_policy([("p", &rule)]);
        assert_eq!(parse(&value), [named("p", parameters)], "{rule:?}");
    }
}

#[test]
fn several_rules_are_one_list() {
    let burst = TokenBucket::new(per_second(100), 200).unwrap().into();
    let hourly = SlidingLog::new(5_000, Micros::from_secs(3_600)).unwrap().into();
    let value = rate_limit_policy([("burst", &burst), ("hourly", &hourly)]);
    assert_eq!(value, "\"burst\";q=200;w=2, \"hourly\";q=5000;w=3600");
    let expected =
        [named("burst", &[("q", 200), ("w", 2)]), named("hourly", &[("q", 5_000), ("w", 3_600)])];
    assert_eq!(parse(&value), expected);
}

#[test]
fn permits_that_are_held_are_counted_in_concurrent_requests() {
    let rule = Concurrency::new(10, Micros::SECOND, 0).unwrap().into();
    let value = rate_limit_policy([("slots", &rule)]);
    assert_eq!(value, "\"slots\";q=10;qu=\"concurrent-requests\"");
    assert_eq!(parse(&value), [named("slots", &[("q", 10)])]);
}

#[test]
fn what_remains_is_a_whole_number_and_the_reset_is_rounded_up() {
    for (decision, r, t) in [
        (allow(50, Micros::from_secs(30)), 50, 30),
        (allow(50, Micros::new(29_000_001)), 50, 30),
        (allow(100, Micros::ZERO), 100, 0),
        (allow(99, Micros::new(1)), 99, 1),
        (deny(Retry::After(Micros::new(1_000_001))), 0, 2),
        (deny(Retry::After(Micros::ZERO)), 0, 1),
        (deny(Retry::Never), 0, 60),
        // More digits than an integer of RFC 9651 has.
        (allow(u64::MAX, Micros::ZERO), 999_999_999_999_999, 0),
    ] {
        let value = rate_limit("burst", &decision);
        assert_eq!(parse(&value), [named("burst", &[("r", r), ("t", t)])], "{decision:?}");
    }
}

#[test]
fn any_name_is_a_string_and_cannot_break_out() {
    for (name, expected) in [
        ("orders.create", "orders.create"),
        ("a\"b\\c", "a\"b\\c"),
        ("a\r\nset-cookie: b", "a%0d%0aset-cookie: b"),
        ("ü\0", "%c3%bc%00"),
        ("\",\"other\";r=99", "\",\"other\";r=99"),
        ("", ""),
    ] {
        let value = rate_limit(name, &allow(1, Micros::ZERO));
        assert_eq!(parse(&value), [named(expected, &[("r", 1), ("t", 0)])]);
    }
}

#[test]
fn retry_after_is_at_least_a_second_and_absent_where_waiting_does_not_help() {
    let seconds = |decision| retry_after(&decision).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(seconds(deny(Retry::After(Micros::new(1)))).as_deref(), Some("1"));
    assert_eq!(seconds(deny(Retry::After(Micros::ZERO))).as_deref(), Some("1"));
    assert_eq!(seconds(deny(Retry::After(Micros::from_secs(2)))).as_deref(), Some("2"));
    assert_eq!(seconds(deny(Retry::After(Micros::new(2_000_001)))).as_deref(), Some("3"));
    assert_eq!(seconds(deny(Retry::Never)), None);
    assert_eq!(seconds(allow(1, Micros::from_secs(9))), None);
}

#[test]
fn lists_grow_and_the_older_fields_stay_as_they_are() {
    let policy = HeaderValue::from_static("\"p\";q=100");
    let mut headers = HeaderMap::new();
    for (name, remaining) in [("inner", 1), ("outer", 2)] {
        for format in [HeaderFormat::Draft10, HeaderFormat::Draft06, HeaderFormat::XRateLimit] {
            let decision = allow(remaining, Micros::new(1_500_000));
            format.add_to(&mut headers, name, &decision, &policy);
        }
    }
    let all = |name: &str| -> Vec<_> { headers.get_all(name).iter().collect() };
    assert_eq!(all("ratelimit"), ["\"inner\";r=1;t=2", "\"outer\";r=2;t=2"]);
    assert_eq!(all("ratelimit-policy").len(), 2);
    for prefix in ["ratelimit", "x-ratelimit"] {
        assert_eq!(all(&format!("{prefix}-limit")), ["100"]);
        assert_eq!(all(&format!("{prefix}-remaining")), ["1"]);
        assert_eq!(all(&format!("{prefix}-reset")), ["2"]);
    }
}
