//! What the store answers to a holder.

use super::message::{Hint, Number};
use crate::num::Micros;
use crate::ruleset::Verdict;

/// The answer to a [`Message`](super::Message).
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// The store stands for these permits.
    Stands(Stands),
    /// A later message of this holder came before. Nothing was changed.
    Overtaken,
}

/// What the store stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stands {
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
    /// How many holders have permits.
    pub holders: usize,
    /// What the store knew of the holder.
    pub found: Found,
    /// What a check of `least` would be answered now.
    pub verdict: Verdict,
    /// What the next message must repeat, in case the store loses this.
    pub hint: Hint,
}

/// What the store knew of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It had a record.
    Known,
    /// It had none.
    New,
    /// It named permits for which no record stands: they are void.
    Void,
    /// The store had lost what it had answered before.
    Lost,
    /// There are as many holders as there may be. What is granted is charged already: it is for the
    /// requests that wait, and no lease.
    Full,
}
