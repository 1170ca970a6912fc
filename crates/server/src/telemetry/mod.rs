//! The telemetry of a server: counts, the keys that are refused most, decisions as they are made.
//!
//! ```text
//! wire ─▶ ServerEngine ─▶ Telemetry::observe ─┬─▶ counts  (always; a scrape adds them up)
//!                                             │     └─▶ history (each second, where there is a catalog)
//!                                             ├─▶ top     (refusals only)
//!                                             └─▶ events  (while a client watches)
//! ```
//!
//! Observing a decision in memory must be cheap beside making it, so only one in [`SAMPLED`] is
//! timed there; asking another machine takes so long that every decision is timed.

mod counts;
mod events;
mod history;
mod keys;
mod top;

use std::cell::Cell;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sluicegate::policy::PolicySet;
use sluicegate::{Admission, DecideError, Disposition, Micros, Mode, Request};
use sluicegate_text::terminal::one_line;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use counts::DecisionSource;
#[cfg(test)]
use counts::Decisions;
pub(crate) use counts::POLICIES_COUNTED_MAX;
use counts::{CountedDecision, PermitResult, ServerCounters};
use events::{AskedFields, DecisionEvent, DecisionFields};
pub(crate) use events::{EventFilter, Events};
pub(crate) use history::{SECONDS, TrafficHistory};
pub(crate) use keys::KeyWriter;
pub(crate) use top::{SHOWN_MAX, Top};

use crate::config::KeyFormat;
use crate::log_pace::LogPace;
use crate::protocol::Wire;

/// Number of decisions in memory of which one is timed, a power of two: reading the clock twice costs
/// as much as half a decision.
const SAMPLED: u32 = 64;

/// Length of a span of refused keys: [`Telemetry::top`] looks back one to two spans.
pub(crate) const TURN: Duration = Duration::from_secs(300);

/// The telemetry of a server.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) counts: ServerCounters,
    events: Events,
    history: TrafficHistory,
    /// Number of decisions of which one is timed, less one: a mask of all lower bits.
    untimed: u32,
    connections: [Arc<Connections>; Wire::ALL.len()],
    /// Number of policies that were not decided because too many guard one request.
    left_out: AtomicU64,
    /// Requests for policies that do not exist or that their app may not use, of Redis clients and of gateways.
    unknown: [LogPace; 2],
}

/// Counts of the connections of a wire.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    max: AtomicU64,
    accepted: AtomicU64,
    ended: AtomicU64,
}

/// A connection that is open.
#[derive(Debug)]
struct OpenConnection(Arc<Connections>);

/// The start of a decision, if it is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTimer(Option<Instant>);

/// One decision, as it is observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedDecision<'a> {
    pub(crate) wire: Wire,
    /// The time of the request, µs since the Unix epoch.
    pub(crate) now: Micros,
    pub(crate) request: &'a Request<'a>,
    pub(crate) decided: Result<&'a Admission, &'a DecideError>,
}

thread_local! {
    static TICKS: Cell<u32> = const { Cell::new(0) };
}

impl Telemetry {
    /// Creates the telemetry of decisions of `workers` by `policies`; on a store that is `far`, all are timed.
    pub(crate) fn new(
        workers: NonZeroU16,
        policies: &PolicySet,
        far: bool,
        keys: KeyFormat,
    ) -> Self {
        let keys = Arc::new(KeyWriter::new(keys));
        Self {
            counts: ServerCounters::new(workers, names(policies), Arc::clone(&keys)),
            events: Events::new(keys),
            history: TrafficHistory::default(),
            untimed: if far { 0 } else { SAMPLED - 1 },
            connections: Default::default(),
            left_out: AtomicU64::new(0),
            unknown: Default::default(),
        }
    }

    /// Counts `policies` from now on.
    pub(crate) fn follow(&self, policies: &PolicySet) {
        self.counts.follow(names(policies));
    }

    /// Starts the timer of a decision.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "a span is measured, nothing is decided by it")]
    pub(crate) fn begin(&self) -> DecisionTimer {
        let tick = TICKS.get();
        TICKS.set(tick.wrapping_add(1));
        DecisionTimer((tick & self.untimed == 0).then(Instant::now))
    }

    /// Records a decision that was made, or that could not be made.
    #[inline]
    pub(crate) fn observe(&self, observed: &ObservedDecision<'_>, begun: DecisionTimer) {
        let ObservedDecision { wire, request, .. } = *observed;
        if let DecisionTimer(Some(begun)) = begun {
            let held = observed.decided.map_or(Micros::ZERO, |admission| admission.held);
            self.counts.took(wire, begun.elapsed().saturating_sub(held.into()));
        }
        if self.events.are_watched() {
            self.publish(observed);
        }
        match observed.decided {
            Err(error) => {
                self.counts.failed(wire, observed.subject(), error);
                match error {
                    DecideError::UnknownPolicy(name) => {
                        self.log_not_decided(
                            wire,
                            format_args!("unknown policy `{}`", one_line(name)),
                        );
                    }
                    DecideError::Unconfigured { policy, app } => {
                        let app = app.as_deref().map(one_line);
                        let app = app.map_or("no app".to_owned(), |app| format!("app `{app}`"));
                        self.log_not_decided(
                            wire,
                            format_args!("policy `{policy}` by {app}, which may not use it"),
                        );
                    }
                    _ => {}
                }
            }
            Ok(_) if self.counts.operated(wire, &request.verb) => {}
            Ok(Admission { answer, way, held }) => {
                let fate = fate(way, *held);
                // Some permits may have been granted of a cost that is over the limit. An overload says nothing about
                // a key.
                let is_over = *way != Disposition::Allowed && answer.mode != Mode::Shed;
                let refused = is_over.then_some(request.key);
                self.counts.decided(CountedDecision {
                    wire,
                    subject: observed.subject(),
                    fate,
                    mode: answer.mode,
                    refused_key: refused,
                });
            }
        }
    }

    /// Logs a request for a policy that does not exist, or that its app may not use. Gateways and most Redis clients
    /// let such requests pass without an error; over HTTP the answer is an error.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    fn log_not_decided(&self, wire: Wire, of: std::fmt::Arguments<'_>) {
        let pace = match wire {
            Wire::Resp => &self.unknown[0],
            Wire::Rls => &self.unknown[1],
            Wire::Http | Wire::Admin | Wire::Catalog | Wire::Metrics => return,
        };
        let Some(count) = pace.count(Instant::now()) else { return };
        tracing::warn!(
            "{wire}: request for {of}, not decided ({count} such requests since the last line)"
        );
    }

    #[cold]
    fn publish(&self, observed: &ObservedDecision<'_>) {
        let ObservedDecision { wire, now, request, decided } = *observed;
        let policy = observed.subject().name();
        let result =
            decided.map_or("error", |admission| result_name(&admission.way, admission.held));
        let decision = decided.ok().map(|Admission { answer, way: _, held }| DecisionFields {
            mode: answer.mode.name(),
            rule: answer.rule(),
            limit: answer.decision.limit,
            remaining: answer.decision.remaining,
            retry_after_us: answer.decision.retry_after().map(Micros::get),
            held_us: held.get(),
        });
        let fields = AskedFields::of(request);
        let event = DecisionEvent {
            at_us: now.get(),
            wire: wire.name(),
            policy,
            request: fields,
            result,
            decision,
        };
        self.events.publish(&event, request.key);
    }

    /// The keys of `policy` that were refused most; `None` if nothing is counted under this name.
    pub(crate) fn top(&self, policy: &str, count: usize) -> Option<Vec<Top>> {
        Some(self.counts.of(policy)?.tops.list(count))
    }

    /// The form in which operators see `key`.
    pub(crate) fn shown_key(&self, key: &[u8]) -> String {
        self.events.shown_key(key)
    }

    /// Ends spans of refused keys at intervals, until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        while timeout(TURN, stop.cancelled()).await.is_err() {
            self.counts.turn();
        }
    }

    /// The events of decisions as they are made.
    pub(crate) const fn events(&self) -> &Events {
        &self.events
    }

    /// Records the decisions until `until_ms` since 1970 in the history.
    pub(crate) fn record_second(&self, until_ms: i64) {
        self.history.record(until_ms, &self.counts.totals());
    }

    /// The history of decisions.
    pub(crate) const fn history(&self) -> &TrafficHistory {
        &self.history
    }

    /// The number of decisions that were made without the store so far.
    pub(crate) fn decided_without_store(&self) -> u64 {
        self.counts.without_store()
    }

    /// Counts policies that are not decided because too many guard one request.
    pub(crate) fn leave_out(&self, policies: usize) {
        self.left_out.fetch_add(policies as u64, Relaxed);
    }

    /// The number of policies that were left out.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// The connections of `wire`.
    pub(crate) const fn connections(&self, wire: Wire) -> &Arc<Connections> {
        &self.connections[wire as usize]
    }
}

impl<'a> ObservedDecision<'a> {
    fn subject(&self) -> DecisionSource<'a> {
        DecisionSource::of(self.request, self.decided.err())
    }
}

impl Connections {
    /// Raises the maximum number of connections by `more`: another address listens.
    pub(crate) fn permit(&self, more: usize) {
        self.max.fetch_add(more as u64, Relaxed);
    }

    /// The maximum number of open connections.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The number of connections that were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> u64 {
        let ended = self.ended.load(Relaxed);
        self.accepted().saturating_sub(ended)
    }

    /// Counts an accepted connection as open, until `serving` it ends.
    pub(crate) fn during<F: Future>(
        self: &Arc<Self>,
        serving: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        self.accepted.fetch_add(1, Relaxed);
        let open = OpenConnection(Arc::clone(self));
        async move {
            let _open = open;
            serving.await
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Relaxed);
    }
}

fn names(policies: &PolicySet) -> impl Iterator<Item = &str> {
    policies.policies().iter().map(|policy| policy.name())
}

/// The result of a request, as metrics and events name it.
pub(crate) fn result_name(way: &Disposition, held: Micros) -> &'static str {
    fate(way, held).name()
}

fn fate(way: &Disposition, held: Micros) -> PermitResult {
    match way {
        Disposition::Allowed if held > Micros::ZERO => PermitResult::Held,
        Disposition::Allowed => PermitResult::Allowed,
        Disposition::Refused => PermitResult::Refused,
        Disposition::Degraded(_) => PermitResult::Degraded,
        Disposition::Diverted(_) => PermitResult::Diverted,
        Disposition::Shadowed => PermitResult::Shadowed,
    }
}

#[cfg(test)]
mod tests;
