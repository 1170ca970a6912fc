//! The names of operations and fields, as they are written.

/// The name of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see `Act`, which has the same names")]
pub enum Op {
    #[default]
    Check,
    Peek,
    Refund,
    Reset,
    Reserve,
    AtMost,
    Acquire,
    Release,
    Renew,
    Configure,
}

/// The name of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "see `Field::expected`")]
pub enum Field {
    AtUs,
    Policy,
    Key,
    Cost,
    Op,
    MaxWaitUs,
    Id,
    Document,
}

impl Op {
    /// Every operation.
    pub const ALL: [Self; 10] = [
        Self::Check,
        Self::Peek,
        Self::Refund,
        Self::Reset,
        Self::Reserve,
        Self::AtMost,
        Self::Acquire,
        Self::Release,
        Self::Renew,
        Self::Configure,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::Reserve => "reserve",
            Self::AtMost => "at_most",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Configure => "configure",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl Field {
    /// Every field.
    pub const ALL: [Self; 8] = [
        Self::AtUs,
        Self::Policy,
        Self::Key,
        Self::Cost,
        Self::Op,
        Self::MaxWaitUs,
        Self::Id,
        Self::Document,
    ];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtUs => "at_us",
            Self::Policy => "policy",
            Self::Key => "key",
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
            Self::AtUs => "a whole number of microseconds 0..=9007199254740991",
            Self::Policy => "the name of a policy, a string",
            Self::Key => "a string of 1..=1024 bytes",
            Self::Cost => "a whole number 1..=2147483648",
            Self::Op => "the name of an operation, a string",
            Self::MaxWaitUs => "a whole number of microseconds 0..=9007199254740991",
            Self::Id => "the name of a permit, a string of 1..=1024 bytes",
            Self::Document => "a policy document",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::AtUs | Self::Cost | Self::MaxWaitUs)
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}
