//! What every wire asks: the engine, and what is noted of its answers.

use std::sync::Arc;

use sluicegate::policy::Rules;
use sluicegate::store::Store;
use sluicegate::{DecideError, Engine, Micros, Passage, Request};

use crate::store::AnyStore;
use crate::wire::Wire;

/// The one way from a wire to a decision.
///
/// What is asked is decided by the policy that it names, or by `rules` that the caller brings along;
/// under those nothing follows from a refusal. A check may be held back here, and dropping the future
/// frees its place.
#[derive(Debug)]
pub(crate) struct Gate<S = AnyStore> {
    engine: Arc<Engine<S>>,
}

impl<S: Store + 'static> Gate<S> {
    /// The gate to `engine`.
    pub(crate) fn new(engine: Engine<S>) -> Self {
        Self { engine: Arc::new(engine) }
    }

    /// Decides `request`, which came over `wire`, and does what its policy says of traffic over the
    /// limit.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub(crate) async fn pass(
        &self,
        wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
    ) -> Result<Passage, DecideError> {
        let now = self.engine.now();
        match self.pass_at_once(wire, rules, request, now) {
            Some(passed) => passed,
            None => self.pass_in_time(wire, rules, request, now).await,
        }
    }

    /// The same for a request that came in at `now`, if nobody has to be waited for; otherwise
    /// `None`, and nothing was done.
    #[inline]
    pub(crate) fn pass_at_once(
        &self,
        _wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
        now: Micros,
    ) -> Option<Result<Passage, DecideError>> {
        match rules {
            None => self.engine.pass_at_once(request, now),
            Some(rules) => {
                Some(self.engine.decide_by_at_once(rules, request, now)?.map(Passage::from))
            }
        }
    }

    /// The same for one that was not passed at once.
    pub(crate) async fn pass_in_time(
        &self,
        _wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        match rules {
            None => self.engine.pass_as_of(request, now).await,
            Some(rules) => self.engine.decide_by(rules, request, now).await.map(Passage::from),
        }
    }

    /// The engine behind it.
    pub(crate) const fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }
}

#[cfg(test)]
impl Gate {
    /// A gate to these policies, with state in memory.
    pub(crate) fn in_memory(policies: sluicegate::policy::PolicySet) -> Arc<Self> {
        let store = AnyStore::Memory(Arc::default());
        Arc::new(Self::new(Engine::new(policies, store, Arc::new(sluicegate::WallClock))))
    }
}
