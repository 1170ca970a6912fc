//! What operators see of a server: counts, the keys that are refused most, decisions as they are made.
//!
//! ```text
//! wire ─▶ ServerEngine ─▶ decision ─▶ Telemetry::see ─┬─▶ counts  (always; a scrape adds them up)
//!                                        │     └─▶ history (each second, where there is a catalog)
//!                                        ├─▶ top     (refusals only)
//!                                        └─▶ events  (while somebody watches)
//! ```
//!
//! Seeing a decision in memory must be cheap beside making it, so the time is only taken of one in
//! [`SAMPLED`] there; asking another machine takes so long that the time is always taken.

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
use counts::{Fate, ServerCounters};
use events::{AskedFields, DecisionEvent, DecisionFields};
pub(crate) use events::{EventFilter, Events};
pub(crate) use history::{SECONDS, TrafficHistory};
pub(crate) use keys::KeyWriter;
pub(crate) use top::{SHOWN_MAX, Top};

use crate::config::KeyFormat;
use crate::log_pace::LogPace;
use crate::protocol::Wire;

/// Of so many decisions in memory one is timed, a power of two: reading the clock twice costs as much
/// as half of one.
const SAMPLED: u32 = 64;

/// How often refusals that are no news are forgotten: [`Telemetry::top`] looks back once to twice as far.
pub(crate) const TURN: Duration = Duration::from_secs(300);

/// What is seen of the decisions of a server.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) counts: ServerCounters,
    events: Events,
    history: TrafficHistory,
    /// Of how many decisions one is timed, less one: all bits of a number.
    untimed: u32,
    connections: [Arc<Connections>; Wire::ALL.len()],
    /// Policies that were not decided because too many guard one request.
    left_out: AtomicU64,
    /// Requests for policies that do not exist or are not for their app, of Redis clients and of gateways.
    unknown: [LogPace; 2],
}

/// Connections of a wire, counted.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    max: AtomicU64,
    accepted: AtomicU64,
    ended: AtomicU64,
}

/// A connection that is open.
#[derive(Debug)]
struct OpenConnection(Arc<Connections>);

/// When a decision began, where it is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTimer(Option<Instant>);

/// What is seen of one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedDecision<'a> {
    pub(crate) wire: Wire,
    /// When it was asked, µs since the Unix epoch.
    pub(crate) now: Micros,
    pub(crate) request: &'a Request<'a>,
    pub(crate) decided: Result<&'a Admission, &'a DecideError>,
}

thread_local! {
    static TICKS: Cell<u32> = const { Cell::new(0) };
}

impl Telemetry {
    /// For the decisions of `workers` by `policies`; on a store that is `far`, all are timed.
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

    /// `policies` are in force from now on.
    pub(crate) fn follow(&self, policies: &PolicySet) {
        self.counts.follow(names(policies));
    }

    /// A decision begins.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "a span is measured, nothing is decided by it")]
    pub(crate) fn begin(&self) -> DecisionTimer {
        let tick = TICKS.get();
        TICKS.set(tick.wrapping_add(1));
        DecisionTimer((tick & self.untimed == 0).then(Instant::now))
    }

    /// A decision was made, or could not be.
    #[inline]
    pub(crate) fn observe(&self, seen: &ObservedDecision<'_>, begun: DecisionTimer) {
        let ObservedDecision { wire, request, .. } = *seen;
        if let DecisionTimer(Some(begun)) = begun {
            let held = seen.decided.map_or(Micros::ZERO, |admission| admission.held);
            self.counts.took(wire, begun.elapsed().saturating_sub(held.into()));
        }
        if self.events.are_watched() {
            self.publish(seen);
        }
        match seen.decided {
            Err(error) => {
                self.counts.failed(wire, seen.subject(), error);
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
                // Some may have been granted of what is over the limit as a whole. An overload says nothing of a key.
                let is_over = *way != Disposition::Allowed && answer.mode != Mode::Shed;
                let refused = is_over.then_some(request.key);
                self.counts.decided((wire, seen.subject()), fate, answer.mode, refused);
            }
        }
    }

    /// Logs a request for a policy that does not exist, or is not for its app. Gateways and most Redis clients let such
    /// requests pass, and say nothing of it; over HTTP the answer is an error.
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
    fn publish(&self, seen: &ObservedDecision<'_>) {
        let ObservedDecision { wire, now, request, decided } = *seen;
        let policy = seen.subject().name();
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
        let asked = AskedFields::of(request);
        let told =
            DecisionEvent { at_us: now.get(), wire: wire.name(), policy, asked, result, decision };
        self.events.publish(&told, request.key);
    }

    /// The keys of `policy` that were refused most; `None` if nothing is counted under this name.
    pub(crate) fn top(&self, policy: &str, count: usize) -> Option<Vec<Top>> {
        Some(self.counts.of(policy)?.tops.list(count))
    }

    /// What is shown of `key`.
    pub(crate) fn shown_key(&self, key: &[u8]) -> String {
        self.events.shown_key(key)
    }

    /// Forgets refusals that are no news, until `stop`.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        while timeout(TURN, stop.cancelled()).await.is_err() {
            self.counts.turn();
        }
    }

    /// Where decisions are told as they are made.
    pub(crate) const fn events(&self) -> &Events {
        &self.events
    }

    /// Counts what was decided until `until_ms` since 1970 in the history.
    pub(crate) fn record_second(&self, until_ms: i64) {
        self.history.record(until_ms, &self.counts.totals());
    }

    /// What was decided over time.
    pub(crate) const fn history(&self) -> &TrafficHistory {
        &self.history
    }

    /// Decisions that were made without the store so far.
    pub(crate) fn decided_without_store(&self) -> u64 {
        self.counts.without_store()
    }

    /// Counts policies that are not decided because too many guard one request.
    pub(crate) fn leave_out(&self, policies: usize) {
        self.left_out.fetch_add(policies as u64, Relaxed);
    }

    /// How many policies were left out.
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
    /// There may be so many more at a time: another address listens.
    pub(crate) fn permit(&self, more: usize) {
        self.max.fetch_add(more as u64, Relaxed);
    }

    /// How many there may be at a time.
    pub(crate) fn max(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// How many there were.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// How many there are.
    pub(crate) fn open(&self) -> u64 {
        let ended = self.ended.load(Relaxed);
        self.accepted().saturating_sub(ended)
    }

    /// `serving`, a connection that was accepted and is counted as open until it ends.
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

/// What became of a request, as metrics and events call it.
pub(crate) fn result_name(way: &Disposition, held: Micros) -> &'static str {
    fate(way, held).name()
}

fn fate(way: &Disposition, held: Micros) -> Fate {
    match way {
        Disposition::Allowed if held > Micros::ZERO => Fate::Held,
        Disposition::Allowed => Fate::Allowed,
        Disposition::Refused => Fate::Refused,
        Disposition::Degraded(_) => Fate::Degraded,
        Disposition::Diverted(_) => Fate::Diverted,
        Disposition::Shadowed => Fate::Shadowed,
    }
}

#[cfg(test)]
mod tests;
