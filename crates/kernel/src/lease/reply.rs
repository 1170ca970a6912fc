//! The answers of the store to a holder.

use super::message::{Hint, Number};
use crate::num::Micros;
use crate::ruleset::Verdict;

/// The answer to a [`Message`](super::Message).
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeaseReply {
    /// The store accounts for these permits.
    Granted(LeaseGrant),
    /// A later message of this holder came before. Nothing was changed.
    Superseded,
}

/// The permits that the store accounts for, and the state of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaseGrant {
    /// The number of the message.
    pub number: Number,
    /// Permits that the holder may go on using. If these are fewer than it said it keeps, it may use
    /// none of those that it had.
    pub kept: u32,
    /// Permits that are added to them.
    pub granted: u32,
    /// From now to the deadline.
    pub lasts: Micros,
    /// The deadline by the store's clock.
    pub ends: Micros,
    /// Permits that would still be granted now.
    pub free: u64,
    /// The number of holders that have permits.
    pub holders: usize,
    /// The store's record of the holder when the message arrived.
    pub found: Found,
    /// The answer to a check of `least` now, or of 1 if that is 0.
    pub verdict: Verdict,
    /// The state that the next message must repeat, in case the store loses it.
    pub hint: Hint,
}

/// The store's record of a holder when its message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The holder had a record.
    Known,
    /// The holder had none.
    New,
    /// The holder named permits for which no record stands: they are void.
    Void,
    /// The store had lost what it had answered before.
    Lost,
    /// There are as many holders as there may be. Granted permits are charged already: they are for the requests that
    /// wait, and are not a lease.
    Full,
}
