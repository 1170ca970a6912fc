//! Requests to the store while permits are out: rule R1.

use alloc::vec::Vec;

use super::{Leased, Leases};
use crate::algorithm::Rule;
use crate::decision::{Ask, Moment, Outcome, Retry};
use crate::num::{Cost, Micros};
use crate::ruleset::{Joined, RuleSet, Unsupported, Verdict, allow};
use crate::verb::Verb;

/// The permits that are out on leases, for a central request.
#[derive(Clone, Copy)]
struct Beside {
    held: u64,
    /// The time until the first of them are charged.
    settles_in: Micros,
}

impl RuleSet {
    /// [`decide`](Self::decide) for a key of which permits may be out on leases: they count as taken, and are not
    /// charged.
    ///
    /// While any are out, nothing is booked: a reservation that would have to wait is refused with the time after which
    /// it can be repeated. A cost that would pass if nothing were out is never refused for ever. A reset forgets what
    /// is in use; permits that are out can still be spent. `remaining` is what is left beside the leases; `reset_after`
    /// does not include them.
    ///
    /// # Errors
    /// [`Unsupported`] as [`decide`](Self::decide).
    pub fn decide_beside(
        &self,
        leased: &mut Leased,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        self.supports(verb)?;
        if let Verb::Peek { cost } = *verb {
            let mut seen = leased.clone();
            self.prepare(&mut seen, at);
            self.charge_spent(&mut seen, Vec::new(), at);
            return Ok(self.peek_beside(&seen, cost, at));
        }
        self.prepare(leased, at);
        self.charge_spent(leased, Vec::new(), at);
        if leased.leases.is_over(at.now()) {
            leased.leases = Leases::default();
        }
        let beside = Beside::of(&leased.leases, at.now());
        let states = &mut leased.states;
        let ask = match *verb {
            Verb::Reset => {
                states.as_mut_slice().fill(None);
                if leased.leases != Leases::default() {
                    leased.leases.touch(at.now());
                }
                return Ok(self.verdict_beside(leased, beside, allow(0), at));
            }
            _ if beside.held == 0 => return self.decide(states, verb, at),
            Verb::Refund { cost } => {
                let joined = self.give_back(states, cost.get(), at);
                return Ok(self.verdict_beside(leased, beside, joined, at));
            }
            Verb::Check { cost } => Ask::check(cost),
            Verb::Reserve { cost, .. } => Ask::reserve(cost, Micros::ZERO),
            Verb::AtMost { cost } => {
                let free = self.free_beside(leased, beside, at).min(cost.get());
                // With nothing to grant, a check of one permit finds when there will be one.
                Ask::check(Cost::new(free).unwrap_or(Cost::ONE))
            }
            Verb::Acquire { permit, .. } | Verb::Wait { permit, .. }
                if self.holding(states, permit, at).is_some() =>
            {
                return self.decide(states, verb, at);
            }
            // Requests wait where no permits are out.
            Verb::Acquire { cost, permit } | Verb::Wait { cost, permit, .. } => {
                Ask::acquire(cost, permit)
            }
            // Permits with ids are not leased.
            Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } | Verb::Peek { .. } => {
                return self.decide(states, verb, at);
            }
        };
        let joined = self.ask_beside(leased, beside, &ask, at);
        self.charge_if_allowed(&mut leased.states, joined, &ask, at);
        Ok(self.verdict_beside(leased, beside, joined, at))
    }

    /// [`debit`](Self::debit) for a key of which permits may be out on leases: those are not available.
    pub fn debit_beside(&self, leased: &mut Leased, permits: &mut [u64], at: &Moment<'_>) {
        self.prepare(leased, at);
        self.charge_spent(leased, Vec::new(), at);
        let beside = Beside::of(&leased.leases, at.now());
        let rules = self.rules().iter().zip(leased.states.as_slice()).zip(permits.iter_mut());
        for (place, ((named, state), permits)) in rules.enumerate() {
            let there = named.rule.available(state.as_ref(), &at.for_rule(place));
            *permits = (*permits).min(there.saturating_sub(beside.under(&named.rule)));
        }
        self.debit(&mut leased.states, permits, at);
    }

    /// [`raise`](Self::raise) for a key of which permits may be out on leases.
    pub fn raise_beside(&self, leased: &mut Leased, permits: &mut [u64], at: &Moment<'_>) {
        self.prepare(leased, at);
        self.charge_spent(leased, Vec::new(), at);
        let used = self.rules().iter().zip(leased.states.as_slice()).enumerate();
        for ((place, (named, state)), permits) in used.zip(permits.iter_mut()) {
            let used = |state| named.rule.used(state, &at.for_rule(place));
            *permits = permits.saturating_sub(state.as_ref().map_or(0, used));
        }
        self.debit_beside(leased, permits, at);
    }

    /// The instant from which a key equals one that was never seen: all budgets are full even if the permits that are
    /// out are spent, and no hint with its leases is believed. `None` if that never happens.
    pub fn leased_forgettable_at(&self, leased: &Leased, at: &Moment<'_>) -> Option<Micros> {
        let mut spent = leased.clone();
        self.prepare(&mut spent, at);
        let deadlines = spent.leases.records.iter().map(|record| record.deadline);
        let last = deadlines.max().unwrap_or(Micros::ZERO).max(at.now());
        self.charge_spent(&mut spent, Vec::new(), &at.as_of(last));
        let full_at = self.forgettable_at(&spent.states)?;
        Some(full_at.max(last).max(leased.leases.forgettable_at()))
    }

    /// Returns the answer to a check of `cost` beside the leases, none of which is past its deadline.
    pub(crate) fn peek_beside(&self, leased: &Leased, cost: Cost, at: &Moment<'_>) -> Verdict {
        let beside = Beside::of(&leased.leases, at.now());
        let joined = self.ask_beside(leased, beside, &Ask::check(cost), at);
        self.verdict_beside(leased, beside, joined, at)
    }

    fn ask_beside(&self, leased: &Leased, beside: Beside, ask: &Ask, at: &Moment<'_>) -> Joined {
        let rules = self.rules().iter().zip(leased.states.as_slice()).enumerate();
        rules.fold(allow(ask.cost), |joined, (place, (named, state))| {
            let (rule, wanted) = (&named.rule, ask.cost + beside.under(&named.rule));
            let outcome = if ask.cost <= rule.limit() && rule.limit() < wanted {
                // It passes when enough of what is out has come back.
                Outcome::Deny { retry: Retry::After(beside.settles_in) }
            } else {
                rule.check(state.as_ref(), &ask.for_permits(wanted), &at.for_rule(place))
            };
            joined.and(place, outcome)
        })
    }

    fn free_beside(&self, leased: &Leased, beside: Beside, at: &Moment<'_>) -> u64 {
        let rules = self.rules().iter().zip(leased.states.as_slice()).enumerate();
        let free = rules.map(|(place, (named, state))| {
            let available = named.rule.available(state.as_ref(), &at.for_rule(place));
            available.saturating_sub(beside.under(&named.rule))
        });
        free.min().expect("a set has at least one rule")
    }

    fn verdict_beside(
        &self,
        leased: &Leased,
        beside: Beside,
        joined: Joined,
        at: &Moment<'_>,
    ) -> Verdict {
        self.verdict_by(joined, |place, outcome| {
            let mut verdict = self.report(&leased.states, place, outcome, at);
            let held = beside.under(&self.rules()[place].rule);
            verdict.decision.remaining = verdict.decision.remaining.saturating_sub(held);
            verdict
        })
    }
}

impl Beside {
    fn of(leases: &Leases, now: Micros) -> Self {
        // A refusal always has a wait.
        let wait = |first: Micros| first.since(now).max(Micros::new(1));
        let settles_in = leases.first_deadline().map_or(Micros::ZERO, wait);
        Self { held: leases.held(), settles_in }
    }

    /// Permits that count under `rule`.
    fn under(self, rule: &Rule) -> u64 {
        if rule.counts_leased() { self.held } else { 0 }
    }
}
