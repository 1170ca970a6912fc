//! What the store last said of a leased key, for the answers of its holder.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_kernel::lease::Stands;
use sluicegate_kernel::{Decision, Micros, Outcome, RuleSet, Verdict};

use super::Hit;

/// Read by every hit, written by every answer. Each word is true by itself; two of them may be of two answers.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Permits that were free beside all leases.
    free: AtomicU64,
    /// The rule that decides, by its place.
    rule: AtomicU64,
    /// Its limit. A hit does not read it from the rules: all threads count references there, which keeps their
    /// cache line busy.
    limit: AtomicU64,
    /// When nothing is in use any more, by the steady clock in µs.
    reset: AtomicU64,
    /// When the store answered, by the steady clock in µs.
    at: AtomicU64,
}

impl Said {
    /// Keeps what the store said to a holder with `rules`; others may have written there by later ones.
    pub(super) fn note(&self, stands: &Stands, rules: &RuleSet, now: Micros) {
        let Verdict { decision, rule } = stands.verdict;
        self.free.store(stands.free, Ordering::Relaxed);
        let rule = if rule < rules.rules().len() { rule } else { 0 };
        self.rule.store(rule as u64, Ordering::Relaxed);
        self.limit.store(rules.rules()[rule].rule.limit(), Ordering::Relaxed);
        self.reset.store(now.plus(decision.reset_after).get(), Ordering::Relaxed);
        self.at.store(now.get(), Ordering::Relaxed);
    }

    /// What a request that took `cost` permits, so that `left` are left here, is answered.
    pub(super) fn hit(&self, cost: u32, left: u32, now: Micros) -> Hit {
        let outcome = Outcome::Allow { granted: cost.into(), wait: Micros::ZERO };
        let rule = usize::try_from(self.rule.load(Ordering::Relaxed)).unwrap_or(0);
        let limit = self.limit.load(Ordering::Relaxed);
        let remaining = (u64::from(left) + self.free.load(Ordering::Relaxed)).min(limit);
        let reset_after = Micros::new(self.reset.load(Ordering::Relaxed)).since(now);
        let verdict =
            Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule };
        Hit { verdict, age: now.since(Micros::new(self.at.load(Ordering::Relaxed))) }
    }
}
