//! The engine of all wires, and the observer that counts and traces its decisions.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use sluicegate::internals::store::Store;
use sluicegate::internals::{ObservedRequest, Observer};
use sluicegate::policy::PolicySet;
use sluicegate::{Admission, DecideError, Engine, Micros, Request, Turn};
use sluicegate_policy::{Policy, nearest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::protocol::Wire;
use crate::store::AnyStore;
use crate::telemetry::{DecisionTimer, ObservedDecision, Telemetry};
use crate::trace::{Parent, Traces};

/// Interval between payments of debts, so that keys without further requests are paid too: short
/// enough that other servers hardly pass more than the limit meanwhile.
const DEBTS_EVERY: Duration = Duration::from_millis(100);

/// Longest wait of a stopping server for the next payment of what it owes.
const LAST_PAYMENT_MAX: Duration = Duration::from_secs(1);

/// Longest time for all of these payments: enough for some 100,000 keys, and less than the 30 s after which
/// Kubernetes kills.
const LAST_PAYMENTS_MAX: Duration = Duration::from_secs(10);

/// Maximum number of policies that an unknown name is compared with: a mistake of a caller costs some 0.2 ms.
const NEAR_POLICIES_MAX: usize = 100;

/// The engine of all wires, with the telemetry of its decisions.
#[derive(Debug)]
pub(crate) struct ServerEngine<S = AnyStore> {
    engine: Arc<Engine<S, EngineObserver>>,
}

/// Counts and traces decisions.
#[derive(Debug)]
pub(crate) struct EngineObserver {
    telemetry: Telemetry,
    traces: Option<Traces>,
}

impl<S: Store + 'static> ServerEngine<S> {
    /// Creates the engine of the wires: `telemetry` counts its decisions and `traces` records them.
    pub(crate) fn watched(engine: Engine<S>, telemetry: Telemetry, traces: Option<Traces>) -> Self {
        Self { engine: Arc::new(engine.observed_by(EngineObserver { telemetry, traces })) }
    }

    /// Returns the name of a policy that is most like `name`, of those for which `shown` is true.
    pub(crate) fn near_policy(
        &self,
        name: &str,
        shown: impl Fn(&Policy) -> bool,
    ) -> Option<String> {
        let policies = self.engine.policies();
        let known = policies.policies().iter().take(NEAR_POLICIES_MAX);
        let known = known.filter(|policy| shown(policy)).map(|policy| policy.name());
        nearest(name, known).map(str::to_owned)
    }

    /// Begins a turn for requests that came in now over `wire`.
    pub(crate) fn turn(&self, wire: Wire) -> Turn<'_, S, EngineObserver> {
        self.engine.turn_for(wire)
    }

    /// Begins a turn for requests that came in at `now` over `wire`.
    #[inline]
    pub(crate) fn turn_at(&self, wire: Wire, now: Micros) -> Turn<'_, S, EngineObserver> {
        self.engine.turn_for_at(wire, now)
    }

    /// The trace that a caller names in `headers`.
    pub(crate) fn parent(&self, headers: &HeaderMap) -> Parent {
        Traces::parent(self.traces(), headers)
    }

    /// The traces of decisions, if there is a collector.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.engine.observer().traces.as_ref()
    }

    /// Pays debts to the store, and runs the telemetry ([`Telemetry::run`]), until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        let paying = async {
            while self.engine.has_fallback()
                && timeout(DEBTS_EVERY, stop.cancelled()).await.is_err()
            {
                // Also while the store is given up: on a server without requests, only this finds out that
                // the store is back.
                let mut before = usize::MAX;
                while (1..before).contains(&self.engine.debts()) {
                    before = self.engine.debts();
                    self.engine.pay_debts().await;
                }
            }
        };
        let running = async { tokio::join!(paying, self.telemetry().run(stop)) };
        tokio::select! {
            _ = running => {}
            () = self.engine.pass_calls() => {}
        }
    }

    /// Keeps the leases of hot keys, in a task that ends after [`return_leases`](Self::return_leases); at once
    /// where nothing can be leased.
    pub(crate) fn keep_leases(&self) -> JoinHandle<()> {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.keep_leases().await })
    }

    /// Gives back the leased permits, if the store answers within 250 ms: those of a server that just ends would
    /// count as used. `kept` is the task that keeps them.
    pub(crate) async fn return_leases(&self, kept: JoinHandle<()>) {
        self.engine.return_leases();
        if let Err(error) = kept.await {
            tracing::error!("leases: {error}");
        }
    }

    /// Pays what this server still owes the store, for at most 10 s and until the store has taken nothing for a
    /// second: a server that stops would forget it.
    pub(crate) async fn settle_debts(&self) {
        let begun = Instant::now();
        let (mut before, mut until) = (usize::MAX, begun + LAST_PAYMENT_MAX);
        // What is left is logged by the caller, which knows the store's name.
        while let Ok(left @ 1..) = timeout_at(until, self.engine.pay_debts()).await {
            let now = Instant::now();
            if left < before {
                until = (now + LAST_PAYMENT_MAX).min(begun + LAST_PAYMENTS_MAX);
            } else if now < until {
                sleep(DEBTS_EVERY / 10).await;
            } else {
                break;
            }
            before = left;
        }
    }

    /// Puts `policies` in force from the next request on.
    pub(crate) fn set_policies(&self, policies: PolicySet) {
        self.telemetry().follow(&policies);
        self.engine.set_policies(policies);
    }

    /// The telemetry of the decisions.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.engine.observer().telemetry
    }

    /// The engine of the library, which does not depend on wires.
    pub(crate) const fn core(&self) -> &Arc<Engine<S, EngineObserver>> {
        &self.engine
    }
}

impl Observer for EngineObserver {
    type Label = Wire;
    type Begun = DecisionTimer;

    #[inline]
    fn begin(&self) -> DecisionTimer {
        self.telemetry.begin()
    }

    #[inline]
    fn observe(
        &self,
        wire: Wire,
        ObservedRequest { now, request }: ObservedRequest<'_>,
        decided: Result<&Admission, &DecideError>,
        begun: DecisionTimer,
    ) {
        self.telemetry.observe(&ObservedDecision { wire, now, request, decided }, begun);
    }

    #[inline]
    fn wraps_decisions(&self) -> bool {
        self.traces.is_some()
    }

    async fn wrap(
        &self,
        wire: Wire,
        request: &Request<'_>,
        deciding: impl Future<Output = Result<Admission, DecideError>> + Send,
    ) -> Result<Admission, DecideError> {
        match &self.traces {
            None => deciding.await,
            Some(traces) => traces.decision(wire, request, deciding).await,
        }
    }
}

#[cfg(test)]
impl<S: Store + 'static> ServerEngine<S> {
    /// `engine`, with telemetry of its own.
    pub(crate) fn new(engine: Engine<S>) -> Self {
        let policies = engine.policies();
        let telemetry =
            Telemetry::new(std::num::NonZeroU16::MIN, &policies, false, Default::default());
        Self::watched(engine, telemetry, None)
    }
}

#[cfg(test)]
impl ServerEngine {
    /// An engine of these policies, with state in memory.
    pub(crate) fn in_memory(policies: PolicySet) -> Arc<Self> {
        Arc::new(Self::new(engine_in_memory(policies)))
    }

    /// Returns an engine like [`in_memory`](Self::in_memory), whose decisions `telemetry` counts.
    pub(crate) fn in_memory_seen_by(policies: PolicySet, telemetry: Telemetry) -> Arc<Self> {
        Arc::new(Self::watched(engine_in_memory(policies), telemetry, None))
    }
}

#[cfg(test)]
fn engine_in_memory(policies: PolicySet) -> Engine<AnyStore> {
    let store = AnyStore::Memory(Arc::default());
    Engine::new(policies, store, Arc::new(sluicegate::internals::WallClock))
}
