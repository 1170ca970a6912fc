//! One key at the store, and short forms of requests to it.

use sluicegate_kernel::lease::{Holder, LeaseGrant, Leases, Mark, Marks, Message, Number};
use sluicegate_kernel::{
    Cost, Decision, LeaseReply, Leased, Micros, Moment, Rate, Rule, RuleSet, TokenBucket, Verb,
};

use super::holder::PATIENCE_US;

pub(crate) const SECOND_US: u64 = 1_000_000;

/// A key under some rules. Instants are in µs.
pub(crate) struct Key {
    pub(crate) rules: RuleSet,
    pub(crate) leased: Leased,
}

impl Key {
    pub(crate) fn new(rule: impl Into<Rule>) -> Self {
        Self { rules: RuleSet::single("r", rule), leased: Leased::default() }
    }

    /// Ten permits a second, and a hundred in a full bucket.
    pub(crate) fn bucket() -> Self {
        let rate = Rate::per_second(10).unwrap();
        Self::new(TokenBucket::new(rate, 100).unwrap())
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leased.leases
    }

    pub(crate) fn held(&self) -> u64 {
        self.leased.leases.held()
    }

    /// Permits in use by now.
    pub(crate) fn in_use(&self, at_us: u64) -> u64 {
        self.rules.in_use(&self.leased.states, &Moment::new(Micros::new(at_us)))[0]
    }

    pub(crate) fn word(&mut self, message: &Message, at_us: u64) -> LeaseReply {
        self.rules.lease(&mut self.leased, message, &Moment::new(Micros::new(at_us)))
    }

    pub(crate) fn granted(&mut self, message: &Message, at_us: u64) -> LeaseGrant {
        match self.word(message, at_us) {
            LeaseReply::Granted(grant) => grant,
            LeaseReply::Superseded => panic!("overtaken: {message:?}"),
        }
    }

    /// The first message of holder `id`, which wants `want` permits.
    pub(crate) fn lease(&mut self, id: u64, want: u32, at_us: u64) -> LeaseGrant {
        self.granted(&Message { want, ..first(id) }, at_us)
    }

    pub(crate) fn decide(&mut self, verb: &Verb, at_us: u64) -> Decision {
        let at = Moment::new(Micros::new(at_us));
        self.rules.decide_beside(&mut self.leased, verb, &at).unwrap().decision
    }

    pub(crate) fn check(&mut self, cost: u64, at_us: u64) -> Decision {
        self.decide(&Verb::Check { cost: Cost::new(cost).unwrap() }, at_us)
    }
}

/// The first message of holder `id`: it has nothing and wants nothing, for a second.
pub(crate) fn first(id: u64) -> Message {
    Message {
        holder: Holder(id),
        number: Number(1),
        heard: Number(0),
        stood: 0,
        unspent: 0,
        keep: 0,
        need: 0,
        least: 0,
        want: 0,
        share: u32::MAX,
        term_us: 1_000_000,
        patience_us: PATIENCE_US,
        ends: Micros::ZERO,
        ended: false,
        marks: Marks::default(),
        hint: None,
    }
}

/// The message after `grant` arrived, of a holder that has `unspent` of it left and keeps them.
pub(crate) fn next(id: u64, grant: &LeaseGrant, unspent: u32) -> Message {
    Message {
        number: Number(grant.number.0 + 1),
        heard: grant.number,
        stood: grant.kept + grant.granted,
        unspent,
        keep: unspent,
        ends: grant.ends,
        hint: Some(grant.hint),
        ..first(id)
    }
}

pub(crate) fn mark(spent: u32, age_us: u32) -> Marks {
    Marks::new(&[Mark { spent, age_us }]).unwrap()
}
