//! One budget per key, in this process.
//!
//! [`KeyedRateLimiter`] decides here; `acquire` waits for permits; `lines` keeps those that wait in order.

mod acquire;
mod lines;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;

use sluicegate_kernel::{
    Cost, Decision, Micros, Moment, NamedRule, Outcome, Retry, Rule, RuleSet, Verb, Verdict,
};
use sluicegate_store::{KeyHash, MemoryStore};

use self::lines::KeyLines;
use crate::clock::{Clock, MonotonicClock};
use crate::limiter::LimiterError;

/// A limiter with one set of rules for all keys of type `K`, each key with a budget of its own.
///
/// Keys are kept as keyed hashes, at most `keys_max` of them; at the cap keys with the most left are
/// forgotten first, and new ones share one budget where all have less than half left, so that a flood
/// of keys cannot wash away a used-up one.
///
/// ```
/// use sluicegate::{Cost, KeyedRateLimiter, Rate, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(10)?, 1)?;
/// let limiter = KeyedRateLimiter::<str>::new(rule, 100_000)?;
/// assert!(limiter.check("alice", Cost::ONE).allowed());
/// assert!(!limiter.check("alice", Cost::ONE).allowed());
/// assert!(limiter.check("bob", Cost::ONE).allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Callers that wait for a key (`acquire`, [`acquire_blocking`](Self::acquire_blocking)) are served in the order in
/// which they came; while one waits, no other caller passes for that key. Nothing is booked for them, so a future that
/// is dropped leaves no trace.
pub struct KeyedRateLimiter<K: ?Sized> {
    rules: Arc<RuleSet>,
    store: MemoryStore,
    lines: KeyLines,
    clock: Arc<dyn Clock>,
    keys: PhantomData<fn(&K)>,
}

impl<K: Hash + ?Sized> KeyedRateLimiter<K> {
    /// Returns a limiter that holds every key to `rule`, on the monotonic clock.
    ///
    /// # Errors
    /// [`LimiterError`] for a rule that only the engine can serve.
    pub fn new(rule: impl Into<Rule>, keys_max: usize) -> Result<Self, LimiterError> {
        let rule = rule.into();
        let rules = RuleSet::single(rule.algorithm(), rule);
        Self::of(rules, keys_max, Arc::new(MonotonicClock))
    }

    /// Returns a limiter that holds every key to all of `rules`, each with its name, by the time of `clock`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sluicegate::{KeyedRateLimiter, ManualClock, Micros, SlidingWindow, TokenBucket};
    ///
    /// let burst = TokenBucket::new("10/s".parse()?, 20)?;
    /// let hourly = SlidingWindow::new(1_000, Micros::from_secs(3_600), 10)?;
    /// let rules = [("burst", burst.into()), ("hourly", hourly.into())];
    /// let clock = Arc::new(ManualClock::default());
    /// let limiter = KeyedRateLimiter::<str>::with_rules(rules, 100_000, clock)?;
    /// assert!(limiter.try_acquire("alice"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LimiterError`] for rules that only the engine can serve, and unless there are 1 to 8 of them, each with a name
    /// of its own.
    pub fn with_rules<'n>(
        rules: impl IntoIterator<Item = (&'n str, Rule)>,
        keys_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LimiterError> {
        let rules = rules.into_iter().map(|(name, rule)| NamedRule::new(name, rule));
        Self::of(RuleSet::new(rules.collect())?, keys_max, clock)
    }

    fn of(rules: RuleSet, keys_max: usize, clock: Arc<dyn Clock>) -> Result<Self, LimiterError> {
        for named in rules.rules() {
            if named.rule.holds_permits() {
                return Err(LimiterError::Permits);
            }
            if named.rule.calendar().is_some() {
                return Err(LimiterError::Calendar);
            }
        }
        let (rules, store) = (Arc::new(rules), MemoryStore::new(keys_max));
        Ok(Self { rules, store, lines: KeyLines::default(), clock, keys: PhantomData })
    }

    /// Takes `cost` of the budget of `key`, or refuses.
    pub fn check(&self, key: &K, cost: Cost) -> Decision {
        self.verdict(key, &Verb::Check { cost }).decision
    }

    /// Takes one permit of `key`, if it may pass now; returns whether it did.
    pub fn try_acquire(&self, key: &K) -> bool {
        self.check(key, Cost::ONE).allowed()
    }

    /// Takes `cost` of the budget of `key`, if need be by booking the future: an allowed decision
    /// then contains the wait before going on. Algorithms that cannot book answer like a check.
    pub fn reserve(&self, key: &K, cost: Cost, max_wait: impl Into<Micros>) -> Decision {
        self.verdict(key, &Verb::Reserve { cost, max_wait: max_wait.into() }).decision
    }

    /// Returns the answer that a check would get; changes nothing.
    pub fn peek(&self, key: &K, cost: Cost) -> Decision {
        self.verdict(key, &Verb::Peek { cost }).decision
    }

    /// Gives `cost` back to the budget of `key`, never above full.
    pub fn refund(&self, key: &K, cost: Cost) -> Decision {
        self.verdict(key, &Verb::Refund { cost }).decision
    }

    /// Forgets the usage of `key`.
    pub fn reset(&self, key: &K) -> Decision {
        self.verdict(key, &Verb::Reset).decision
    }

    /// The rules of every key.
    #[doc(hidden)]
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    #[cfg(feature = "tower")]
    pub(crate) const fn shared_rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    /// Number of keys that are remembered now.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Returns whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Number of callers that wait, for all keys together.
    pub fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// Decides a verb that every rule supports; the verdict names the deciding rule.
    pub(crate) fn verdict(&self, key: &K, verb: &Verb) -> Verdict {
        let (key, now) = (self.store.hash_of(key), self.clock.now());
        if let Some(refused) = self.refused_behind_line(key, verb, now) {
            return refused;
        }
        let verdict = self.decide(key, verb, now);
        if matches!(verb, Verb::Refund { .. } | Verb::Reset) {
            self.lines.call_first(key);
        }
        verdict
    }

    /// Returns the refusal of a caller that has not waited, while others wait for `key`: not before the first of them.
    fn refused_behind_line(&self, key: KeyHash, verb: &Verb, now: Micros) -> Option<Verdict> {
        let (Verb::Check { cost } | Verb::Reserve { cost, .. } | Verb::Peek { cost }) = *verb
        else {
            return None;
        };
        let first = self.lines.first_cost(key)?;
        let peek = |cost| self.decide(key, &Verb::Peek { cost }, now);
        let soonest = Retry::After(Micros::new(1));
        let retry_of = |verdict: &Verdict| match verdict.decision.outcome {
            Outcome::Deny { retry } => retry.max(soonest),
            Outcome::Allow { wait, .. } => Retry::After(wait).max(soonest),
        };
        let (own, first) = (peek(cost), peek(first));
        let retry = match (retry_of(&own), retry_of(&first)) {
            // A first in line that can never pass is about to leave.
            (own, Retry::Never) => own,
            (own, first) => own.max(first),
        };
        let decision = Decision { outcome: Outcome::Deny { retry }, ..own.decision };
        Some(Verdict { decision, ..own })
    }

    fn decide(&self, key: KeyHash, verb: &Verb, now: Micros) -> Verdict {
        let verdict = self.store.decide_hashed(key, &self.rules, verb, &Moment::new(now));
        verdict.expect("the constructor refused rules that do not know these verbs")
    }
}

impl<K: ?Sized> fmt::Debug for KeyedRateLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rules, store, lines, clock, keys: _ } = self;
        f.debug_struct("KeyedRateLimiter")
            .field("rules", rules)
            .field("keys", &store.len())
            .field("waiting", &lines.waiting())
            .field("clock", clock)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::algorithm::{CalendarUnit, WindowKind};
    use sluicegate_kernel::{Concurrency, FixedWindow, Rate, TokenBucket};

    use super::*;
    use crate::clock::ManualClock;

    fn limiter(rules: &[(&str, Rule)]) -> Result<KeyedRateLimiter<str>, LimiterError> {
        let rules = rules.iter().map(|(name, rule)| (*name, rule.clone()));
        KeyedRateLimiter::with_rules(rules, 100, Arc::new(ManualClock::default()))
    }

    fn bucket(burst: u64) -> Rule {
        let rate = Rate::per_minute(1).expect("a rate");
        TokenBucket::new(rate, burst).expect("a bucket").into()
    }

    #[test]
    fn all_rules_of_a_key_must_agree() {
        let limiter = limiter(&[("narrow", bucket(1)), ("wide", bucket(2))]).expect("two names");
        let passed = ["a", "a", "b"].map(|key| limiter.try_acquire(key));
        assert_eq!(passed, [true, false, true]);
    }

    #[test]
    fn rules_that_cannot_be_served_are_named() {
        let problem = |rules: &[(&str, Rule)]| match limiter(rules) {
            Ok(limiter) => panic!("{limiter:?} serves them"),
            Err(error) => error.to_string(),
        };
        let twice = [("one", bucket(1)), ("one", bucket(2))];
        assert_eq!(problem(&twice), "rules: two rules are named `one`");
        assert_eq!(problem(&[]), "rules: 0 rules, expected 1 to 8");
        let permits = Concurrency::new(1, Micros::SECOND, 0).expect("permits").into();
        assert_eq!(
            problem(&[("held", permits)]),
            "rule: `concurrency` is not supported; use `ConcurrencyLimiter`, or the engine for keys"
        );
        let month = WindowKind::Calendar(CalendarUnit::Month, "UTC".into());
        let quota = FixedWindow::new(1, month).expect("a quota").into();
        assert_eq!(
            problem(&[("quota", quota)]),
            "rule: a calendar window needs a policy; use the engine"
        );
    }
}
