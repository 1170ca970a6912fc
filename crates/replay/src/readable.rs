//! The share of an input that may be unreadable before a replay or a comparison fails.

use std::fmt;
use std::str::FromStr;

use super::paths::UnmatchedPaths;

/// Millionths in one percent: shares are read to four digits behind the point.
const MILLIONTHS_PER_PERCENT: u64 = 10_000;

/// The most of an input that may be unreadable, `0%` to `100%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMax {
    millionths: u64,
}

/// The reason for which a command on an input fails although it came to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreadableInput {
    /// No unit of the input could be read, or it is empty.
    #[error("no {unit} could be read, so nothing was decided")]
    Nothing {
        /// The name of a unit of the input.
        unit: &'static str,
    },
    /// More of it than is permitted could not be read.
    #[error("{bad} of {all} {unit}s could not be read, more than --bad-max {max}")]
    TooMuch {
        /// The number of units that could not be read.
        bad: u64,
        /// The number of units in all.
        all: u64,
        /// The name of a unit of the input.
        unit: &'static str,
        /// The permitted share.
        max: BadMax,
    },
    /// No policy matches any of its lines.
    #[error(
        "no policy matches any line ({lines} in all), so nothing was decided; compare the `match` of the policies with \
         the paths of the log{paths}"
    )]
    Unmatched {
        /// The number of its lines.
        lines: u64,
        /// The most frequent paths behind a colon, or empty.
        paths: String,
    },
}

/// Checks that a policy matches one of the lines that could be read: `all` without `bad`; no policy matches
/// `unmatched` of them.
///
/// # Errors
/// [`UnreadableInput::Unmatched`].
pub(crate) fn check_matched(
    unmatched: u64,
    bad: u64,
    all: u64,
    paths: &UnmatchedPaths,
) -> Result<(), UnreadableInput> {
    if unmatched == 0 || unmatched + bad < all {
        return Ok(());
    }
    let paths = match paths.most_frequent() {
        none if none.is_empty() => none,
        named => format!(": {named}"),
    };
    Err(UnreadableInput::Unmatched { lines: unmatched, paths })
}

impl BadMax {
    /// One in a hundred lines: logs have lines of scanners and of interrupted writes.
    pub(crate) const OF_LOGS: Self = Self { millionths: MILLIONTHS_PER_PERCENT };

    /// None: events were written by a program.
    pub(crate) const OF_EVENTS: Self = Self { millionths: 0 };

    /// Checks that `bad` of `all` units of an input are few enough.
    ///
    /// # Errors
    /// [`UnreadableInput`] if they are more than this, or if none was readable.
    pub(crate) fn check(
        self,
        unit: &'static str,
        bad: u64,
        all: u64,
    ) -> Result<(), UnreadableInput> {
        if bad == all {
            return Err(UnreadableInput::Nothing { unit });
        }
        let is_more = u128::from(bad) * 100 * u128::from(MILLIONTHS_PER_PERCENT)
            > u128::from(all) * u128::from(self.millionths);
        if is_more { Err(UnreadableInput::TooMuch { bad, all, unit, max: self }) } else { Ok(()) }
    }
}

impl FromStr for BadMax {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is not a percentage 0%..=100%, such as 1% or 0.5%");
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 4 {
            return Err(error());
        }
        let whole: u64 = whole.parse().map_err(|_| error())?;
        let part: u64 = format!("{part:0<4}").parse().map_err(|_| error())?;
        let millionths = whole.checked_mul(MILLIONTHS_PER_PERCENT).map(|whole| whole + part);
        let millionths = millionths.filter(|share| *share <= 100 * MILLIONTHS_PER_PERCENT);
        Ok(Self { millionths: millionths.ok_or_else(error)? })
    }
}

impl fmt::Display for BadMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) =
            (self.millionths / MILLIONTHS_PER_PERCENT, self.millionths % MILLIONTHS_PER_PERCENT);
        let part = format!("{part:04}");
        match part.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            part => write!(f, "{whole}.{part}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_as_it_is_written() {
        for text in ["0%", "1%", "0.5%", "33.3333%", "100%"] {
            assert_eq!(text.parse::<BadMax>().map(|max| max.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("1".parse::<BadMax>(), Ok(BadMax::OF_LOGS));
        for text in ["", "%", "-1%", "101%", "100.0001%", "0.00001%", "1e2", "1.", ".5", "٣%"] {
            let error = text.parse::<BadMax>().expect_err(text);
            assert!(
                error.starts_with(&format!("`{text}` is not a percentage 0%..=100%")),
                "{error}"
            );
        }
        assert!("99999999999999999999".parse::<BadMax>().is_err());
    }

    #[test]
    fn the_share_itself_is_permitted_and_one_line_more_is_not() {
        let max = BadMax::OF_LOGS;
        assert_eq!(max.check("line", 1, 100), Ok(()));
        let error = max.check("line", 2, 199).expect_err("more than one in a hundred");
        let expected = "2 of 199 lines could not be read, more than --bad-max 1%";
        assert_eq!(error.to_string(), expected);
        assert_eq!(BadMax::OF_EVENTS.check("event", 0, 5), Ok(()));
        assert!(BadMax::OF_EVENTS.check("event", 1, u64::MAX).is_err());
    }

    #[test]
    fn an_input_of_which_nothing_is_readable_fails_whatever_is_permitted() {
        let all: BadMax = "100%".parse().expect("a share");
        for count in [0, 7] {
            let error = all.check("line", count, count).expect_err("nothing was read");
            assert_eq!(error, UnreadableInput::Nothing { unit: "line" });
        }
    }
}
