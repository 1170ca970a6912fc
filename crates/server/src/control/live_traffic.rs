//! What this node counts, for the admin API: buckets that are not in the catalog yet, and what happens now.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use sluicegate_control::traffic::{
    Bucket, EventFuture, LiveEvent, LiveStream, LiveTraffic, RefusedKey, Step, StreamFilter,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::engine::ServerEngine;
use crate::policies::PolicyManager;
use crate::telemetry::EventFilter;

/// What this node counts.
#[derive(Debug)]
pub(super) struct EngineTraffic {
    pub(super) node: String,
    pub(super) engine: Arc<ServerEngine>,
    pub(super) live: Arc<PolicyManager>,
    pub(super) stop: CancellationToken,
}

/// What somebody watches.
struct EngineStream {
    engine: Arc<ServerEngine>,
    policies: Vec<String>,
    seconds: watch::Receiver<Option<i64>>,
    /// Lines of `text/event-stream`.
    decisions: Option<Pin<Box<dyn Stream<Item = String> + Send>>>,
    stop: CancellationToken,
}

impl LiveTraffic for EngineTraffic {
    fn node(&self) -> &str {
        &self.node
    }

    fn revision(&self) -> i64 {
        self.live.status().catalog.map_or(0, |catalog| catalog.revision)
    }

    fn through(&self, step: Step) -> Option<i64> {
        self.engine.telemetry().history().through(step)
    }

    fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket> {
        self.engine.telemetry().history().buckets(step, since, known)
    }

    fn top(&self, policy: &str, count: usize) -> Option<Vec<RefusedKey>> {
        let top = self.engine.telemetry().top(policy, count)?;
        Some(top.into_iter().map(Into::into).collect())
    }

    fn watch(&self, filter: StreamFilter) -> Option<Box<dyn LiveStream>> {
        let StreamFilter { policies, tail, result } = filter;
        let telemetry = self.engine.telemetry();
        let decisions = match tail {
            None => None,
            Some(policy) => {
                let filter = EventFilter::new(policy, result);
                let decisions = telemetry.events().watch(filter, self.stop.clone())?;
                Some(Box::pin(decisions) as Pin<Box<dyn Stream<Item = String> + Send>>)
            }
        };
        if !telemetry.history().watch(&policies) {
            return None;
        }
        let (seconds, engine) = (telemetry.history().seconds(), Arc::clone(&self.engine));
        let stop = self.stop.clone();
        Some(Box::new(EngineStream { engine, policies, seconds, decisions, stop }))
    }
}

impl LiveStream for EngineStream {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(async {
            loop {
                tokio::select! {
                    () = self.stop.cancelled() => return None,
                    changed = self.seconds.changed() => {
                        changed.ok()?;
                        let Some(second) = *self.seconds.borrow_and_update() else { continue };
                        let counts = self.engine.telemetry().history().last_second(&self.policies);
                        return Some(LiveEvent::Tick { at: second * 1_000, counts });
                    }
                    line = next_line(&mut self.decisions) => {
                        if let Some(json) = line?.strip_prefix("data: ") {
                            return Some(LiveEvent::Decision(json.trim_end().to_owned()));
                        }
                    }
                }
            }
        })
    }
}

/// The next line; it never comes where decisions are not watched.
async fn next_line(
    decisions: &mut Option<Pin<Box<dyn Stream<Item = String> + Send>>>,
) -> Option<String> {
    match decisions {
        Some(decisions) => decisions.next().await,
        None => std::future::pending().await,
    }
}

impl Drop for EngineStream {
    fn drop(&mut self) {
        self.engine.telemetry().history().unwatch(&self.policies);
    }
}
