//! The usage of each key that the store last reported.
//!
//! Answers are recorded by the tasks that asked, which need not run in the order in which the store
//! answered: of two that came together, the later one is often recorded first. So an answer that reports
//! less than is known counts only when it cannot be an older one.
//!
//! Example: the store grants the 600th and the 601st permit of a day, and then stops answering. Whichever
//! answer is recorded first, 601 are in use here, and the share of an engine that is alone is 399.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::{Micros, Moment, Rule, RuleSet, States};
use sluicegate_store::{KeyHash, MemoryStore, Permits};

/// Time within which an answer is recorded here: many times the deadline of a decision. A store that has lost data is
/// noticed by then, too.
const SETTLED_AFTER: Micros = Micros::from_secs(2);

/// Most rules of keys whose last raise is remembered, 50 bytes each: more than a store decides in
/// [`SETTLED_AFTER`] by one rule. While there are more, no answer lowers any usage.
const RAISED_MAX: usize = 250_000;

/// The permits in use of each key, by the store's reports.
#[derive(Debug)]
pub(super) struct KnownUsage {
    used: MemoryStore,
    raised: Mutex<Raised>,
}

/// A key, and the place of one of its rules.
type RuleOfKey = (KeyHash, usize);

/// The instants at which rules of keys were last reported to use as much as was known, or more.
#[derive(Debug, Default)]
struct Raised {
    at: HashMap<RuleOfKey, Micros>,
    swept_at: Micros,
    /// The last instant at which one found no place; `None` before the first.
    full_at: Option<Micros>,
}

impl KnownUsage {
    /// Returns an empty record for at most `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        Self { used: MemoryStore::new(keys_max), raised: Mutex::default() }
    }

    pub(super) fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.used.hash(policy, key)
    }

    /// The known usage of a key, in the units of `rules`.
    pub(super) fn states(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> States {
        self.used.states(key, rules, at)
    }

    /// Permits of each rule that are known to be in use.
    pub(super) fn in_use(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> Permits {
        rules.in_use(&self.states(key, rules, at), at)
    }

    /// Records the permits in use that the store reported for rules, by their place, as of a request
    /// at `at`.
    pub(super) fn record_usage(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        reported: &[(usize, u64)],
        at: &Moment<'_>,
    ) {
        let now = at.now();
        let used = |rule: usize, known| {
            let (_, reported) = *reported.iter().find(|reported| reported.0 == rule)?;
            let mut raised = self.lock();
            if reported >= known {
                raised.note((key, rule), now);
                return Some(reported);
            }
            if raised.is_settled((key, rule), now) {
                return Some(reported);
            }
            // A bucket flows out, which is known here too; a window keeps the known usage for its whole
            // length from now on.
            (!is_bucket(&rules.rules()[rule].rule)).then_some(known)
        };
        self.used.record_usage(key, rules, used, at);
    }

    /// The raises, also after a panic elsewhere: each is recorded in one step.
    fn lock(&self) -> MutexGuard<'_, Raised> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Raised {
    fn note(&mut self, key: RuleOfKey, now: Micros) {
        if self.at.len() >= RAISED_MAX && !are_close(self.swept_at, now) {
            self.swept_at = now;
            self.at.retain(|_, raised_at| are_close(*raised_at, now));
        }
        if self.at.len() < RAISED_MAX || self.at.contains_key(&key) {
            self.at.insert(key, now);
        } else {
            self.full_at = Some(now);
        }
    }

    /// Returns whether all answers to questions before the last raise have been recorded by `now`.
    fn is_settled(&self, key: RuleOfKey, now: Micros) -> bool {
        let close = |noted: &Micros| are_close(*noted, now);
        !self.at.get(&key).is_some_and(close) && !self.full_at.as_ref().is_some_and(close)
    }
}

/// Returns whether the permits in use flow out evenly, whichever request took them.
pub(super) const fn is_bucket(rule: &Rule) -> bool {
    matches!(rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_))
}

/// Returns whether the two are less than [`SETTLED_AFTER`] apart. The clock may have been set back in between.
fn are_close(a: Micros, b: Micros) -> bool {
    a.since(b).max(b.since(a)) < SETTLED_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_long_ago_make_room_for_others() {
        let key = MemoryStore::new(1).hash("p", b"a");
        let (begin, later) = (Micros::from_secs(100), Micros::from_secs(110));
        let mut raised = Raised::default();
        (0..RAISED_MAX).for_each(|rule| raised.note((key, rule), begin));
        raised.note((key, RAISED_MAX), begin);
        assert!(!raised.is_settled((key, RAISED_MAX + 1), begin), "one found no place just now");
        raised.note((key, RAISED_MAX), later);
        assert_eq!(raised.at.len(), 1, "those of ten seconds ago are gone");
        assert!(!raised.is_settled((key, RAISED_MAX), later));
        assert!(raised.is_settled((key, 0), later));
    }
}
