//! What the store last said of a leased key, for the answers of its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_kernel::lease::Stands;
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{Decision, Micros, Outcome, RuleSet, Verdict};

use super::Hit;

/// Bits of a word that hold the place of a rule.
const PLACE_BITS: u32 = RULES_MAX.trailing_zeros();

/// Read by every hit, written by every answer. Each word is true by itself; two of them may be of two answers.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Permits that were free beside all leases.
    free: AtomicU64,
    /// `limit | place` of the rule that decides, the place in [`PLACE_BITS`] bits. A hit does not read the limit
    /// from the rules: all threads count references there, which keeps their cache line busy.
    rule: AtomicU64,
    /// When nothing is in use any more, by the steady clock in µs.
    reset: AtomicU64,
    /// When the store answered, by the steady clock in µs.
    at: AtomicU64,
}

impl Said {
    /// Keeps what the store said to a holder with `rules`. Other nodes may have later rules, so the limit is that of
    /// the holder's own rule.
    pub(super) fn note(&self, stands: &Stands, rules: &RuleSet, now: Micros) {
        let Verdict { decision, rule } = stands.verdict;
        // A store that is not ours may name a rule that there is not.
        let rule = if rule < rules.rules().len() { rule } else { 0 };
        let limit = rules.rules()[rule].rule.limit();
        self.free.store(stands.free, Ordering::Relaxed);
        self.rule.store(limit << PLACE_BITS | rule as u64, Ordering::Relaxed);
        self.reset.store(now.plus(decision.reset_after).get(), Ordering::Relaxed);
        self.at.store(now.get(), Ordering::Relaxed);
    }

    /// What a request that took `cost` permits, so that `left` are left here, is answered. A request whose rules were
    /// `replaced` since is answered by the first of them.
    #[inline]
    pub(super) fn hit(
        &self,
        (cost, left): (u32, u32),
        replaced: Option<&Arc<RuleSet>>,
        now: Micros,
    ) -> Hit {
        let outcome = Outcome::Allow { granted: cost.into(), wait: Micros::ZERO };
        let (limit, rule) = match replaced {
            None => unpack(self.rule.load(Ordering::Relaxed)),
            Some(rules) => first_of(rules),
        };
        let remaining = (u64::from(left) + self.free.load(Ordering::Relaxed)).min(limit);
        let reset_after = Micros::new(self.reset.load(Ordering::Relaxed)).since(now);
        let verdict =
            Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule };
        Hit { verdict, age: now.since(Micros::new(self.at.load(Ordering::Relaxed))) }
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
