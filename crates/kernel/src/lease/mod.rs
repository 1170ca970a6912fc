//! Leases: a holder decides from permits that the store has set aside for it.
//!
//! **What is remembered**: the states of the rules, as without leases, and one [`Record`] for each
//! holder: what it kept of earlier grants, what the last message granted, and its deadline. `H` is the
//! sum of all records.
//!
//! **The rule.** Per key, with `D` for what the states have in use:
//!
//! - R1 A central request of cost `c` passes if every rule lets `c + H` pass. It is charged `c`.
//! - R2 A grant of `k` needs every rule to let `H + k` pass. Then `H` grows by `k`; nothing is charged.
//! - R3 `x` permits are reported as spent: `H` falls by `x`, and every rule is charged `x` at an instant
//!   by which all of them were spent, and which is not before what the state has seen.
//! - R4 `y` permits are given back: `H` falls by `y`.
//! - R5 At its deadline the rest of a record is charged, as of the deadline.
//! - R6 A holder stops using permits before the deadline.
//! - R7 What was given back, has ended or is not in `kept` of the last answer is never used.
//!
//! **Worked example**: `rate 10/s, burst 100`. `A` leases 40 at 0 s for a second, spends 30 and
//! reports that at 0.5 s with a mark of 0.4 s ago; it keeps 10, for another second.
//!
//! | at (s) | event | in use | H | free for others |
//! |---|---|---|---|---|
//! | 0 | `A` is granted 40 | 0 | 40 | 60 |
//! | 0.2 | a central check of 61 | 0 | 40 | refused: 61 + 40 > 100 |
//! | 0.5 | `A` reports: 30 were spent by 0.125 s | 26.25 | 10 | 63 |
//! | 1.6125 | no message of `A` arrived by its deadline | 25.125 | 0 | 74 |
//!
//! **Property**: in every interval a rule admits at most what it would admit without leases, however
//! messages are lost, repeated, late or out of order, and whatever holders crash.
//!
//! ```text
//! burst ┤──────────┬─────────  free: grants, central checks
//!       │  H: set  │╲
//!       │  aside   ├─╲───────  reported: from H to D
//!       │──────────┘  ╲
//!     0 ┤  D: in use   ╲──▶ flows out; H does not
//! ```
//!
//! The store's half is here: [`RuleSet::lease`](crate::RuleSet::lease) answers a [`Message`],
//! [`RuleSet::decide_beside`](crate::RuleSet::decide_beside) everything else. `spec/vectors/leases.json`
//! has both as data, which the script in Redis answers alike.
//!
//! Source: escrow transactions (O'Neil, 1986), with leases (Gray and Cheriton, 1989).

mod beside;
mod claim;
mod grant;
mod leasable;
mod message;
mod reply;
mod spent;
mod step;

use alloc::vec::Vec;

pub use crate::algorithm::Leasing;
pub use leasable::{LeasingSpan, NotLeasable};
pub use message::{Hint, Holder, Mark, Marks, Message, Number};
pub use reply::{Found, LeaseGrant, LeaseReply};

use crate::limits::{LEASE_DEADLINE_MAX_US, LEASE_HINT_MAX_US};
use crate::num::Micros;
use crate::states::States;

/// The states of a key's rules, and its permits that are out on leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leased {
    /// The states of the rules.
    pub states: States,
    /// The permits of the holders.
    pub leases: Leases,
}

/// Permits that are set aside for holders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// Rises with every message: the instant of the last one, or later. Zero before the first.
    pub version: Micros,
    /// One for each holder, in no order: at most
    /// [`LEASE_HOLDERS_MAX`](crate::limits::LEASE_HOLDERS_MAX).
    pub records: Vec<Record>,
}

/// The permits of one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Its holder. [`Holder::NONE`] stands for holders whose records were lost.
    pub holder: Holder,
    /// The number of the last message that was answered.
    pub number: Number,
    /// Permits that the holder goes on using, by its last message.
    pub kept: u32,
    /// Permits that the answer to that message granted.
    pub granted: u32,
    /// The instant at which what is left of both is charged.
    pub deadline: Micros,
}

impl Record {
    /// All permits that it stands for.
    pub const fn permits(&self) -> u64 {
        self.kept as u64 + self.granted as u64
    }
}

impl Leases {
    /// Permits of all records: `H`, at most 2^32 - 1.
    pub fn held(&self) -> u64 {
        self.records.iter().map(Record::permits).sum()
    }

    /// The number of holders that have permits.
    pub fn holders(&self) -> usize {
        let has = |record: &&Record| record.holder != Holder::NONE && record.permits() > 0;
        self.records.iter().filter(has).count()
    }

    /// The instant at which the first permits that are out are charged; `None` if none are out.
    pub fn first_deadline(&self) -> Option<Micros> {
        let out = self.records.iter().filter(|record| record.permits() > 0);
        out.map(|record| record.deadline).min()
    }

    /// The record of `holder`, unless its deadline is past.
    pub(crate) fn live(&self, holder: Holder, now: Micros) -> Option<Record> {
        let of = |record: &&Record| record.holder == holder && record.deadline > now;
        self.records.iter().find(of).copied()
    }

    /// Adds `record`, or replaces the one that its holder has.
    pub(crate) fn put(&mut self, record: Record) {
        match self.records.iter_mut().find(|other| other.holder == record.holder) {
            Some(other) => *other = record,
            None => self.records.push(record),
        }
    }

    pub(crate) fn remove(&mut self, holder: Holder) {
        self.records.retain(|record| record.holder != holder);
    }

    /// No deadline is later than the longest lease that begins now: the clock may have gone back.
    pub(crate) fn rewind(&mut self, now: Micros) {
        let latest = now.plus(Micros::new(LEASE_DEADLINE_MAX_US));
        for record in &mut self.records {
            record.deadline = record.deadline.min(latest);
        }
    }

    /// Returns whether the leases can be forgotten: no record is left, and no hint that is still believed can name a
    /// version.
    pub(crate) fn is_over(&self, now: Micros) -> bool {
        self.records.is_empty() && self.forgettable_at() <= now
    }

    /// The instant from which no hint that knows this version is believed.
    pub(crate) fn forgettable_at(&self) -> Micros {
        match self.version {
            Micros::ZERO => Micros::ZERO,
            version => version.plus(Micros::new(LEASE_HINT_MAX_US)).plus(Micros::new(1)),
        }
    }

    /// The version after one more change at `now`.
    pub(crate) fn touch(&mut self, now: Micros) {
        self.version = self.version.plus(Micros::new(1)).max(now);
    }
}
