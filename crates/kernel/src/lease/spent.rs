//! From what is held to what is in use: reports, lapses, and what a store has lost.

use alloc::vec::Vec;

use super::message::{Hint, Holder, Number};
use super::{Leased, Leases, Record};
use crate::algorithm::{Rule, State};
use crate::decision::{Ask, Moment};
use crate::limits::{LEASE_DEADLINE_MAX_US, LEASE_HOLDERS_MAX};
use crate::num::{Cost, Micros};
use crate::ruleset::{Carry, RuleSet};
use crate::states::States;

/// Permits that were held, and the instant by which they were spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) by: Micros,
    pub(crate) permits: u64,
}

impl RuleSet {
    /// Brings a key whose clock may have gone back to `at`. Nothing is charged yet.
    pub(crate) fn prepare(&self, leased: &mut Leased, at: &Moment<'_>) {
        leased.states.fit(self.rules().len());
        self.rewind(&mut leased.states, at);
        leased.leases.rewind(at.now());
    }

    /// Charges `spent` and the records whose deadline is past, oldest first; `settle` in `lease.lua`.
    pub(crate) fn charge_spent(&self, leased: &mut Leased, mut spent: Vec<Spent>, at: &Moment<'_>) {
        lapse(&mut leased.leases, &mut spent, at.now());
        spent.sort_by_key(|spent| spent.by);
        for Spent { by, permits } in spent {
            self.charge_by(&mut leased.states, permits, by, at);
        }
    }

    /// Charges `permits` that were spent by the instant `by`, but not before what a rule has seen.
    ///
    /// These are more than a rule has left only after rules were changed, or if the clock went back. It
    /// counts them nevertheless: a limit that was lowered may be raised again. Usage that does not stay
    /// in use when rules change is counted up to twice the limit.
    fn charge_by(&self, states: &mut States, permits: u64, by: Micros, at: &Moment<'_>) {
        for (place, (named, state)) in self.rules().iter().zip(states.as_mut_slice()).enumerate() {
            let rule = &named.rule;
            if !rule.counts_leased() {
                continue;
            }
            let at = at.for_rule(place);
            let seen = state.as_ref().map_or(Micros::ZERO, |state| rule.seen(state));
            let at = at.back_to(by.max(seen));
            let most = match self.carry() {
                Carry::Usage => rule.countable(),
                Carry::Proportional | Carry::Reset => 2 * rule.limit(),
            };
            rule.charge_beyond(state, permits, most, &at);
        }
    }

    /// Forgets usage that does not count any more, so that permits granted since then stay covered if the clock goes
    /// back.
    pub(crate) fn forget_past(&self, states: &mut States, at: &Moment<'_>) {
        for (place, (named, state)) in self.rules().iter().zip(states.as_mut_slice()).enumerate() {
            if let Some(state) = state {
                named.rule.forget(state, &at.for_rule(place));
            }
        }
    }

    /// Raises the permits in use and held to those of `hint`, as far as they have not flowed out since. A record of no
    /// holder stands for permits of holders that have not sent a message yet.
    pub(crate) fn repair(&self, leased: &mut Leased, hint: &Hint, at: &Moment<'_>) {
        let Hint { version, held, used } = *hint;
        let version = version.capped();
        let states = leased.states.as_mut_slice();
        for (place, (named, state)) in self.rules().iter().zip(states).enumerate() {
            let (at, rule) = (at.for_rule(place), &named.rule);
            let begin = at.window().map_or(Micros::ZERO, |window| window.start);
            if !rule.leasing().is_possible() || version < begin {
                continue;
            }
            let then = rule.with_used(used[place].min(rule.limit()), &at.back_to(version));
            let come_to = then.map_or(0, |then| rule.used(&then, &at));
            let known = state.as_ref().map_or(0, |state| rule.used(state, &at));
            let lost = come_to.saturating_sub(known).min(rule.available(state.as_ref(), &at));
            if lost > 0 {
                rule.charge(state, &Ask::check(Cost::ONE).for_permits(lost), &at);
            }
        }
        self.raise_held(leased, held.into(), version, at);
        leased.leases.version = leased.leases.version.max(version);
    }

    fn raise_held(&self, leased: &mut Leased, held: u64, version: Micros, at: &Moment<'_>) {
        let now = at.now();
        let longest = Micros::new(LEASE_DEADLINE_MAX_US);
        let deadline = version.plus(longest).min(now.plus(longest));
        let missing = held.min(self.least_limit()).saturating_sub(leased.leases.held());
        if missing == 0 || deadline <= now {
            return;
        }
        let ghost = leased.leases.live(Holder::NONE, now);
        if ghost.is_none() && leased.leases.records.len() >= LEASE_HOLDERS_MAX {
            // No record can stand for them, so they count as spent.
            return self.charge_spent(leased, Vec::from([Spent { by: now, permits: missing }]), at);
        }
        let kept = ghost.map_or(0, |ghost| ghost.permits()) + missing;
        leased.leases.put(Record {
            holder: Holder::NONE,
            number: Number(0),
            kept: u32::try_from(kept).expect("at most what the hint says, which has 32 bits"),
            granted: 0,
            deadline: ghost.map_or(deadline, |ghost| ghost.deadline.max(deadline)),
        });
    }

    /// The least limit of the rules.
    pub(crate) fn least_limit(&self) -> u64 {
        let limits = self.rules().iter().map(|named| named.rule.limit());
        limits.min().expect("a set has at least one rule")
    }
}

/// Takes the records whose deadline is past out, as spent by their deadlines.
fn lapse(leases: &mut Leases, spent: &mut Vec<Spent>, now: Micros) {
    leases.records.retain(|record| {
        let lapses = record.deadline <= now;
        if lapses {
            spent.push(Spent { by: record.deadline, permits: record.permits() });
        }
        !lapses
    });
}

impl Rule {
    /// Charges permits that were spent, also beyond the limit, but has no more than `most` in use by it.
    pub(crate) fn charge_beyond(
        &self,
        state: &mut Option<State>,
        permits: u64,
        most: u64,
        at: &Moment<'_>,
    ) {
        let used = state.as_ref().map_or(0, |state| self.used(state, at));
        let permits = permits.min(most.saturating_sub(used));
        if permits > 0 {
            self.charge(state, &Ask::check(Cost::ONE).for_permits(permits), at);
        }
    }
}
