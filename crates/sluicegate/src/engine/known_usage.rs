//! What the store last said is in use, of each key.
//!
//! Answers are put down by the tasks that asked, which need not run in the order in which the store
//! answered: of two that came together, the later one is often put down first. So an answer that says
//! less than is known counts only where it cannot be an older one.
//!
//! Example: the store grants the 600th and the 601st permit of a day, and then falls silent. Whichever
//! answer is put down first, 601 are in use here, and the share of an engine that is alone is 399.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::{Micros, Moment, Rule, RuleSet, States};
use sluicegate_store::{KeyHash, MemoryStore, Permits};

/// How long an answer may be on its way to its place here: many times the deadline of a decision. A store
/// that has forgotten is noticed by then, too.
const SETTLED_AFTER: Micros = Micros::from_secs(2);

/// Rules of keys of which it is remembered when they were last said to use more, 50 bytes each: more than a
/// store decides in [`SETTLED_AFTER`] by one rule. While there are more, no answer takes anything back.
const RAISED_MAX: usize = 250_000;

/// What is in use of each key, as far as the store said.
#[derive(Debug)]
pub(super) struct KnownUsage {
    used: MemoryStore,
    raised: Mutex<Raised>,
}

/// A key, and the place of one of its rules.
type RuleOfKey = (KeyHash, usize);

/// When rules of keys were last said to use as much as was known, or more.
#[derive(Debug, Default)]
struct Raised {
    at: HashMap<RuleOfKey, Micros>,
    swept_at: Micros,
    /// Since when some have found no place.
    full_at: Option<Micros>,
}

impl KnownUsage {
    /// Of at most `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        Self { used: MemoryStore::new(keys_max), raised: Mutex::default() }
    }

    pub(super) fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.used.hash(policy, key)
    }

    /// What is known of a key, in the units of `rules`.
    pub(super) fn states(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> States {
        self.used.states(key, rules, at)
    }

    /// Permits of each rule that are known to be in use.
    pub(super) fn in_use(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> Permits {
        rules.in_use(&self.states(key, rules, at), at)
    }

    /// Puts down how many permits of rules, by their place, the store answered to be in use, as of a request
    /// at `at`.
    pub(super) fn record_usage(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        said: &[(usize, u64)],
        at: &Moment<'_>,
    ) {
        let now = at.now();
        let used = |rule: usize, known| {
            let (_, said) = *said.iter().find(|said| said.0 == rule)?;
            let mut raised = self.lock();
            if said >= known {
                raised.note((key, rule), now);
                return Some(said);
            }
            if raised.is_settled((key, rule), now) {
                return Some(said);
            }
            // A bucket flows out, which is known here too; a window keeps what is known for its whole
            // length from now on.
            let flows =
                matches!(rules.rules()[rule].rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_));
            (!flows).then_some(known)
        };
        self.used.record_usage(key, rules, used, at);
    }

    /// The notes, also after a panic elsewhere: each is taken in one step.
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

    /// Whether all answers to what was asked before the last raise are put down by now.
    fn is_settled(&self, key: RuleOfKey, now: Micros) -> bool {
        let close = |noted: &Micros| are_close(*noted, now);
        !self.at.get(&key).is_some_and(close) && !self.full_at.as_ref().is_some_and(close)
    }
}

/// Whether the two are less than [`SETTLED_AFTER`] apart. A clock may have been put back in between.
fn are_close(a: Micros, b: Micros) -> bool {
    a.since(b).max(b.since(a)) < SETTLED_AFTER
}
