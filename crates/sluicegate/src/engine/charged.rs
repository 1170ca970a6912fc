//! Whether a request that was not decided was charged.

use sluicegate_store::Executed;

use super::{BatchError, DecideError, SettleError};

/// Whether a request without a decision took effect on its budget: whether a check was charged, a refund was
/// given back, a permit was released.
///
/// Servers say it in every failure: as `charged` of a problem (HTTP), as the first word of an error (RESP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charged {
    /// It took no effect. The same request may be sent again.
    No,
    /// It took effect, and the effect stays. Only batches of which all pass or none have this: a member was
    /// charged, and the store did not take it back.
    Yes,
    /// The store may have executed it: its answer was lost, or came too late. Sent again, it may be charged twice.
    Unknown,
}

impl Charged {
    /// `no`, `yes` or `unknown`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        }
    }
}

impl From<Executed> for Charged {
    fn from(executed: Executed) -> Self {
        match executed {
            Executed::No => Self::No,
            Executed::Perhaps => Self::Unknown,
        }
    }
}

impl DecideError {
    /// Whether the request was charged nevertheless.
    pub fn charged(&self) -> Charged {
        match self {
            Self::Store(error) => error.executed().into(),
            Self::UnknownPolicy(_)
            | Self::Unconfigured { .. }
            | Self::EmptyKey
            | Self::LongKey(_)
            | Self::Unsupported(_) => Charged::No,
        }
    }
}

impl SettleError {
    /// Whether the correction was made nevertheless.
    pub fn charged(&self) -> Charged {
        match self {
            Self::Decide(error) => error.charged(),
            Self::Unknown(_) => Charged::Unknown,
            Self::Settled | Self::Id(_) | Self::Cost(_) | Self::Undone(_) | Self::Unclaimed(_) => {
                Charged::No
            }
        }
    }
}

impl BatchError {
    /// Whether one of the requests was charged nevertheless, and stays so.
    pub fn charged(&self) -> Charged {
        if self.stay_charged.is_empty() { self.error.charged() } else { Charged::Yes }
    }
}
