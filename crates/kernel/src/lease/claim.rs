//! The records behind the permits that a message names.

use alloc::vec::Vec;

use super::message::Message;
use super::reply::Found;
use super::spent::Spent;
use super::{Leases, Record};
use crate::limits::{LEASE_DEADLINE_MAX_US, LEASE_HINT_MAX_US, LEASE_HOLDERS_MAX};
use crate::num::Micros;

/// The records behind the permits that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Permits that the store stood for.
    pub(crate) base: u32,
    /// The deadline of these permits; zero if the store did not stand for them.
    pub(crate) deadline: Micros,
    /// Permits without a record that count as spent.
    pub(crate) unclaimed: u32,
    pub(crate) found: Found,
}

/// The rest of the base: `kept` goes on, the other permits are spent or given back.
pub(crate) struct Report {
    pub(crate) kept: u32,
    pub(crate) spent: Vec<Spent>,
    pub(crate) found: Found,
}

impl Claim {
    /// The claim of `message`, whose holder has the record `known`. `stood_max` is the most permits that the store
    /// believes without a record.
    pub(crate) fn of(
        message: &Message,
        known: Option<Record>,
        leases: &Leases,
        stood_max: u32,
        now: Micros,
    ) -> Self {
        if let Some(record) = known.filter(|record| message.heard <= record.number) {
            // What was granted and never heard of goes back unused.
            let heard = message.heard == record.number;
            let base = record.kept.saturating_add(if heard { record.granted } else { 0 });
            return Self { base, deadline: record.deadline, unclaimed: 0, found: Found::Known };
        }
        let alive = message.stood > 0 && now < message.ends && !message.ended;
        let stood = message.stood.min(stood_max);
        if alive && (known.is_some() || has_room(leases, now)) {
            let deadline = message.ends.min(now.plus(Micros::new(LEASE_DEADLINE_MAX_US)));
            let deadline = known.map_or(deadline, |record| record.deadline.max(deadline));
            return Self { base: stood, deadline, unclaimed: 0, found: Found::Lost };
        }
        // A record of a lower number is not a sign of lost writes: an old message that came after its lease had lapsed
        // left it, and the answer to that message never arrived.
        let lost = alive || is_newer(message, leases, now);
        let (unclaimed, found) = if lost { (stood, Found::Lost) } else { (0, Found::New) };
        Self { base: 0, deadline: Micros::ZERO, unclaimed, found }
    }

    /// Returns the parts of the base that `message` keeps and has spent.
    pub(crate) fn report(&self, message: &Message, now: Micros) -> Report {
        let Self { base, unclaimed, mut found, .. } = *self;
        let (mut unspent, mut kept) = (message.unspent, message.keep.min(message.unspent));
        if unspent > base {
            // No record stands for these permits.
            (unspent, kept) = (0, 0);
            found = if found == Found::Lost { found } else { Found::Void };
        }
        let mut rest = base - unspent;
        let mut spent = Vec::new();
        for mark in message.marks.as_slice() {
            let permits = mark.spent.min(rest);
            rest -= permits;
            // The holder's clock may be fast: of what it says only 15/16 are believed.
            let age = Micros::new(u64::from(mark.age_us) * 15 / 16);
            spent.push(Spent { by: now.since(age), permits: permits.into() });
        }
        spent.push(Spent { by: now, permits: u64::from(rest) + u64::from(unclaimed) });
        Report { kept, spent, found }
    }
}

/// Returns whether one more holder finds a place.
pub(crate) fn has_room(leases: &Leases, now: Micros) -> bool {
    leases.records.iter().filter(|record| record.deadline > now).count() < LEASE_HOLDERS_MAX
}

/// Returns whether the hint of `message`, if it is fresh enough to be believed, has a later version than
/// the store.
fn is_newer(message: &Message, leases: &Leases, now: Micros) -> bool {
    fresh_hint(message, now).is_some_and(|hint| leases.version < hint.version.capped())
}

/// The hint of `message`, if it is fresh enough to be believed.
pub(crate) fn fresh_hint(message: &Message, now: Micros) -> Option<&super::Hint> {
    let fresh = |hint: &&super::Hint| now <= hint.version.plus(Micros::new(LEASE_HINT_MAX_US));
    message.hint.as_ref().filter(fresh)
}
