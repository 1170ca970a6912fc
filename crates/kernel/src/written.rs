//! Rates and spans of time as people write them, read exactly: there are no floats on the way.
//!
//! Policy documents, the command line and [`Rate`]'s `FromStr` share this one grammar; the table of what may be
//! written is in `sluicegate_policy::text`.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::limits::{EXCERPT_CHARS_MAX, PERIOD_MAX_US, PERMITS_MAX};
use crate::num::{Micros, Rate, gcd};

/// The units of time, longest first, in µs.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Most digits behind the point of a rate: a millionth of a permit a second is one in 11.6 days.
const DECIMALS_MAX: usize = 6;

/// A text that is not a [`Rate`]. Its message repeats the text and states what is permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateError {
    given: String,
}

impl FromStr for Rate {
    type Err = RateError;

    /// Reads a rate in the format of policy documents: `100/s`, `60/min`, `5/200ms`, `2.5/s`, `64KiB/s`. A fraction of a
    /// permit becomes whole permits in a longer period: `2.5/s` is `5/2s`.
    fn from_str(text: &str) -> Result<Self, RateError> {
        parse_rate(text).ok_or_else(|| RateError { given: excerpt(text) })
    }
}

impl fmt::Display for Rate {
    /// Writes it as it is read, in the shortest units: `100/s`, `5/200ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match in_units(self.period()) {
            (1, unit) => write!(f, "{}/{unit}", self.permits()),
            (count, unit) => write!(f, "{}/{count}{unit}", self.permits()),
        }
    }
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid rate `{}`: expected up to {PERMITS_MAX} permits (or B, kB, KiB, MB, MiB, GB, GiB) per \
             1us to 366d, such as `100/s`, `2.5/s`, `5/200ms` or `64KiB/s`",
            self.given
        )
    }
}

impl core::error::Error for RateError {}

/// Reads a span of time such as `250ms`: 1 µs to 366 days; `None` for any other text.
pub fn parse_span(text: &str) -> Option<Micros> {
    let (count, unit) = split_number(text);
    let us = parse_whole(count)?.checked_mul(micros_of(unit)?)?;
    (1..=PERIOD_MAX_US).contains(&us).then_some(Micros::new(us))
}

/// Reads a number: decimal digits alone, without a leading zero; `None` for any other text.
pub fn parse_whole(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let zero_led = digits.len() > 1 && digits.starts_with('0');
    if plain && !zero_led { digits.parse().ok() } else { None }
}

/// `span` as a count of the largest unit that divides it: `(250, "ms")`.
pub fn in_units(span: Micros) -> (u64, &'static str) {
    let us = span.get();
    let (name, unit_us) = UNITS
        .into_iter()
        .find(|(_, unit_us)| us > 0 && us.is_multiple_of(*unit_us))
        .unwrap_or(("us", 1));
    (us / unit_us, name)
}

/// `given` as a message repeats it: on one line and not too long.
pub fn excerpt(given: &str) -> String {
    let mut excerpt = String::new();
    for (place, char) in given.chars().enumerate() {
        if place == EXCERPT_CHARS_MAX {
            excerpt.push('…');
            break;
        }
        if char.is_control() || char == '\u{2028}' || char == '\u{2029}' {
            excerpt.extend(char.escape_default());
        } else {
            excerpt.push(char);
        }
    }
    excerpt
}

fn parse_rate(text: &str) -> Option<Rate> {
    let (permits, period) = text.split_once('/')?;
    let (whole, rest) = split_number(permits);
    let (decimals, unit) = match rest.strip_prefix('.') {
        None => ("", rest),
        Some(rest) => match split_number(rest) {
            ("", _) => return None,
            decimals => decimals,
        },
    };
    let (permits, parts) = parse_decimal(whole, decimals)?;
    let permits = permits.checked_mul(permits_of(unit)?)?;
    let (count, unit) = split_number(period);
    let count = if count.is_empty() { 1 } else { parse_whole(count)? };
    let period = count.checked_mul(micros_of(unit)?)?;
    let common = if permits > 0 { gcd(permits, parts) } else { 1 };
    Rate::new(permits / common, Micros::new(period.checked_mul(parts / common)?)).ok()
}

/// Returns the numerator of a number with these digits before and behind its point, and the denominator, a power of ten.
fn parse_decimal(whole: &str, decimals: &str) -> Option<(u64, u64)> {
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let behind = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let parts = decimals.bytes().fold(1_u64, |parts, _| parts * 10);
    Some((parse_whole(whole)?.checked_mul(parts)?.checked_add(behind)?, parts))
}

/// The digits at the beginning of `text`, and the rest.
fn split_number(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

/// Returns the permits of a unit of bytes, or of `r`, a request in the configuration of nginx.
fn permits_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "r" | "B" => 1,
        "kB" => 1_000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    })
}

fn micros_of(unit: &str) -> Option<u64> {
    let long = match unit {
        "sec" | "second" => "s",
        "min" | "minute" => "m",
        "hour" => "h",
        "day" => "d",
        short => short,
    };
    UNITS.iter().find(|(name, _)| *name == long).map(|(_, us)| *us)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn a_rate_is_read_from_text_and_written_back() {
        for (text, written) in [("60/min", "60/m"), ("100/s", "100/s"), ("5/200ms", "5/200ms")] {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()), Ok(written.to_string()));
        }
        assert_eq!("60/min".parse(), Ok(Rate::per_minute(60).unwrap()));
    }

    #[test]
    fn a_fraction_of_a_permit_is_whole_permits_in_a_longer_period() {
        for (text, written) in [
            ("2.5/s", "5/2s"),
            ("0.001/s", "1/1000s"),
            ("0.000001/s", "1/1000000s"),
            ("1.50/min", "3/2m"),
            ("2.0/s", "2/s"),
            ("12.25/200ms", "49/800ms"),
            ("1.5MiB/s", "1572864/s"),
            ("0.1B/s", "1/10s"),
            ("60r/m", "60/m"),
            ("0.5r/s", "1/2s"),
            ("4294967295.5/s", ""),
            ("2.5/366d", ""),
            ("0.0/s", ""),
            ("0.0000001/s", ""),
            (".5/s", ""),
            ("5./s", ""),
            ("00.5/s", ""),
            ("1.5.5/s", ""),
            ("1.5/1.5s", ""),
        ] {
            let read = text.parse::<Rate>().map(|rate| rate.to_string()).unwrap_or_default();
            assert_eq!(read, written, "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_named_on_one_line() {
        let error = "6\n/min".parse::<Rate>().unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid rate `6\\n/min`: expected up to 4294967296 permits (or B, kB, KiB, MB, MiB, GB, GiB) per \
             1us to 366d, such as `100/s`, `2.5/s`, `5/200ms` or `64KiB/s`"
        );
        let long = "x".repeat(EXCERPT_CHARS_MAX + 1).parse::<Rate>().unwrap_err().to_string();
        assert!(long.contains("x…`"), "{long}");
    }

    #[test]
    fn a_whole_number_has_no_leading_zero_and_no_sign() {
        assert_eq!(["0", "7", "10"].map(parse_whole), [Some(0), Some(7), Some(10)]);
        for wrong in ["", "00", "07", "+7", "-7", "7 ", "18446744073709551616"] {
            assert_eq!(parse_whole(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_excerpt_stays_on_one_line_and_keeps_letters() {
        assert_eq!(excerpt("a é 水\n\u{2028}\u{2029}"), "a é 水\\n\\u{2028}\\u{2029}");
    }
}
