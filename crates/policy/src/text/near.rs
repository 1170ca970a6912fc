//! The most likely meaning of a rate or a duration that cannot be read, for the error.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};

use sluicegate_kernel::limits::PERIOD_MAX_US;
use sluicegate_kernel::written::{parse_span, parse_whole};
use sluicegate_kernel::{Micros, Rate};

use super::span_text;

/// The calendar window that a rate names instead of a time of a fixed length: `10/month`.
pub(super) fn calendar_of(text: &str) -> Option<&'static str> {
    let (permits, per) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    parse_whole(permits.trim())?;
    let per = per.trim();
    ["month", "year"].into_iter().find(|calendar| per.trim_end_matches('s') == *calendar)
}

/// The calendar window that a duration names, and one such time as a duration: `month` and `30d` for `1month`.
pub(super) fn calendar_span(text: &str) -> Option<(&'static str, &'static str)> {
    let (count, unit, rest) = span_part(text.trim())?;
    let calendars = [("month", "30d"), ("year", "365d")];
    let is_named = |calendar: &str| {
        let unit = unit.to_ascii_lowercase();
        unit.trim_end_matches('s') == calendar || unit.strip_suffix("ly") == Some(calendar)
    };
    let is_one = count.is_empty() || parse_whole(count).is_some();
    calendars.into_iter().find(|(calendar, _)| is_one && rest.is_empty() && is_named(calendar))
}

/// The most likely meaning of a duration in words, with a fraction, with several or with other units: `7d` for `1w`,
/// `90m` for `1h30m`, `30s` for `30 sec`, `1500ms` for `1.5s`.
pub(super) fn near_span(text: &str) -> Option<String> {
    let (mut rest, mut us) = (text.trim(), 0_u64);
    while !rest.is_empty() {
        let (count, unit, behind) = span_part(rest)?;
        us = us.checked_add(part_us(count, unit)?)?;
        rest = behind.trim_start();
    }
    (1..=PERIOD_MAX_US).contains(&us).then(|| span_text(Micros::new(us)))
}

/// The number that `text` begins with, the word after it, and the rest.
fn span_part(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.')?;
    let (count, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((count, unit, rest))
}

/// The µs of `count` of `unit`, which may be in English, and may have a tenth.
fn part_us(count: &str, unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let unit = match unit_of(&unit) {
        "w" => "7d".to_owned(),
        unit => alloc::format!("1{unit}"),
    };
    let unit_us = parse_span(&unit)?.get();
    match count.split_once('.') {
        None => parse_whole(count)?.checked_mul(unit_us),
        Some((whole, tenths)) if tenths.len() == 1 => {
            let tenths = parse_whole(whole)?.checked_mul(10)?.checked_add(parse_whole(tenths)?)?;
            let us = tenths.checked_mul(unit_us)?;
            us.is_multiple_of(10).then_some(us / 10)
        }
        Some(_) => None,
    }
}

/// The unit of time that `word` stands for in other notations: `h` for `hr` and `hours`. Anything else as it is.
fn unit_of(word: &str) -> &str {
    match word {
        "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => "ms",
        "secs" | "seconds" => "s",
        "mins" | "minutes" => "m",
        "hr" | "hrs" | "hours" => "h",
        "days" => "d",
        "w" | "week" | "weeks" => "w",
        other => other,
    }
}

/// The most likely meaning of a rate in words, without a time or with other units: `10/s` for `10` and `10 per second`,
/// `5000/s` for `5k/s`, `100/min` for `100rpm`, `1000/s` for `1,000/s`.
pub(super) fn near_rate(text: &str) -> Option<String> {
    let (permits, per) = match text.split_once('/').or_else(|| text.split_once(" per ")) {
        Some((permits, per)) => (permits.trim(), per.trim()),
        None => requests_per(text.trim()),
    };
    let lower = per.to_ascii_lowercase();
    let per = match unit_of(&lower) {
        "w" => "7d",
        // `M` is not a minute for everyone.
        unit if per != "M" => unit,
        _ => per,
    };
    let requests = ["requests", "request", "reqs", "req", "r"];
    let permits = requests.iter().find_map(|word| permits.strip_suffix(*word)).unwrap_or(permits);
    let permits = in_known_units(&without_separators(permits.trim_end()));
    let singular = per.strip_suffix('s').unwrap_or(per);
    let rate = |unit: &str| alloc::format!("{permits}/{unit}").parse::<Rate>();
    rate(per).or_else(|_| rate(singular)).ok().map(|near| near.to_string())
}

/// The permits and the unit of time of `100rps`, `100rpm` and `100rph`; of anything else all, and a second.
fn requests_per(text: &str) -> (&str, &'static str) {
    let units = [("rps", "s"), ("rpm", "min"), ("rph", "h")];
    let of = |(end, unit)| text.strip_suffix(end).map(|permits| (permits.trim_end(), unit));
    units.into_iter().find_map(of).unwrap_or((text, "s"))
}

/// `1000` for `1,000` and `1_000`; anything else as it is.
fn without_separators(permits: &str) -> String {
    let mut groups = permits.split([',', '_']);
    let is_number = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let is_first = |group: &str| (1..=3).contains(&group.len()) && is_number(group);
    let are_groups = groups.next().is_some_and(is_first)
        && groups.all(|group| group.len() == 3 && is_number(group));
    if are_groups { permits.replace([',', '_'], "") } else { permits.to_owned() }
}

/// `5000` for `5k`, `64kB` for `64KB`; anything else as it is.
fn in_known_units(permits: &str) -> String {
    let digits = permits.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let thousands = match &permits[digits.len()..] {
        "k" | "K" => "000",
        "m" | "M" => "000000",
        "kb" | "KB" | "Kb" => "kB",
        "mb" | "Mb" => "MB",
        "gb" | "Gb" => "GB",
        _ => return permits.to_owned(),
    };
    if parse_whole(digits).is_none() {
        return permits.to_owned();
    }
    alloc::format!("{digits}{thousands}")
}
