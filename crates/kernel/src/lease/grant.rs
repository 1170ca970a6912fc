//! The permits that a message is granted.

use super::message::Message;
use super::{Leased, Leases, LeasingSpan};
use crate::decision::Moment;
use crate::ruleset::RuleSet;

/// The permits that can be granted, and the limits of a grant.
pub(crate) struct Room {
    /// Permits that every rule would let pass beside all records.
    pub(crate) free: u64,
    /// Permits of all records.
    held: u64,
    /// The number of holders that have permits, including the sender.
    sharers: u64,
    /// The least limit of the rules.
    limit: u64,
    in_steps: bool,
}

impl RuleSet {
    /// Permits that every rule would let pass beside all records; none if the rules cannot be leased.
    pub(crate) fn free(&self, leased: &Leased, at: &Moment<'_>) -> u64 {
        let rules = self.rules().iter().zip(leased.states.as_slice()).enumerate();
        let available = rules.map(|(place, (named, state))| {
            if named.rule.leasing().is_possible() {
                named.rule.available(state.as_ref(), &at.for_rule(place))
            } else {
                0
            }
        });
        let least = available.min().expect("a set has at least one rule");
        // Sums of records have 32 bits.
        let room = u64::from(u32::MAX).saturating_sub(leased.leases.held());
        least.saturating_sub(leased.leases.held()).min(room)
    }

    pub(crate) fn room(&self, leased: &Leased, message: &Message, at: &Moment<'_>) -> Room {
        let Leases { records, .. } = &leased.leases;
        let others = records.iter().filter(|record| {
            record.holder != message.holder
                && record.holder != super::Holder::NONE
                && record.permits() > 0
        });
        Room {
            free: self.free(leased, at),
            held: leased.leases.held(),
            sharers: others.count() as u64 + 1,
            limit: self.least_limit(),
            in_steps: self.leasing_span().is_ok_and(|LeasingSpan { in_steps, .. }| in_steps),
        }
    }
}

impl Room {
    /// Returns the permits for waiting requests: all that they need, or all free ones if the first of them can pass, or
    /// 0.
    pub(crate) fn needed(&self, message: &Message) -> u64 {
        let (need, least) = (u64::from(message.need), u64::from(message.least));
        match self.free {
            free if free >= need => need,
            free if free >= least => free,
            _ => 0,
        }
    }

    /// Returns the permits that a holder which keeps `kept` is granted beyond the `needed` ones. Half of the limit is
    /// never lent beyond what is needed, so that others find room. It is `wanted` in `lease.lua`.
    pub(crate) fn granted_beyond(&self, message: &Message, kept: u32, needed: u64) -> u64 {
        let left = self.free - needed;
        let part = if self.in_steps { left / self.sharers } else { left / 2 };
        let own = u64::from(kept) + needed;
        let half = self.limit / 2;
        [
            part,
            u64::from(message.share).saturating_sub(own),
            half.saturating_sub(self.held + needed),
            (half / self.sharers).saturating_sub(own),
        ]
        .into_iter()
        .fold(message.want.into(), u64::min)
    }
}
