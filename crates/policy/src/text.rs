//! Rates, durations and numbers as people write them, read exactly: there are no floats on the way.
//!
//! | What | Written | Read as |
//! |---|---|---|
//! | rate | `100/s` | 100 permits every 1 000 000 µs |
//! | rate | `5/200ms`, `10/min`, `1/day` | 5 every 200 000 µs, … |
//! | rate with a fraction | `2.5/s`, `0.001/s` | 5 every 2 s, 1 every 1 000 s; at most six digits behind the point |
//! | rate of nginx | `60r/m` | 60 every minute |
//! | rate of bytes | `64KiB/s` | 65 536 every second; also `B`, `kB`, `MB`, `MiB`, `GB`, `GiB` |
//! | duration | `250us`, `250ms`, `1s`, `5m`, `1h`, `1d` | so many µs |
//!
//! Units of time: `us`, `ms`, `s` (`sec`, `second`), `m` (`min`, `minute`), `h` (`hour`), `d`
//! (`day`). Times are whole: `1500ms`, not `1.5s`. Numbers are plain: no sign, no leading zero, no `1_000`,
//! no `0x10`, no `1e3`.
//!
//! ```
//! use sluicegate_policy::text;
//!
//! let rate = text::rate("5/200ms")?;
//! assert_eq!((rate.permits(), rate.period().get()), (5, 200_000));
//! assert_eq!(text::rate_text(rate), "5/200ms");
//! assert_eq!(
//!     text::span("5 lightyears").unwrap_err().to_string(),
//!     "invalid duration `5 lightyears`: expected 1us to 366d as a whole number and a unit \
//!      (us, ms, s, m, h, d), such as `250ms`"
//! );
//! # Ok::<(), text::TextError>(())
//! ```

mod near;

use alloc::string::String;
use core::fmt;

use sluicegate_kernel::limits::PERMITS_MAX;
use sluicegate_kernel::written::{in_units, parse_span, parse_whole};
use sluicegate_kernel::{Micros, Rate};

use crate::finding;
use crate::finding::Finding;
use crate::quoted::{is_template, quoted, template};
use near::{calendar_of, calendar_span, near_rate, near_span};

/// A rate, duration or number that cannot be read, with the given text and the permitted ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(Finding);

/// Reads a rate such as `100/s`.
///
/// # Errors
/// [`TextError`] unless it is up to 2^32 permits, or bytes in a unit, per 1 µs to 366 days, also once its fraction is whole
/// permits.
pub fn rate(text: &str) -> Result<Rate, TextError> {
    text.parse().map_err(|_| {
        if is_template(text) {
            return TextError(template(text));
        }
        let given = quoted(text);
        if let Some(calendar) = calendar_of(text) {
            return TextError(finding!(
                "rate_of_calendar",
                "invalid rate {given}: a {calendar} is a calendar window, such as \
                 `fixed_window: {{ limit: 10, calendar: {calendar} }}`",
                given,
                calendar
            ));
        }
        if let Some(near) = near_rate(text) {
            return TextError(finding!(
                "bad_rate_near",
                "invalid rate {given}: expected permits per time, such as `{near}`",
                given,
                near
            ));
        }
        TextError(finding!(
            "bad_rate",
            "invalid rate {given}: expected up to {max} permits (or B, kB, KiB, MB, MiB, GB, GiB) per \
             1us to 366d, such as `100/s`, `2.5/s`, `5/200ms` or `64KiB/s`",
            given,
            max = PERMITS_MAX
        ))
    })
}

/// Reads a duration such as `250ms`.
///
/// # Errors
/// [`TextError`] unless it is 1 µs to 366 days.
pub fn span(text: &str) -> Result<Micros, TextError> {
    parse_span(text).ok_or_else(|| {
        if is_template(text) {
            return TextError(template(text));
        }
        let given = quoted(text);
        if let Some((calendar, near)) = calendar_span(text) {
            return TextError(finding!(
                "duration_of_calendar",
                "invalid duration {given}: a {calendar} has no fixed length; write `{near}`, or for a calendar window \
                 `fixed_window: {{ limit: 10, calendar: {calendar} }}`",
                given,
                calendar,
                near
            ));
        }
        if let Some(number) = parse_whole(text) {
            return TextError(finding!(
                "duration_without_unit",
                "invalid duration {given}: expected a unit (us, ms, s, m, h, d), such as `{number}ms` or \
                 `{number}s`",
                given,
                number
            ));
        }
        if let Some(near) = near_span(text) {
            return TextError(finding!(
                "bad_duration_near",
                "invalid duration {given}: expected a whole number and one unit (us, ms, s, m, h, d): write `{near}`",
                given,
                near
            ));
        }
        TextError(finding!(
            "bad_duration",
            "invalid duration {given}: expected 1us to 366d as a whole number and a unit \
             (us, ms, s, m, h, d), such as `250ms`",
            given
        ))
    })
}

/// Reads an instant, in µs since the Unix epoch.
///
/// # Errors
/// [`TextError`] unless it is a second of UTC from 1970 to 2099, as RFC 3339 writes it: `2026-12-31T18:00:00Z`.
pub fn instant(text: &str) -> Result<Micros, TextError> {
    parse_instant(text).ok_or_else(|| {
        let given = quoted(text);
        TextError(finding!(
            "bad_instant",
            "invalid instant {given}: expected UTC from 1970 to 2099, such as `2026-12-31T18:00:00Z`",
            given
        ))
    })
}

/// Reads a whole number.
///
/// # Errors
/// [`TextError`] unless it is plain decimal and `min <= number <= max`.
pub fn whole(text: &str, min: u64, max: u64) -> Result<u64, TextError> {
    let number = parse_whole(text).filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| {
        let given = quoted(text);
        TextError(finding!(
            "bad_whole",
            "{given} is not a whole number from {min} to {max}",
            given,
            min,
            max
        ))
    })
}

/// Reads a real number.
///
/// # Errors
/// [`TextError`] unless it is plain decimal (`3`, `3.5`, `3e2`) and `above < number <= max`.
pub fn factor(text: &str, above: f64, max: f64) -> Result<f64, TextError> {
    let plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-'));
    let number = text.parse().ok();
    let number = number.filter(|number| plain && *number > above && *number <= max);
    number.ok_or_else(|| {
        let given = quoted(text);
        TextError(finding!(
            "bad_factor",
            "{given} is not a number above {above}, at most {max}",
            given,
            above,
            max
        ))
    })
}

/// `rate` as [`rate`](fn@rate) reads it, in the shortest units: `100/s`, `5/200ms`.
pub fn rate_text(rate: Rate) -> String {
    alloc::format!("{rate}")
}

/// `span` as [`span`](fn@span) reads it, in the largest unit that divides it: `250ms`, `90s`.
pub fn span_text(span: Micros) -> String {
    let (count, unit) = in_units(span);
    alloc::format!("{count}{unit}")
}

fn parse_instant(text: &str) -> Option<Micros> {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00Z";
    let is_shape = text.len() == SHAPE.len()
        && text.bytes().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            shape => byte == *shape,
        });
    // UTC is read without leap seconds, as everywhere.
    if !is_shape || !("1970".."2100").contains(&&text[..4]) || &text[17..19] == "60" {
        return None;
    }
    let instant: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(instant.as_microsecond()).ok().map(Micros::new)
}

/// The pattern of texts that [`rate`](fn@rate) accepts, for schemas.
pub(crate) const RATE_PATTERN: &str = "^([1-9][0-9]*(\\.[0-9]{1,6})?|0\\.[0-9]{0,5}[1-9][0-9]{0,5})\
     (r|B|kB|KiB|MB|MiB|GB|GiB)?/([1-9][0-9]*)?(us|ms|s|sec|second|m|min|minute|h|hour|d|day)$";

/// The pattern of texts that [`span`](fn@span) accepts, for schemas.
pub(crate) const SPAN_PATTERN: &str = "^[1-9][0-9]*(us|ms|s|sec|second|m|min|minute|h|hour|d|day)$";

impl TextError {
    pub(crate) const fn new(problem: Finding) -> Self {
        Self(problem)
    }

    /// Returns the problem with its code and parameters.
    pub fn into_finding(self) -> Finding {
        self.0
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.text())
    }
}

impl core::error::Error for TextError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;
    use sluicegate_kernel::limits::PERIOD_MAX_US;

    use super::*;

    fn check_rate(text: &str, permits: u64, period_us: u64) {
        assert_eq!(rate(text), Ok(Rate::new(permits, Micros::new(period_us)).unwrap()), "{text}");
    }

    #[test]
    fn rates_are_read_exactly() {
        check_rate("100/s", 100, 1_000_000);
        check_rate("5/200ms", 5, 200_000);
        check_rate("10/min", 10, 60_000_000);
        check_rate("1/day", 1, 86_400_000_000);
        check_rate("1/366d", 1, PERIOD_MAX_US);
        check_rate("64KiB/s", 65_536, 1_000_000);
        check_rate("1MB/hour", 1_000_000, 3_600_000_000);
        check_rate("4GiB/us", PERMITS_MAX, 1);
        check_rate("7/second", 7, 1_000_000);
        check_rate("7/3minute", 7, 180_000_000);
        check_rate("2.5/s", 5, 2_000_000);
        check_rate("60r/m", 60, 60_000_000);
    }

    #[test]
    fn durations_are_read_exactly() {
        for (text, us) in [
            ("250us", 250),
            ("250ms", 250_000),
            ("1s", 1_000_000),
            ("2sec", 2_000_000),
            ("5m", 300_000_000),
            ("5min", 300_000_000),
            ("1h", 3_600_000_000),
            ("1d", 86_400_000_000),
            ("366day", PERIOD_MAX_US),
        ] {
            assert_eq!(span(text), Ok(Micros::new(us)), "{text}");
        }
    }

    #[test]
    fn a_rate_in_other_words_is_refused_with_the_one_that_was_meant() {
        for (text, near) in [
            ("10", Some("10/s")),
            ("10 per second", Some("10/s")),
            ("10 / minute", Some("10/m")),
            ("10/minutes", Some("10/m")),
            ("0.5 per second", Some("1/2s")),
            ("1.25 / min", Some("5/4m")),
            ("2.50/S", Some("5/2s")),
            ("1,000/s", Some("1000/s")),
            ("1_000_000/h", Some("1000000/h")),
            ("10r/sec.", None),
            ("30 r/m", Some("30/m")),
            ("10/hr", Some("10/h")),
            ("5/2hr", None),
            ("10/Hour", Some("10/h")),
            ("5 requests per hour", Some("5/h")),
            ("1,00/s", None),
            ("1.0000001/s", None),
            ("0.0/s", None),
            ("-10/s", None),
            ("99999999999999999999.5/s", None),
            ("ten", None),
        ] {
            let problem = rate(text).unwrap_err().to_string();
            let hint = near.map(|near| alloc::format!("per time, such as `{near}`"));
            assert_eq!(problem.contains("per time"), hint.is_some(), "{problem}");
            assert!(problem.ends_with(hint.as_deref().unwrap_or("`64KiB/s`")), "{problem}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "/",
            "100",
            "100/",
            "/s",
            "0/s",
            "-5/s",
            "+5/s",
            "1.5/1.5s",
            ".5/s",
            "1./s",
            "NaN/s",
            "inf/s",
            "1e3/s",
            "0x10/s",
            "010/s",
            "1_000/s",
            "100 /s",
            "100/ s",
            "100/S",
            "5/0s",
            "1/367d",
            "1/-1s",
            "1/fortnight",
            "4294967297/s",
            "5GiB/s",
            "64kib/s",
            "9223372036854775808/s",
            "99999999999999999999/s",
            "1/99999999999999999999s",
            "1/s/s",
            "１/s",
        ] {
            let error = rate(text).unwrap_err();
            let problem = text.parse::<Rate>().unwrap_err().to_string();
            assert!(problem.contains(": expected up to 4294967296 permits"), "{problem}");
            assert!(error.to_string().starts_with("invalid rate `"), "{error}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "s",
            "5",
            "0s",
            "-1s",
            "1.55us",
            "1e3s",
            "0x1s",
            "s5",
            "1h-",
            "53w",
            "367d",
            "18446744073709551616us",
            "213503982334602d",
            "infs",
        ] {
            let problem = span(text).unwrap_err().to_string();
            let expected = match text {
                "5" => "expected a unit (us, ms, s, m, h, d), such as `5ms` or `5s`",
                _ => "expected 1us to 366d",
            };
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn a_duration_in_other_words_is_refused_with_the_one_that_was_meant() {
        for (text, near) in [
            ("1w", "7d"),
            ("2 weeks", "14d"),
            ("1h30m", "90m"),
            ("1h 30min", "90m"),
            ("30 sec", "30s"),
            ("5S", "5s"),
            ("10secs", "10s"),
            ("2 Hours", "2h"),
            ("1hr", "1h"),
            ("1.5s", "1500ms"),
            ("500 milliseconds", "500ms"),
        ] {
            let problem = span(text).unwrap_err().to_string();
            let expected = alloc::format!("one unit (us, ms, s, m, h, d): write `{near}`");
            assert!(problem.ends_with(&expected), "{problem}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused_with_the_range() {
        for text in ["", "0", "11", "-1", "+1", "1.0", "1e0", "0x1", "01", "NaN", "1e400"] {
            let error = whole(text, 1, 10).unwrap_err();
            assert_eq!(
                error.to_string(),
                alloc::format!("`{text}` is not a whole number from 1 to 10")
            );
        }
        assert_eq!(whole("10", 1, 10), Ok(10));
        assert_eq!(factor("3.5", 1.0, 10.0), Ok(3.5));
        assert_eq!(factor("10", 1.0, 10.0), Ok(10.0));
        for text in ["1", "10.1", "0.5", "1e400", "NaN", ".nan", "inf", "-1", "", "0x2"] {
            let error = factor(text, 1.0, 10.0).unwrap_err();
            assert_eq!(
                error.to_string(),
                alloc::format!("`{text}` is not a number above 1, at most 10")
            );
        }
    }

    #[test]
    fn text_is_in_the_largest_unit_that_divides() {
        assert_eq!(span_text(Micros::new(90_000_000)), "90s");
        assert_eq!(span_text(Micros::ZERO), "0us");
        assert_eq!(rate_text(Rate::per_second(100).unwrap()), "100/s");
        assert_eq!(rate_text(rate("60/60s").unwrap()), "60/m");
    }

    proptest! {
        #[test]
        fn a_rate_comes_back_from_its_text(permits in 1..=PERMITS_MAX, us in 1..=PERIOD_MAX_US) {
            let written = Rate::new(permits, Micros::new(us)).unwrap();
            prop_assert_eq!(rate(&rate_text(written)), Ok(written));
            prop_assert_eq!(span(&span_text(Micros::new(us))), Ok(Micros::new(us)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", like in "[0-9.eE+/-]{0,24}[a-zA-Z/]{0,8}") {
            for text in [text, like] {
                if let Ok(rate) = rate(&text) {
                    prop_assert_eq!(super::rate(&rate_text(rate)), Ok(rate));
                }
                if let Ok(span) = span(&text) {
                    prop_assert_eq!(super::span(&span_text(span)), Ok(span));
                }
                let _ = (whole(&text, 0, u64::MAX), factor(&text, 0.0, 1e9));
            }
        }
    }
}
