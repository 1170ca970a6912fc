//! Refusals that need no question: what the store refused until then is refused here until then.
//!
//! **Why that is exact**: what is in use falls only by flowing out, so before `retry_after` has
//! passed the same request cannot pass, whoever else asks in the meantime. Only a refund, a reset or
//! another version of the policy can let it pass earlier: one that goes through this engine drops
//! the entry, and one that goes through another is noticed after [`REMEMBERED_MAX`], by the first request
//! that asks again and passes.
//!
//! The span begins when the question was sent, before the store worked out the answer, so it never
//! ends later than the store's own.
//!
//! A hot key that is refused for long is asked for by one caller at a time: when [`REMEMBERED_MAX`] has
//! passed, the next one asks, and those that come meanwhile get the known refusal.

use std::sync::Arc;

use quick_cache::sync::Cache;
use sluicegate_kernel::{Micros, Outcome, Retry, RuleSet, Verb, Verdict};
use sluicegate_store::{KeyHash, StoreRequest};

/// Refusals that are remembered at most: some 200 bytes each. A key that falls out costs a question.
const DENIALS_MAX: usize = 100_000;

/// How long a refusal is remembered at most: by then a refund elsewhere is noticed.
const REMEMBERED_MAX: Micros = Micros::SECOND;

/// How long others get the known refusal while one request asks the store again: some deadlines.
const ASKING_MAX: Micros = Micros::from_millis(50);

/// The refusals that are remembered.
#[derive(Debug)]
pub(super) struct DenyCache {
    entries: Cache<KeyHash, CachedDenial>,
}

#[derive(Clone, Debug)]
struct CachedDenial {
    rules: Arc<RuleSet>,
    cost: u64,
    /// When the store was asked.
    at: Micros,
    /// Until when it is not asked again.
    until: Micros,
    verdict: Verdict,
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self { entries: Cache::new(DENIALS_MAX) }
    }

    /// The refusal of `request` at `now`, if it is known already.
    pub(super) fn find(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        now: Micros,
    ) -> Option<Verdict> {
        self.holding(key, request, now)
            .filter(|denial| now < denial.until)
            .map(|it| it.verdict_at(now))
    }

    /// The same; without one the caller asks, and others do not for a while.
    pub(super) fn find_or_ask(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        now: Micros,
    ) -> Option<Verdict> {
        let denial = self.holding(key, request, now)?;
        if now < denial.until {
            return Some(denial.verdict_at(now));
        }
        self.entries.insert(key, CachedDenial { until: now.plus(ASKING_MAX), ..denial });
        None
    }

    /// What refuses `request` at `now` by what was last heard, if anything does.
    fn holding(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        now: Micros,
    ) -> Option<CachedDenial> {
        let Verb::Check { cost } = request.verb else { return None };
        let denial = self.entries.get(&key)?;
        let CachedDenial { ref rules, cost: refused, at, ref verdict, .. } = denial;
        let is_same = refused == cost.get() && Arc::ptr_eq(rules, request.rules) && at <= now;
        let retry = verdict.decision.retry_after();
        let holds = is_same && retry.is_none_or(|retry| now.since(at) < retry);
        holds.then_some(denial)
    }

    /// Takes note of what the store said to `request`, asked at `at`.
    pub(super) fn insert(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        at: Micros,
        verdict: &Verdict,
    ) {
        match request.verb {
            Verb::Check { cost } if matches!(verdict.decision.outcome, Outcome::Deny { .. }) => {
                let (rules, until) = (Arc::clone(request.rules), at.plus(REMEMBERED_MAX));
                let denial = CachedDenial { rules, cost: cost.get(), at, until, verdict: *verdict };
                self.entries.insert(key, denial);
            }
            // Somebody elsewhere has given permits back: it is not refused any more.
            Verb::Check { .. } if self.holding(key, request, at).is_some() => self.forget(key),
            Verb::Refund { .. } | Verb::Reset => self.forget(key),
            _ => {}
        }
    }

    /// The next request of this key asks the store.
    pub(super) fn forget(&self, key: KeyHash) {
        self.entries.remove(&key);
    }
}

impl CachedDenial {
    /// The refusal as it is at `now`.
    fn verdict_at(self, now: Micros) -> Verdict {
        let (elapsed, mut verdict) = (now.since(self.at), self.verdict);
        if let Outcome::Deny { retry: Retry::After(retry) } = &mut verdict.decision.outcome {
            *retry = retry.since(elapsed);
        }
        verdict.decision.reset_after = verdict.decision.reset_after.since(elapsed);
        verdict
    }
}
