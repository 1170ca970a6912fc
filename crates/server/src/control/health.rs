//! The state of this node, which it reports to the catalog and so to all nodes.

use sluicegate_control::catalog::{NodeReport, StoreReport};
use tokio_util::sync::CancellationToken;

use crate::engine::ServerEngine;
use crate::histogram::Spans;
use crate::protocol::Wire;
use crate::store::AnyStore;

/// Reports of this node's state.
pub(super) struct Health<'a> {
    engine: &'a ServerEngine,
    leaving: &'a CancellationToken,
    /// The last report: the node is ready, and it is without its store.
    reported: Option<(bool, bool)>,
    /// Durations of all decisions until that report.
    spans: Spans,
}

impl<'a> Health<'a> {
    /// Creates the reports of a node that gets no more traffic once `leaving` is cancelled.
    pub(super) fn new(engine: &'a ServerEngine, leaving: &'a CancellationToken) -> Self {
        Self { engine, leaving, reported: None, spans: Spans::default() }
    }

    /// Returns whether the state has changed since the last report.
    pub(super) fn has_changed(&self) -> bool {
        self.reported != Some(self.state())
    }

    /// Returns the present state, with the durations of decisions since the last report.
    pub(super) fn report(&mut self) -> NodeReport {
        let (ready, breaker_open) = self.state();
        self.reported = Some((ready, breaker_open));
        let mut spans = Spans::default();
        for wire in Wire::ALL {
            spans.add(&self.engine.telemetry().counts.latency(wire));
        }
        let recent = spans.since(&self.spans);
        self.spans = spans;
        let (kind, keys) = match self.engine.core().store() {
            AnyStore::Memory(store) => ("memory", u64::try_from(store.len()).ok()),
            AnyStore::Redis(_) => ("redis", None),
        };
        NodeReport {
            ready,
            mode: if breaker_open { "fallback" } else { "store" }.to_owned(),
            store: StoreReport {
                kind: kind.to_owned(),
                breaker_open,
                p50_us: recent.percentile_us(50),
                p99_us: recent.percentile_us(99),
            },
            keys,
            through: self.engine.telemetry().history().written(),
        }
    }

    /// Returns whether the node is ready, and whether it is without its store.
    fn state(&self) -> (bool, bool) {
        (!self.leaving.is_cancelled(), self.engine.core().is_without_store())
    }
}
