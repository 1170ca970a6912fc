//! The operations on a budget.

use crate::decision::PermitId;
use crate::num::{Cost, Micros};

/// An operation on a key's budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Pass now or be refused.
    Check {
        /// Permits it takes.
        cost: Cost,
    },
    /// Pass within `max_wait`, booking the future where the algorithm can.
    Reserve {
        /// Permits it takes.
        cost: Cost,
        /// Longest acceptable wait.
        max_wait: Micros,
    },
    /// Take what there is, up to `cost`.
    AtMost {
        /// Permits it takes at most.
        cost: Cost,
    },
    /// Report the answer to a check; changes nothing.
    Peek {
        /// Permits it would take.
        cost: Cost,
    },
    /// Give permits back, never above full.
    Refund {
        /// Permits to give back.
        cost: Cost,
    },
    /// Forget the key's usage.
    Reset,
    /// Check, and hold a permit of the policy's concurrency rules until it is released.
    Acquire {
        /// Permits it takes.
        cost: Cost,
        /// The name of the permit.
        permit: PermitId,
    },
    /// Give a held permit back.
    Release {
        /// Its name.
        permit: PermitId,
    },
    /// Hold a permit for another ttl.
    Renew {
        /// Its name.
        permit: PermitId,
    },
}

impl Verb {
    /// Returns its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Reserve { .. } => "reserve",
            Self::AtMost { .. } => "at_most",
            Self::Peek { .. } => "peek",
            Self::Refund { .. } => "refund",
            Self::Reset => "reset",
            Self::Acquire { .. } => "acquire",
            Self::Release { .. } => "release",
            Self::Renew { .. } => "renew",
        }
    }
}
