//! What every wire asks: the engine, and what is noted of its answers.

use std::sync::Arc;

use sluicegate::{DecideError, Engine, Passage, Request};

use crate::store::AnyStore;
use crate::wire::Wire;

/// The one way from a wire to a decision.
#[derive(Debug)]
pub(crate) struct Gate {
    engine: Arc<Engine<AnyStore>>,
}

impl Gate {
    /// The gate to `engine`.
    pub(crate) fn new(engine: Engine<AnyStore>) -> Self {
        Self { engine: Arc::new(engine) }
    }

    /// Decides `request`, which came over `wire`, and does what its policy says of traffic over the
    /// limit. It may be held back here; dropping the future frees its place.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub(crate) async fn pass(
        &self,
        _wire: Wire,
        request: &Request<'_>,
    ) -> Result<Passage, DecideError> {
        self.engine.pass(request).await
    }

    /// The engine behind it.
    pub(crate) const fn engine(&self) -> &Arc<Engine<AnyStore>> {
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
