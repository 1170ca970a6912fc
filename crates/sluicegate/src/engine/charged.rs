//! The charge of a request that was not decided: none, one that stays, or unknown.

use sluicegate_store::Executed;

use super::{BatchError, DecideError, SettleError};

/// The effect of a request without a decision on its budget: whether a check was charged, a refund given back, or the
/// permit of a release freed.
///
/// Servers return it over HTTP, as `charged` of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charged {
    /// The request took no effect. The same request may be sent again.
    No,
    /// The request took effect, and the effect stays. Only a batch of which all pass or none returns this: a member was
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

#[doc(hidden)]
impl From<Executed> for Charged {
    fn from(executed: Executed) -> Self {
        match executed {
            Executed::No => Self::No,
            Executed::Perhaps => Self::Unknown,
        }
    }
}

impl DecideError {
    /// The effect of the request on its budget: [`Charged::Unknown`] where the store may have executed it.
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
    /// The effect of the correction on its budget: [`Charged::Unknown`] where the store may have made it.
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
    /// The effect of the batch: [`Charged::Yes`] if a member stays charged, otherwise that of the member that failed.
    pub fn charged(&self) -> Charged {
        if self.stay_charged.is_empty() { self.error.charged() } else { Charged::Yes }
    }
}
