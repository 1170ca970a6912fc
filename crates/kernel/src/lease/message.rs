//! The messages of holders.

use crate::limits::{LEASE_MARKS_MAX, RULES_MAX};
use crate::num::Micros;

/// A process that leases permits: 64 random bits, new at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(pub u64);

impl Holder {
    /// No holder: its message only looks, and its record stands for holders whose own were lost.
    pub const NONE: Self = Self(0);
}

/// The number of a message of one holder about one key: 1, 2, 3 …; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32);

/// Permits with the least time that has passed since they were spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The number of permits.
    pub spent: u32,
    /// The holder spent all of them at least this long ago by its clock, in µs.
    pub age_us: u32,
}

/// At most [`LEASE_MARKS_MAX`] marks, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    marks: [Mark; LEASE_MARKS_MAX],
    len: usize,
}

/// State of the key from an answer, for a store that has lost it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The version of the leases.
    pub version: Micros,
    /// Permits of all records.
    pub held: u32,
    /// Permits of each rule that were in use, rounded up: each below 2^40.
    pub used: [u64; RULES_MAX],
}

/// The state of a holder's lease, and its wishes. All numbers are totals and never differences, so that a message may
/// be lost, repeated, late or out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Its sender; [`Holder::NONE`] only looks.
    pub holder: Holder,
    /// The number of this message.
    pub number: Number,
    /// The number of the last message whose answer arrived; 0 if none did.
    pub heard: Number,
    /// Permits that the store stood for then: `kept + granted` of that answer.
    pub stood: u32,
    /// Permits of `stood` that are not spent yet.
    pub unspent: u32,
    /// Permits of `unspent` that the holder goes on using; it gives the others back.
    pub keep: u32,
    /// Permits that requests wait for.
    pub need: u32,
    /// Permits that the first of these requests needs.
    pub least: u32,
    /// Permits that the holder wants beyond `need`.
    pub want: u32,
    /// Most permits that the holder may have beyond `need`.
    pub share: u32,
    /// The term of the lease, in µs: at most [`LEASE_TERM_MAX_US`](crate::limits::LEASE_TERM_MAX_US), which a longer
    /// one counts as.
    pub term_us: u32,
    /// The longest time that the holder waits for the answer, in µs: at most
    /// [`LEASE_PATIENCE_MAX_US`](crate::limits::LEASE_PATIENCE_MAX_US), likewise.
    pub patience_us: u32,
    /// The deadline in the last answer.
    pub ends: Micros,
    /// The lease is over by the holder's own clock.
    pub ended: bool,
    /// The times at which permits were spent, as far as they are known.
    pub marks: Marks,
    /// The hint of the last answer; `None` if it is older than a minute.
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
