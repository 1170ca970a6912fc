//! `leases`: whether servers may hold permits of a policy in advance, and how many.

use core::fmt;

use sluicegate_kernel::limits::LEASE_TERM_MAX_US;
use sluicegate_kernel::{Micros, NotLeasable};

/// Smallest value of the most permits that one server can hold, in percent of the least limit.
pub const SHARE_PERCENT_MIN: u8 = 1;

/// Largest share of the least limit that one server may hold, in percent: two servers can hold that much.
pub const SHARE_PERCENT_MAX: u8 = 50;

/// Share of the least limit that one server holds unless the policy sets another, in percent.
pub const SHARE_PERCENT_DEFAULT: u8 = 5;

/// Shortest term that a policy can set: a shorter lease ends before it has saved calls to the store.
pub const TERM_MIN: Micros = Micros::from_millis(100);

/// Longest term that a policy can set, and the default.
pub const TERM_MAX: Micros = Micros::new(LEASE_TERM_MAX_US);

/// The leases of a policy's permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leases {
    /// Leases where the rules allow it, within the default bounds.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Within these bounds. All rules of the policy allow it.
    Within(LeaseBounds),
}

/// The bounds of the permits that one server can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseBounds {
    /// Most permits that one server holds, in percent of the least limit: 1 to 50.
    pub share_percent: u8,
    /// Longest time that a lease lasts: 100 ms to 2 s.
    pub term: Micros,
}

impl Default for LeaseBounds {
    fn default() -> Self {
        Self { share_percent: SHARE_PERCENT_DEFAULT, term: TERM_MAX }
    }
}

/// The reason why permits of a policy cannot be leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeverLeased {
    /// A rule of the policy.
    Rule(NotLeasable),
    /// A rule of the override at this place.
    OverrideRule(usize, NotLeasable),
    /// `overflow: queue`.
    Queue,
}

impl fmt::Display for NeverLeased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(reason) => write!(f, "{reason}"),
            Self::OverrideRule(place, reason) => write!(f, "in overrides[{place}], {reason}"),
            Self::Queue => f.write_str("`overflow: queue` books permits in advance"),
        }
    }
}
