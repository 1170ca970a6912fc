//! Units of time of limits of other limiters.

use crate::document::fields::Word;

/// The window of a limit. All begin at multiples of their length since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// 7 days, from Thursday on.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them by name.
    pub(super) const NAMES: [Word<Self>; 7] = [
        Word::new("second", Self::Second),
        Word::new("minute", Self::Minute),
        Word::new("hour", Self::Hour),
        Word::new("day", Self::Day),
        Word::new("week", Self::Week),
        Word::new("month", Self::Month),
        Word::new("year", Self::Year),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let own = Self::NAMES.iter().find(|known| known.meaning == self);
        own.expect("every unit has a name").word
    }

    /// Its length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// Its length as policies write it.
    pub(super) const fn span(self) -> &'static str {
        match self {
            Self::Second => "1s",
            Self::Minute => "1m",
            Self::Hour => "1h",
            Self::Day => "1d",
            Self::Week => "7d",
            Self::Month => "30d",
            Self::Year => "365d",
        }
    }
}
