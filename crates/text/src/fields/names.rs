//! The names of fields, and the values that they may have.

use std::fmt::Write as _;

use sluicegate_kernel::limits::{COST_MAX, KEY_BYTES_MAX, SPAN_MAX_US};

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
    MaxWaitMs,
    Id,
    Document,
    /// The permits that a check charged, which is settled now.
    Charged,
    /// The actual cost, which may be 0.
    ActualCost,
    Checks,
    Atomic,
    /// A steady load, as a rate.
    At,
}

/// The kind of value that a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A whole number of this range, which the reader of the field checks.
    Whole {
        /// The smallest one.
        min: u64,
        /// The largest one.
        max: u64,
    },
    /// A string; the reader of the field checks its length.
    Text {
        /// Longest text, in bytes; `None`: no limit.
        bytes_max: Option<usize>,
    },
    /// A boolean.
    Flag,
    /// JSON that is not parsed here.
    Raw,
}

impl Field {
    /// Returns the name as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtUs => "at_us",
            Self::Policy => "policy",
            Self::Key => "key",
            Self::App => "app",
            Self::Cost => "cost",
            Self::Op => "op",
            Self::MaxWaitUs => "max_wait_us",
            Self::MaxWaitMs => "max_wait_ms",
            Self::Id => "id",
            Self::Document => "document",
            Self::Charged => "charged",
            Self::ActualCost => "cost",
            Self::Checks => "checks",
            Self::Atomic => "atomic",
            Self::At => "at",
        }
    }

    /// Describes the values that the field may have.
    pub const fn expected(self) -> &'static str {
        match self {
            Self::AtUs | Self::MaxWaitUs => "a whole number of microseconds 0..=9007199254740991",
            Self::Policy => "a policy name (string)",
            Self::Key => "a string of 1..=1024 bytes",
            Self::App => "an app name (string of 1 byte or more)",
            Self::Cost | Self::Charged => "a whole number 1..=2147483648",
            Self::ActualCost => "a whole number 0..=2147483648",
            Self::MaxWaitMs => "a whole number of milliseconds 0..=9007199254740",
            Self::Op => "an operation name (string)",
            Self::Id => "a string of 1..=1024 bytes",
            Self::Document => "a policy document",
            Self::Checks => "a list of 1..=100 objects",
            Self::Atomic => "`true` or `false`",
            Self::At => "a rate (string), such as `500/s`",
        }
    }

    /// Returns the kind of value of the field.
    pub const fn kind(self) -> FieldKind {
        match self {
            Self::AtUs | Self::MaxWaitUs => FieldKind::Whole { min: 0, max: SPAN_MAX_US },
            Self::MaxWaitMs => FieldKind::Whole { min: 0, max: SPAN_MAX_US / 1_000 },
            Self::Cost | Self::Charged => FieldKind::Whole { min: 1, max: COST_MAX },
            Self::ActualCost => FieldKind::Whole { min: 0, max: COST_MAX },
            Self::Policy | Self::App | Self::Op | Self::At => FieldKind::Text { bytes_max: None },
            Self::Key | Self::Id => FieldKind::Text { bytes_max: Some(KEY_BYTES_MAX) },
            Self::Atomic => FieldKind::Flag,
            Self::Document | Self::Checks => FieldKind::Raw,
        }
    }

    /// Returns whether `null` is permitted: the shared budget, or no app. In other fields it is an error.
    pub const fn may_be_null(self) -> bool {
        matches!(self, Self::Key | Self::App)
    }

    /// Returns whether `text` is permitted: the name of an app is not empty. The readers of other fields check those.
    pub(super) fn may_be(self, text: &str) -> bool {
        self != Self::App || !text.is_empty()
    }

    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// "`a`, `b`, `c`".
pub fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut list = String::new();
    for name in names {
        let comma = if list.is_empty() { "" } else { ", " };
        write!(list, "{comma}`{name}`").expect("a string takes everything");
    }
    list
}
