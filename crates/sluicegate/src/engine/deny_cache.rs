//! A cache of refusals: until the end that the store gave them, they are repeated here without a question.
//!
//! **Why that is exact**: usage falls only by flowing out, so before `retry_after` has
//! passed the same request cannot pass, whatever others ask in the meantime. Only a refund, a reset or
//! another version of the policy can let it pass earlier: one that goes through this engine drops
//! the entry, and one that goes through another is noticed after [`REMEMBERED_MAX`], by the first request
//! that asks again and passes.
//!
//! The time begins when the question was sent, before the store worked out the answer, so it never
//! ends later than the store's own.
//!
//! For a hot key that is refused for long, one request at a time asks the store: when [`REMEMBERED_MAX`] has
//! passed, the next one asks, and those that come meanwhile get the known refusal.

use std::sync::Arc;

use quick_cache::sync::Cache;
use sluicegate_kernel::{Micros, Outcome, Retry, RuleSet, Verb, Verdict};
use sluicegate_store::{KeyHash, StoreRequest};

/// Most refusals that are remembered: some 200 bytes each. A key that falls out costs a question.
const DENIALS_MAX: usize = 100_000;

/// Longest time for which a refusal is remembered: by then a refund elsewhere is noticed.
const REMEMBERED_MAX: Micros = Micros::SECOND;

/// Time for which others get the known refusal while one request asks the store again: some deadlines.
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
    /// The instant at which the store was asked.
    at: Micros,
    /// The instant until which it is not asked again.
    until: Micros,
    verdict: Verdict,
}

impl DenyCache {
    pub(super) fn new() -> Self {
        Self { entries: Cache::new(DENIALS_MAX) }
    }

    /// The refusal of `request` at `now`, if it is known and need not be checked again.
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

    /// Returns what [`find`](Self::find) does. If the refusal has to be checked again, returns `None`, so that
    /// the caller asks the store, and others get the known refusal for [`ASKING_MAX`].
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

    /// The last known refusal, if it still holds for `request` at `now`.
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

    /// Records the store's verdict on `request`, asked at `at`.
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
            // A caller elsewhere has given permits back: it is not refused any more.
            Verb::Check { .. } if self.holding(key, request, at).is_some() => self.forget(key),
            Verb::Refund { .. } | Verb::Reset => self.forget(key),
            _ => {}
        }
    }

    /// Forgets the refusal: the next request of this key asks the store.
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
