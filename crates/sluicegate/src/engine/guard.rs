//! A store that may not answer, and what surrounds it.
//!
//! ```text
//! request ─▶ refused already? ─▶ breaker ─▶ store ─▶ answer ─▶ noted: refusals, usage
//!                  │                │          │
//!                  ▼                ▼          ▼ no answer
//!              `Mode::Remembered`   `on_store_failure` of the policy
//! ```

use sluicegate_kernel::{Moment, Verb, Verdict};
use sluicegate_policy::OnStoreFailure;
use sluicegate_store::{Executed, KeyHash, Request, Store, StoreError};

use super::breaker::Breaker;
use super::denials::Denials;
use super::fallback::{self, Share};
use super::{Mode, StoreFailure};

/// What an engine knows beside a store that may fail.
#[derive(Debug)]
pub(super) struct Guard {
    denials: Denials,
    breaker: Breaker,
    share: Share,
}

/// One request, as everybody around the store sees it.
#[derive(Clone, Copy)]
struct Question<'a> {
    key: KeyHash,
    request: &'a Request<'a>,
    /// `None`: then there is no decision.
    on_failure: Option<OnStoreFailure>,
    at: &'a Moment<'a>,
}

impl Guard {
    pub(super) fn new(failure: StoreFailure) -> Self {
        let StoreFailure { nodes, keys_max } = failure;
        let share = Share::new(nodes.get().into(), keys_max);
        Self { denials: Denials::new(), breaker: Breaker::default(), share }
    }

    /// Decides `request` on `store`, or as `on_failure` says, if it says anything.
    pub(super) async fn decide(
        &self,
        store: &impl Store,
        on_failure: Option<OnStoreFailure>,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Result<(Verdict, Mode), StoreError> {
        let (key, now) = (self.share.hash(request), at.now());
        if let Some(verdict) = self.denials.find(key, request, now) {
            return Ok((verdict, Mode::Remembered));
        }
        let question = Question { key, request, on_failure, at };
        if !self.breaker.lets_pass(now) {
            return self.without_store(question, given_up());
        }
        match store.decide(request, at).await {
            Ok(verdict) => {
                self.breaker.answered(now);
                self.denials.note(key, request, now, &verdict);
                self.share.learn(key, request, &verdict, at);
                Ok((verdict, Mode::Store))
            }
            Err(error @ StoreError::Unavailable { .. }) => {
                self.breaker.failed(now);
                self.without_store(question, error)
            }
            // It answers: that it came to no decision on this key is no reason to give it up.
            Err(error @ StoreError::Contended { .. }) => {
                self.breaker.answered(now);
                self.without_store(question, error)
            }
            Err(error) => {
                self.breaker.answered(now);
                Err(error)
            }
        }
    }

    /// Whether the store is given up for the moment.
    pub(super) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    fn without_store(
        &self,
        question: Question<'_>,
        error: StoreError,
    ) -> Result<(Verdict, Mode), StoreError> {
        let Question { key, request, on_failure, at } = question;
        if changes_the_past(request.verb) {
            // Whoever gives something back must know that nobody took it.
            self.denials.forget(key);
            return Err(error);
        }
        let Some(on_failure) = on_failure else { return Err(error) };
        Ok(match on_failure {
            OnStoreFailure::Local => (self.share.decide(key, request, at)?, Mode::Local),
            OnStoreFailure::Allow => (fallback::allowed(request), Mode::Allow),
            OnStoreFailure::Deny => (fallback::refused(request), Mode::Deny),
        })
    }
}

fn given_up() -> StoreError {
    let reason = "it does not answer; it is asked again in a moment".to_owned();
    StoreError::Unavailable { reason, executed: Executed::No }
}

/// Whether `verb` is about what the store granted before, so that nobody else can answer it.
fn changes_the_past(verb: &Verb) -> bool {
    matches!(verb, Verb::Refund { .. } | Verb::Reset | Verb::Release { .. } | Verb::Renew { .. })
}
