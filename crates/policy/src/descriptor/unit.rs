//! Units of time of limits of other limiters.

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
    pub(super) const NAMES: [(&str, Self); 7] = [
        ("second", Self::Second),
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("year", Self::Year),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let own = Self::NAMES.iter().find(|(_, unit)| *unit == self);
        own.expect("every unit has a name").0
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
