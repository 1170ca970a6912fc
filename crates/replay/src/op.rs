//! The names of operations, as they are written.

/// The name of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see `Act`, which has the same names")]
pub enum OpName {
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

impl OpName {
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

    /// The name, as it is written.
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

    /// Returns whether the operation requests permits.
    pub(crate) const fn asks_for_permits(self) -> bool {
        matches!(self, Self::Check | Self::Reserve | Self::AtMost | Self::Acquire)
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}
