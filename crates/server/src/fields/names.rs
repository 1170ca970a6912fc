//! The names of fields, as they are written, and what may be written there.

use std::fmt::Write as _;

/// The name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see `Field::expected`")]
pub enum Field {
    AtUs,
    Policy,
    Key,
    App,
    Cost,
    Op,
    MaxWaitUs,
    Id,
    Document,
}

impl Field {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtUs => "at_us",
            Self::Policy => "policy",
            Self::Key => "key",
            Self::App => "app",
            Self::Cost => "cost",
            Self::Op => "op",
            Self::MaxWaitUs => "max_wait_us",
            Self::Id => "id",
            Self::Document => "document",
        }
    }

    /// What may be written there.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::AtUs | Self::MaxWaitUs => "a whole number of microseconds 0..=9007199254740991",
            Self::Policy => "the name of a policy, a string",
            Self::Key => "a string of 1..=1024 bytes",
            Self::App => "the name of an application, a string",
            Self::Cost => "a whole number 1..=2147483648",
            Self::Op => "the name of an operation, a string",
            Self::Id => "the name of a permit, a string of 1..=1024 bytes",
            Self::Document => "a policy document",
        }
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::AtUs | Self::Cost | Self::MaxWaitUs)
    }

    /// `null` is the budget that all share, and nobody in particular; elsewhere it is a slip.
    pub(super) const fn may_be_null(self) -> bool {
        matches!(self, Self::Key | Self::App)
    }

    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// "`a`, `b`, `c`".
pub(crate) fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut list = String::new();
    for name in names {
        let comma = if list.is_empty() { "" } else { ", " };
        write!(list, "{comma}`{name}`").expect("a string takes everything");
    }
    list
}
