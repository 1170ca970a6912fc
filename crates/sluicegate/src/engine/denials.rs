//! Refusals that need no question: what the store refused until then is refused here until then.
//!
//! **Why that is exact**: what is in use falls only by flowing out, so before `retry_after` has
//! passed the same request cannot pass, whoever else asks in the meantime. Only a refund, a reset or
//! another version of the policy can let it pass earlier: one that goes through this engine drops
//! the entry, and one that goes through another is noticed after [`REMEMBERED_MAX`].
//!
//! The span begins when the question was sent, before the store worked out the answer, so it never
//! ends later than the store's own.

use std::sync::Arc;

use quick_cache::sync::Cache;
use sluicegate_kernel::{Micros, Outcome, Retry, RuleSet, Verb, Verdict};
use sluicegate_store::{KeyHash, Request};

/// Refusals that are remembered at most: some 200 bytes each. A key that falls out costs a question.
const DENIALS_MAX: usize = 100_000;

/// How long a refusal is remembered at most: by then a refund elsewhere is noticed.
const REMEMBERED_MAX: Micros = Micros::SECOND;

/// The refusals that are remembered.
#[derive(Debug)]
pub(super) struct Denials {
    entries: Cache<KeyHash, Denial>,
}

#[derive(Clone, Debug)]
struct Denial {
    rules: Arc<RuleSet>,
    cost: u64,
    /// When the store was asked.
    at: Micros,
    verdict: Verdict,
}

impl Denials {
    pub(super) fn new() -> Self {
        Self { entries: Cache::new(DENIALS_MAX) }
    }

    /// The refusal of `request` at `now`, if it is known already.
    pub(super) fn find(&self, key: KeyHash, request: &Request<'_>, now: Micros) -> Option<Verdict> {
        let Verb::Check { cost } = request.verb else { return None };
        let Denial { rules, cost: refused, at, verdict } = self.entries.get(&key)?;
        let elapsed = now.since(at);
        let same = refused == cost.get() && Arc::ptr_eq(&rules, request.rules) && at <= now;
        if !same || elapsed >= span(&verdict)? {
            return None;
        }
        let mut verdict = verdict;
        if let Outcome::Deny { retry: Retry::After(retry) } = &mut verdict.decision.outcome {
            *retry = retry.since(elapsed);
        }
        verdict.decision.reset_after = verdict.decision.reset_after.since(elapsed);
        Some(verdict)
    }

    /// Takes note of what the store said to `request`, asked at `at`.
    pub(super) fn note(&self, key: KeyHash, request: &Request<'_>, at: Micros, verdict: &Verdict) {
        match request.verb {
            Verb::Check { cost } if span(verdict).is_some() => {
                let rules = Arc::clone(request.rules);
                let denial = Denial { rules, cost: cost.get(), at, verdict: *verdict };
                self.entries.insert(key, denial);
            }
            Verb::Refund { .. } | Verb::Reset => self.forget(key),
            _ => {}
        }
    }

    /// The next request of this key asks the store.
    pub(super) fn forget(&self, key: KeyHash) {
        self.entries.remove(&key);
    }
}

/// How long after the question `verdict` holds; `None` if it is no refusal.
fn span(verdict: &Verdict) -> Option<Micros> {
    match verdict.decision.outcome {
        Outcome::Deny { retry: Retry::After(retry) } => Some(retry.min(REMEMBERED_MAX)),
        Outcome::Deny { retry: Retry::Never } => Some(REMEMBERED_MAX),
        Outcome::Allow { .. } => None,
    }
}
