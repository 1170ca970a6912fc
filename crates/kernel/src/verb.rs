//! The operations on a budget.

use crate::decision::{PermitId, ProcessId};
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
    /// Acquire, or wait for it: a request that does not pass is granted 0 permits, and has a ticket in the queue of each
    /// concurrency rule. It is refused if a queue is full, or if it can never pass. Ask again within a second, by the same
    /// name; [`Leave`](Self::Leave) gives the ticket back.
    Wait {
        /// Permits it takes.
        cost: Cost,
        /// The name of the permit.
        permit: PermitId,
        /// The process that waits.
        process: ProcessId,
    },
    /// Wait no more: give the ticket for a permit back. A permit that is held stays held.
    Leave {
        /// The name of the permit.
        permit: PermitId,
        /// The process that waits.
        process: ProcessId,
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
    /// Returns whether it is about a permit with an id.
    pub const fn is_of_permits(&self) -> bool {
        matches!(
            self,
            Self::Acquire { .. }
                | Self::Wait { .. }
                | Self::Leave { .. }
                | Self::Release { .. }
                | Self::Renew { .. }
        )
    }

    /// Returns its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Reserve { .. } => "reserve",
            Self::AtMost { .. } => "at_most",
            Self::Peek { .. } => "peek",
            Self::Refund { .. } => "refund",
            Self::Reset => "reset",
            Self::Acquire { .. } | Self::Wait { .. } => "acquire",
            Self::Release { .. } | Self::Leave { .. } => "release",
            Self::Renew { .. } => "renew",
        }
    }
}
