//! The store's last answer about a leased key, for the answers of its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_kernel::lease::LeaseGrant;
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{Decision, Micros, Outcome, RuleSet, Verdict};

use super::LeasedDecision;

/// Bits of a word that hold the place of a rule.
const PLACE_BITS: u32 = RULES_MAX.trailing_zeros();

/// The answer, read by every hit. Each word is true by itself; two of them may be of two answers.
#[derive(Debug, Default)]
pub(super) struct LastReply {
    /// Permits that were free beside all leases.
    free: AtomicU64,
    /// `limit | place` of the rule that decides, the place in [`PLACE_BITS`] bits. A hit does not read the limit
    /// from the rules: all threads count references there, which keeps their cache line busy.
    rule: AtomicU64,
    /// The instant at which nothing is in use any more, by the steady clock in µs.
    reset: AtomicU64,
    /// The instant of the answer, by the steady clock in µs.
    at: AtomicU64,
}

impl LastReply {
    /// Records the store's answer to a holder with `rules`. Other nodes may have later rules, so the limit is that of
    /// the holder's own rule.
    pub(super) fn note(&self, grant: &LeaseGrant, rules: &RuleSet, now: Micros) {
        let Verdict { decision, rule } = grant.verdict;
        // Another implementation of a store may name a rule that does not exist.
        let rule = if rule < rules.rules().len() { rule } else { 0 };
        let limit = rules.rules()[rule].rule.limit();
        self.free.store(grant.free, Ordering::Relaxed);
        self.rule.store(limit << PLACE_BITS | rule as u64, Ordering::Relaxed);
        self.reset.store(now.plus(decision.reset_after).get(), Ordering::Relaxed);
        self.at.store(now.get(), Ordering::Relaxed);
    }

    /// Returns the answer to a request that took `cost` permits, so that `left` are left here. If its rules were
    /// `replaced` since, the first of them answers.
    #[inline]
    pub(super) fn hit(
        &self,
        cost: u32,
        left: u32,
        replaced: Option<&Arc<RuleSet>>,
        now: Micros,
    ) -> LeasedDecision {
        let outcome = Outcome::Allow { granted: cost.into(), wait: Micros::ZERO };
        let (limit, rule) = match replaced {
            None => unpack(self.rule.load(Ordering::Relaxed)),
            Some(rules) => first_of(rules),
        };
        let remaining = (u64::from(left) + self.free.load(Ordering::Relaxed)).min(limit);
        let reset_after = Micros::new(self.reset.load(Ordering::Relaxed)).since(now);
        let verdict =
            Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule };
        LeasedDecision { verdict, age: now.since(Micros::new(self.at.load(Ordering::Relaxed))) }
    }
}

#[cold]
fn first_of(rules: &RuleSet) -> (u64, usize) {
    (rules.rules()[0].rule.limit(), 0)
}

const fn unpack(word: u64) -> (u64, usize) {
    (word >> PLACE_BITS, (word & ((1 << PLACE_BITS) - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::limits::{DEPTH_MAX, UNITS_MAX};

    use super::*;

    #[test]
    fn every_limit_and_every_place_fit_into_one_word() {
        for limit in [1, 1 << 32, DEPTH_MAX, UNITS_MAX] {
            for place in 0..RULES_MAX {
                assert_eq!(unpack(limit << PLACE_BITS | place as u64), (limit, place));
            }
        }
        assert!(RULES_MAX.is_power_of_two());
    }
}
