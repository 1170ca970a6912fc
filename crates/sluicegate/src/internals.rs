//! Parts of the library that the project's own programs use: the server, its console, the command line, the simulator.
//!
//! Nothing here is documented for other programs, and nothing promises to stay: names and signatures change with any
//! version, without a line in the changelog. What a program needs is in the [crate](crate) itself. `public-api.txt`
//! beside the manifest lists it.

pub use sluicegate_kernel as kernel;
#[cfg(feature = "engine")]
pub use sluicegate_policy as policy;
pub use sluicegate_store as store;

pub use crate::clock::{ClockError, WallClock};
#[cfg(feature = "engine")]
pub use crate::engine::{
    BatchError, BatchOutcome, ChargedBatch, ExplainedLease, Explanation, HELD_MAX, Limits,
    ObservedRequest, Observer, SettleError, Settled, Settlement, Uncharged, settled_rules,
};
#[cfg(feature = "redis")]
pub use crate::following::PolicyFollower;
#[cfg(feature = "engine")]
pub use crate::lease::{LeaseStats, LeaseStatus, LeasedKey};
#[cfg(feature = "redis")]
pub use crate::record::record_of;

/// The policies that guard the request of a gateway, and their joint decision.
#[cfg(feature = "gateway")]
pub mod gateway {
    pub use crate::gateway::*;
}

/// Addresses as keys, header fields and problem documents, for a program that serves HTTP.
#[cfg(feature = "http")]
pub mod http {
    pub use crate::http::*;
}
