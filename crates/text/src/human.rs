//! Numbers, instants and spans for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sluicegate::Micros;

/// The first instant (2000-01-01) that is read as a date, not as virtual time from zero.
const DATES_FROM: Micros = Micros::from_secs(946_684_800);

/// The origin of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Virtual time, which starts at zero.
    Zero,
    /// The Unix epoch: shown as dates, in UTC.
    Unix,
}

impl Era {
    /// The era of an input whose first instant is `first`.
    pub fn of(first: Micros) -> Self {
        if first >= DATES_FROM { Self::Unix } else { Self::Zero }
    }

    /// `at` as text, as precise as it is.
    pub fn instant(self, at: Micros) -> String {
        match (self, at.get().is_multiple_of(1_000_000)) {
            (Self::Zero, _) => span(at),
            (Self::Unix, true) => date(at, "%Y-%m-%d %H:%M:%S"),
            (Self::Unix, false) => date(at, "%Y-%m-%d %H:%M:%S.%6f"),
        }
    }
}

/// `at`, µs since the Unix epoch, in the `format` of `strftime`, in UTC.
pub fn date(at: Micros, format: &str) -> String {
    let timestamp = i64::try_from(at.get()).ok().map(Timestamp::from_microsecond);
    match timestamp {
        Some(Ok(timestamp)) => timestamp.to_zoned(TimeZone::UTC).strftime(format).to_string(),
        _ => at.to_string(),
    }
}

/// `1234567` as `1,234,567`.
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A span in its two largest units: `3 d 11 h`, `1.5 s`, `20 ms`.
pub fn span(span: Micros) -> String {
    let us = span.get();
    let (secs, minutes, hours) = (us / 1_000_000, us / 60_000_000, us / 3_600_000_000);
    match () {
        () if us == 0 => "0 s".to_owned(),
        () if us < 1_000 => format!("{us} µs"),
        () if us < 1_000_000 => format!("{} ms", decimal(us, 1_000)),
        () if secs < 60 => format!("{} s", decimal(us, 1_000_000)),
        () if minutes < 60 => pair(minutes, "min", secs % 60, "s"),
        () if hours < 24 => pair(hours, "h", minutes % 60, "min"),
        () => pair(hours / 24, "d", hours % 24, "h"),
    }
}

/// A part of `whole` in percent; empty if there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    format!("{:.1} %", part as f64 * 100.0 / whole as f64)
}

/// `units / per` with as many decimals as necessary; `per` is a power of ten.
fn decimal(units: u64, per: u64) -> String {
    let (whole, mut rest) = (units / per, units % per);
    if rest == 0 {
        return whole.to_string();
    }
    let mut digits = per.ilog10() as usize;
    while rest.is_multiple_of(10) {
        rest /= 10;
        digits -= 1;
    }
    format!("{whole}.{rest:0digits$}")
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        small => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (count, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(thousands(count), expected);
        }
    }

    #[test]
    fn spans_are_written_in_their_two_largest_units() {
        for (us, expected) in [
            (0, "0 s"),
            (7, "7 µs"),
            (20_000, "20 ms"),
            (1_050, "1.05 ms"),
            (1_500_000, "1.5 s"),
            (1_000_001, "1.000001 s"),
            (60_000_000, "1 min"),
            (61_500_000, "1 min 1 s"),
            (5_400_000_000, "1 h 30 min"),
            (299_000_000_000, "3 d 11 h"),
        ] {
            assert_eq!(span(Micros::new(us)), expected);
        }
    }

    #[test]
    fn instants_of_logs_are_dates_and_those_of_scripts_are_not() {
        let at = Micros::from_secs(1_431_857_103);
        assert_eq!(Era::of(at).instant(at), "2015-05-17 10:05:03");
        assert_eq!(Era::Unix.instant(at.plus(Micros::new(5))), "2015-05-17 10:05:03.000005");
        assert_eq!(Era::of(Micros::SECOND).instant(Micros::SECOND), "1 s");
    }
}
