//! The names of fields, as they are written, and what may be written there.

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
    /// What a check charged, that is settled now.
    Charged,
    /// What it cost in truth: also nothing.
    ActualCost,
    Checks,
    Atomic,
}

/// What kind of value a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A whole number of this range, which whoever takes it checks.
    Whole {
        /// The smallest one.
        min: u64,
        /// The largest one.
        max: u64,
    },
    /// A string, of so many bytes if that is said.
    Text {
        /// Longest text.
        bytes_max: Option<usize>,
    },
    /// Yes or no.
    Flag,
    /// JSON that is not looked into here.
    Raw,
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
            Self::MaxWaitMs => "max_wait_ms",
            Self::Id => "id",
            Self::Document => "document",
            Self::Charged => "charged",
            Self::ActualCost => "cost",
            Self::Checks => "checks",
            Self::Atomic => "atomic",
        }
    }

    /// What may be written there.
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
        }
    }

    /// What kind of value it has.
    pub const fn kind(self) -> FieldKind {
        match self {
            Self::AtUs | Self::MaxWaitUs => FieldKind::Whole { min: 0, max: SPAN_MAX_US },
            Self::MaxWaitMs => FieldKind::Whole { min: 0, max: SPAN_MAX_US / 1_000 },
            Self::Cost | Self::Charged => FieldKind::Whole { min: 1, max: COST_MAX },
            Self::ActualCost => FieldKind::Whole { min: 0, max: COST_MAX },
            Self::Policy | Self::App | Self::Op => FieldKind::Text { bytes_max: None },
            Self::Key | Self::Id => FieldKind::Text { bytes_max: Some(KEY_BYTES_MAX) },
            Self::Atomic => FieldKind::Flag,
            Self::Document | Self::Checks => FieldKind::Raw,
        }
    }

    /// `null` is the budget that all share, and nobody in particular; elsewhere it is a slip.
    pub const fn may_be_null(self) -> bool {
        matches!(self, Self::Key | Self::App)
    }

    /// Whether `text` may stand there: an app has a name. What is empty elsewhere is judged by its reader.
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
