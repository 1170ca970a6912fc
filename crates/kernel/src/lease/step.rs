//! The store's half of the protocol: the effects of one message.

use alloc::vec::Vec;

use super::claim::{Claim, Report, fresh_hint, has_room};
use super::message::{Hint, Holder, Message};
use super::reply::{Found, LeaseGrant, LeaseReply};
use super::spent::Spent;
use super::{Leased, Record};
use crate::decision::Moment;
use crate::limits::{COST_MAX, LEASE_PATIENCE_MAX_US, LEASE_TERM_MAX_US, LEASE_USED_MAX};
use crate::num::{Cost, Micros};
use crate::ruleset::RuleSet;

impl RuleSet {
    /// Answers a holder: charges what it has spent, takes back what it gives back, and grants permits.
    ///
    /// A message that was answered before is answered once more and changes nothing; a message that was overtaken
    /// changes nothing. Rules that cannot be [leased](Self::leasing_span) grant nothing; what was granted under other rules
    /// is still reported and given back. A message of [`Holder::NONE`] only looks, and changes nothing.
    pub fn lease(&self, leased: &mut Leased, message: &Message, at: &Moment<'_>) -> LeaseReply {
        if message.holder == Holder::NONE {
            let mut seen = leased.clone();
            return LeaseReply::Granted(
                ReceivedMessage { rules: self, leased: &mut seen, message, at }.look(),
            );
        }
        let answered = leased.leases.live(message.holder, at.now());
        if answered.is_some_and(|record| message.number < record.number) {
            return LeaseReply::Superseded;
        }
        LeaseReply::Granted(ReceivedMessage { rules: self, leased, message, at }.answer())
    }
}

/// One message at the store.
struct ReceivedMessage<'a> {
    rules: &'a RuleSet,
    leased: &'a mut Leased,
    message: &'a Message,
    at: &'a Moment<'a>,
}

impl ReceivedMessage<'_> {
    fn answer(mut self) -> LeaseGrant {
        let Self { rules, message, at, .. } = self;
        let now = at.now();
        rules.prepare(self.leased, at);
        rules.first_seen(&mut self.leased.states, at);
        let known = self.leased.leases.live(message.holder, now);
        if let Some(record) = known.filter(|record| message.number == record.number) {
            rules.charge_spent(self.leased, Vec::new(), at);
            return self.granted(&record, Found::Known);
        }
        let claim = Claim::of(message, known, &self.leased.leases, self.stood_max(known), now);
        if claim.found == Found::Lost {
            self.restore(known, &claim);
        }
        let Report { kept, spent, found } = claim.report(message, now);
        let record = self.record(kept, claim.deadline);
        if claim.deadline > now {
            self.leased.leases.put(record);
        } else if known.is_some() {
            // The grant to an old message, whose answer never reached the holder.
            self.leased.leases.remove(message.holder);
        }
        rules.charge_spent(self.leased, spent, at);
        rules.forget_past(&mut self.leased.states, at);
        self.grant(record, found)
    }

    /// Returns the answer to a holder without permits.
    fn look(self) -> LeaseGrant {
        self.rules.prepare(self.leased, self.at);
        self.rules.charge_spent(self.leased, Vec::new(), self.at);
        self.granted(&self.record(0, self.at.now()), Found::New)
    }

    /// Returns the record that the message leaves until `deadline`, before anything is granted.
    fn record(&self, kept: u32, deadline: Micros) -> Record {
        let Message { holder, number, .. } = *self.message;
        Record { holder, number, kept, granted: 0, deadline }
    }

    /// The most that the holder, whose record is `known`, is believed to have had before it was lost.
    fn stood_max(&self, known: Option<Record>) -> u32 {
        let own = known.map_or(0, |record| record.permits());
        // Sums of records have 32 bits.
        let room = u64::from(u32::MAX).saturating_sub(self.leased.leases.held() - own);
        u32::try_from(room.min(self.rules.least_limit())).unwrap_or(u32::MAX)
    }

    /// Restores the lost writes that the message knows of, before it is charged for what came after.
    fn restore(&mut self, known: Option<Record>, claim: &Claim) {
        let (now, holder) = (self.at.now(), self.message.holder);
        self.rules.charge_spent(self.leased, Vec::new(), self.at);
        self.leased.leases.remove(holder);
        if claim.deadline > now {
            let record = self.record(claim.base, claim.deadline);
            self.leased.leases.put(record);
        }
        // A record of no holder stood for it until now.
        let back = u64::from(claim.base).saturating_sub(known.map_or(0, |record| record.permits()));
        if let Some(ghost) = self.leased.leases.live(Holder::NONE, now) {
            let kept = ghost.kept - u32::try_from(back).unwrap_or(u32::MAX).min(ghost.kept);
            self.leased.leases.put(Record { kept, ..ghost });
        }
        if let Some(hint) = fresh_hint(self.message, now) {
            self.rules.repair(self.leased, hint, self.at);
        }
    }

    /// Grants what the message asks for to the holder of `record`, as far as it is there.
    fn grant(self, record: Record, found: Found) -> LeaseGrant {
        let Self { rules, message, at, .. } = self;
        let (now, leases) = (at.now(), &self.leased.leases);
        let room = rules.room(self.leased, message, at);
        let needed = room.needed(message);
        let is_full = leases.live(message.holder, now).is_none() && !has_room(leases, now);
        self.leased.leases.touch(now);
        if is_full {
            rules.charge_spent(self.leased, Vec::from([Spent { by: now, permits: needed }]), at);
            let granted = Record { granted: narrow(needed), deadline: now, ..record };
            return self.granted(&granted, Found::Full);
        }
        let granted = narrow(needed + room.granted_beyond(message, record.kept, needed));
        // A shorter term does not end the old one sooner: this answer may be lost.
        let deadline = record.deadline.max(now.plus(lasts(message)));
        let record = Record { granted, deadline, ..record };
        self.leased.leases.put(record);
        self.granted(&record, found)
    }

    fn granted(&self, record: &Record, found: Found) -> LeaseGrant {
        let Self { rules, leased, message, at } = self;
        let least = Cost::new(u64::from(message.least).min(COST_MAX)).unwrap_or(Cost::ONE);
        LeaseGrant {
            number: message.number,
            kept: record.kept,
            granted: record.granted,
            lasts: record.deadline.since(at.now()),
            ends: record.deadline,
            free: rules.free(leased, at),
            holders: leased.leases.holders(),
            found,
            verdict: rules.peek_beside(leased, least, at),
            hint: Hint {
                version: leased.leases.version,
                held: narrow(leased.leases.held()),
                used: rules.in_use(&leased.states, at).map(|used| used.min(LEASE_USED_MAX)),
            },
        }
    }
}

/// From a message to the deadline of what it is granted: a sixteenth longer than the holder uses it, as
/// its clock may be slow, and as long again as it listens to the answer.
fn lasts(message: &Message) -> Micros {
    let term = u64::from(message.term_us).min(LEASE_TERM_MAX_US);
    let patience = u64::from(message.patience_us).min(LEASE_PATIENCE_MAX_US);
    Micros::new(term + term / 16 + patience)
}

fn narrow(permits: u64) -> u32 {
    u32::try_from(permits).expect("sums of records have 32 bits")
}
