//! What a holder asks.

use crate::limits::{LEASE_MARKS_MAX, RULES_MAX};
use crate::num::Micros;

/// A process that leases permits: 64 random bits, new at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

impl Holder {
    /// No holder: its message only looks, and its record stands for holders whose own were lost.
    pub const NONE: Self = Self(0);
}

/// The number of a message of one holder about one key: 1, 2, 3 …; 0 is no message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32);

/// Permits of which it is known by when they were spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// How many.
    pub spent: u32,
    /// All of them were spent at least this long ago by the holder's clock, in µs.
    pub age_us: u32,
}

/// At most [`LEASE_MARKS_MAX`] marks, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    marks: [Mark; LEASE_MARKS_MAX],
    len: usize,
}

/// What an answer said of the key, for a store that has lost it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The version of the leases.
    pub version: Micros,
    /// Permits of all records.
    pub held: u32,
    /// Permits of each rule that were in use, rounded up: each below 2^40.
    pub used: [u64; RULES_MAX],
}

/// All that a holder says of its lease. It says how much there is and never how much more or less, so
/// that a message may be lost, repeated, late or out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Its sender; [`Holder::NONE`] only looks.
    pub holder: Holder,
    /// The number of this message.
    pub number: Number,
    /// The number of the last message whose answer was heard; 0 if none was.
    pub heard: Number,
    /// Permits that the store stood for then: `kept + granted` of that answer.
    pub stood: u32,
    /// Of these, permits that are not spent yet.
    pub unspent: u32,
    /// Of these, permits that the holder goes on using; it gives the others back.
    pub keep: u32,
    /// Permits that requests wait for.
    pub need: u32,
    /// Permits that the first of these requests needs.
    pub least: u32,
    /// Permits that the holder would like beyond `need`.
    pub want: u32,
    /// Most permits that the holder may have beyond `need`.
    pub share: u32,
    /// How long the lease shall last, in µs: at most
    /// [`LEASE_TERM_MAX_US`](crate::limits::LEASE_TERM_MAX_US), which a longer one counts as.
    pub term_us: u32,
    /// How long the holder listens to the answer, in µs: at most
    /// [`LEASE_PATIENCE_MAX_US`](crate::limits::LEASE_PATIENCE_MAX_US), likewise.
    pub patience_us: u32,
    /// The deadline in the last answer.
    pub ends: Micros,
    /// Whether the lease is over by the holder's own clock.
    pub ended: bool,
    /// When permits were spent, as far as that is known.
    pub marks: Marks,
    /// What the last answer said; `None` if it is older than a minute.
    pub hint: Option<Hint>,
}

impl Marks {
    /// These marks, oldest first; `None` if there are more than [`LEASE_MARKS_MAX`].
    pub fn new(marks: &[Mark]) -> Option<Self> {
        let mut new = Self { len: marks.len(), ..Self::default() };
        new.marks.get_mut(..marks.len())?.copy_from_slice(marks);
        Some(new)
    }

    /// The marks, oldest first.
    pub fn as_slice(&self) -> &[Mark] {
        &self.marks[..self.len]
    }
}
