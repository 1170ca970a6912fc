//! Tests of the contents of pictures of invented summaries.

use sluicegate_kernel::limits::SPAN_MAX_US;

use super::axis::{TimeTick, steps};
use super::bars::{BARS_MAX, BARS_MIN, MEDIAN_MIN};
use super::*;
use crate::rules::{LongRunRate, RuleTexts};
use crate::summary::timeline::WIDTHS_US;
use crate::summary::{RefusedKey, ReplayTally, TimeBuckets};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// Monday, 2 March 2026.
const MARCH: u64 = 1_772_409_600 * SECOND;

fn buckets(bucket_us: u64, first_us: u64, counts: &[(u64, u64, u64)]) -> TimeBuckets {
    let bucket = |(place, (passed, waited, refused)): (usize, &(u64, u64, u64))| {
        let at_us = first_us + place as u64 * bucket_us;
        CountedBucket { at_us, passed: *passed, waited: *waited, refused: *refused }
    };
    TimeBuckets { bucket_us, buckets: counts.iter().enumerate().map(bucket).collect() }
}

/// The summary of a replay that made this timeline, of a policy `site`.
fn summary(timeline: TimeBuckets) -> Summary {
    let sum = |count: fn(&CountedBucket) -> u64| timeline.buckets.iter().map(count).sum();
    let mut summary = ReplayTally::new().summary(true);
    summary.policy = Some("site".to_owned());
    (summary.requests, summary.refused) = (sum(requests), sum(|bucket| bucket.refused));
    summary.first_at_us = timeline.buckets.first().map(|bucket| bucket.at_us);
    summary.last_at_us = timeline.buckets.last().map(|bucket| bucket.at_us);
    summary.timeline = timeline;
    summary
}

/// `summary` with this number of keys, and `top_refused` as the most refused.
fn with_keys(mut summary: Summary, distinct_keys: u64, top_refused: Vec<RefusedKey>) -> Summary {
    (summary.distinct_keys, summary.top_refused) = (distinct_keys, top_refused);
    summary
}

fn refused_key(key: &str, refused: u64) -> RefusedKey {
    RefusedKey { policy: "site".to_owned(), key: Some(key.to_owned()), refused }
}

fn draw(summary: &Summary, era: Era, rate: Option<(&str, f64)>) -> String {
    let rate = rate.map(|(text, per_second)| LongRunRate { text: text.to_owned(), per_second });
    let rules = RuleTexts { rules: "leaky_bucket 6/min, burst 4".to_owned(), rate };
    svg(&Picture { input: "big.log", era, summary, rules: Some(&rules), key: Some("remote_ip") })
}

/// The texts of a picture, without the tags within.
fn texts(svg: &str) -> Vec<String> {
    let parts = svg.split("<text").skip(1).filter_map(|part| part.split_once('>'));
    let plain = |text: &str| {
        text.split('<').map(|part| part.rsplit('>').next().unwrap_or(part)).collect::<String>()
    };
    parts.filter_map(|(_, text)| Some(plain(text.split_once("</text")?.0))).collect()
}

#[track_caller]
fn check_texts(svg: &str, expected: &[&str]) {
    let texts = texts(svg);
    for text in expected {
        assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
    }
}

#[test]
fn without_requests_the_picture_says_so() {
    let svg = draw(&summary(buckets(1, 0, &[])), Era::Zero, None);
    check_texts(&svg, &["no requests in the input"]);
}

#[test]
fn one_request_makes_a_whole_picture() {
    let svg = draw(&summary(buckets(1, 0, &[(1, 0, 0)])), Era::Zero, None);
    check_texts(&svg, &["■ allowed at once 1", "time (µs)", "requests/s"]);
    assert_eq!(svg.matches("<g>").count(), 1);
}

#[test]
fn the_title_has_the_policy_its_rule_the_key_and_how_much_was_refused() {
    let svg = draw(&summary(buckets(SECOND, 0, &[(656, 0, 344)])), Era::Unix, None);
    check_texts(
        &svg,
        &[
            "site: leaky_bucket 6/min, burst 4, by remote_ip",
            "34.4 % refused of 1,000 requests in big.log",
        ],
    );
    let title = "<title>site: leaky_bucket 6/min, burst 4, by remote_ip. 34.4 % refused of";
    assert!(svg.contains(title) && svg.contains("role=\"img\""), "{svg}");
    assert!(svg.contains("<desc>Requests from 1970-01-01 00:00:00 to"), "{svg}");
}

#[test]
fn the_colours_follow_the_mode_of_the_reader_without_a_script() {
    let svg = draw(&summary(buckets(SECOND, 0, &[(1, 0, 0)])), Era::Zero, None);
    assert!(svg.contains("@media (prefers-color-scheme: dark)") && !svg.contains("<script"));
}

#[test]
fn a_picture_of_requests_has_no_line_of_permits() {
    let mut weighed = summary(buckets(SECOND, 0, &[(1, 0, 0)]));
    let has_line =
        |summary: &Summary| draw(summary, Era::Zero, Some(("1/s", 1.0))).contains("limit 1/s");
    assert!(has_line(&weighed));
    weighed.has_costs = true;
    assert!(!has_line(&weighed));
}

#[test]
fn requests_of_several_policies_are_titled_by_the_input() {
    let mut several = summary(buckets(SECOND, 0, &[(1, 0, 0)]));
    several.policy = None;
    check_texts(&draw(&several, Era::Zero, Some(("1/s", 1.0))), &["Replay of big.log"]);
}

#[test]
fn the_legend_leaves_out_what_did_not_happen() {
    let svg = draw(&summary(buckets(SECOND, 0, &[(5, 0, 3)])), Era::Zero, None);
    check_texts(&svg, &["■ allowed at once 5■ refused 3"]);
}

#[test]
fn each_bar_has_a_tooltip_with_its_counts() {
    let svg =
        draw(&summary(buckets(SECOND, 0, &[(5, 2, 3), (0, 0, 0), (1, 0, 0)])), Era::Zero, None);
    let tooltip =
        "<title>0 s to 1 s: 5 allowed at once, 2 allowed after a wait, 3 refused (10 requests/s)";
    assert!(svg.contains(tooltip), "{svg}");
    assert_eq!(svg.matches("<g>").count(), 2, "an empty bucket has no bar");
}

#[test]
fn a_limit_of_one_budget_is_a_line_and_one_far_above_is_only_named() {
    let timeline = || buckets(SECOND, 0, &[(10, 0, 0); 3]);
    let line = |rate| {
        let svg = draw(&summary(timeline()), Era::Zero, Some(rate));
        (svg.matches("class=\"limit\"").count(), texts(&svg).join("|"))
    };
    let (lines, text) = line(("12/s", 12.0));
    assert!(lines == 2 && text.contains("|limit 12/s|"), "{lines} {text}");
    let (lines, text) = line(("100/s", 100.0));
    assert!(lines == 1 && text.contains("|limit 100/s (above this picture)|"), "{lines} {text}");
}

#[test]
fn with_several_keys_there_is_the_limit_of_one_and_of_all() {
    let keys = with_keys(summary(buckets(SECOND, 0, &[(10, 0, 0); 3])), 30, Vec::new());
    let svg = draw(&keys, Era::Zero, Some(("6/min", 0.1)));
    check_texts(&svg, &["limit of one key: 6/min", "limit of all 30 keys together"]);
}

#[test]
fn the_most_refused_keys_are_a_few_and_cannot_break_the_picture() {
    let top_refused: Vec<_> =
        (0..10).map(|key| refused_key(&format!("<k{key}>&\u{1b}\u{ffff}"), 10 - key)).collect();
    let keys = with_keys(summary(buckets(SECOND, 0, &[(1, 0, 55)])), 30, top_refused);
    let svg = draw(&keys, Era::Zero, None);
    check_texts(&svg, &["Most refused keys", "&lt;k0&gt;&amp;\\u{1b}\u{fffd}", "10 (18.2 %)"]);
    assert_eq!(svg.matches("&lt;k").count(), KEYS_MAX + 1, "and one in the description");
    assert!(!svg.contains('\u{1b}') && !svg.contains("<script"));
}

#[test]
fn a_long_title_takes_two_lines_and_longer_words_are_cut() {
    let top_refused = vec![refused_key(&"k".repeat(1_000), 1), refused_key("b", 1)];
    let mut keys = with_keys(summary(buckets(SECOND, 0, &[(1, 0, 2)])), 2, top_refused);
    keys.policy = Some("p".repeat(40));
    let svg = draw(&keys, Era::Zero, None);
    let first = format!("{}: leaky_bucket", "p".repeat(40));
    check_texts(&svg, &[&first, "6/min, burst 4, by remote_ip", &format!("{}…", "k".repeat(36))]);
    keys.policy = Some("p".repeat(128));
    check_texts(&draw(&keys, Era::Zero, None), &[&format!("{}…", "p".repeat(56))]);
}

#[test]
fn numbers_of_any_size_fit_beside_their_ticks() {
    let svg = draw(&summary(buckets(1, 0, &[(1, 0, 0), (2, 0, 0)])), Era::Zero, None);
    check_texts(&svg, &["500k", "1.5M"]);
    let svg = draw(&summary(buckets(SECOND, 0, &[(20_000, 0, 0)])), Era::Zero, None);
    check_texts(&svg, &["5,000", "20,000"]);
}

#[test]
fn slow_traffic_is_counted_by_the_minute_hour_or_day() {
    for (bucket_us, unit) in [
        (SECOND, "requests/s"),
        (60 * SECOND, "requests/min"),
        (HOUR, "requests/h"),
        (28 * DAY, "requests/day"),
    ] {
        let svg =
            draw(&summary(buckets(bucket_us, MARCH, &[(1, 0, 0), (0, 0, 1)])), Era::Unix, None);
        check_texts(&svg, &[unit]);
    }
}

#[test]
fn the_date_is_written_where_it_changes() {
    let axis = TimeAxis::new(Era::Unix, MARCH + 20 * HOUR, MARCH + 32 * HOUR);
    let ticks: Vec<_> =
        axis.ticks().into_iter().map(|TimeTick { label, date, .. }| (label, date)).collect();
    let expected = [
        ("20:00", Some("2 Mar 2026 UTC")),
        ("22:00", None),
        ("00:00", Some("3 Mar")),
        ("02:00", None),
    ];
    let expected = expected.map(|(label, date)| (label.to_owned(), date.map(str::to_owned)));
    assert_eq!(ticks[..4], expected);
}

#[test]
fn the_median_bar_has_enough_requests_unless_there_would_be_too_few_bars() {
    for each in [1, 3, 10, 40, 1_000] {
        for count in [1, 2, 30, 399, 1_200] {
            let bars = Bars::of(&buckets(SECOND, MARCH, &vec![(each, 0, 0); count]));
            let spans = count as u64 * SECOND / bars.width_us;
            assert!(bars.buckets.len() as u64 <= BARS_MAX + 1, "{each} {count}");
            let next = steps().find(|step| *step > bars.width_us).unwrap();
            let is_narrowest = spans * 2 > BARS_MAX || bars.width_us == SECOND;
            assert!(
                bars.median() >= MEDIAN_MIN || count as u64 * SECOND / next < BARS_MIN,
                "{each} {count}: median {} in {spans} bars",
                bars.median()
            );
            assert!(is_narrowest || spans >= BARS_MIN, "{each} {count}: {spans} bars");
        }
    }
}

#[test]
fn any_span_of_time_has_a_few_ticks_and_few_bars() {
    for (place, width) in WIDTHS_US.iter().enumerate() {
        for count in [1, 2, 149, 150, 151, 1_200] {
            if width * count as u64 > SPAN_MAX_US {
                continue;
            }
            let timeline = buckets(*width, place as u64 * width, &vec![(1, 0, 1); count]);
            let bars = Bars::of(&timeline);
            assert!(bars.buckets.len() as u64 <= BARS_MAX + 1, "{} bars", bars.buckets.len());
            let total: u64 = bars.buckets.iter().map(|bar| bar.passed).sum();
            assert_eq!(total, count as u64);
            for era in [Era::Zero, Era::Unix] {
                let ticks = TimeAxis::new(era, bars.first_us(), bars.end_us()).ticks();
                assert!(ticks.len() <= 7, "{} ticks in {count} of {width} µs", ticks.len());
            }
            let svg = draw(&summary(timeline), Era::Unix, Some(("1/s", 1.0)));
            assert!(svg.len() < 60_000, "{} bytes", svg.len());
        }
    }
}
