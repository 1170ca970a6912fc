//! The counts of this node, for the admin API: buckets that are not in the catalog yet, and traffic as it happens.

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
use crate::telemetry::{EventFilter, SECONDS};

/// The counts of this node.
#[derive(Debug)]
pub(super) struct EngineTraffic {
    pub(super) node: String,
    pub(super) engine: Arc<ServerEngine>,
    pub(super) live: Arc<PolicyManager>,
    pub(super) stop: CancellationToken,
}

/// A stream of counts, and of decisions, to one client.
struct EngineStream {
    engine: Arc<ServerEngine>,
    policies: Vec<String>,
    seconds: watch::Receiver<Option<i64>>,
    /// The last second that was sent, or that was over before the stream began; absent if none was.
    sent: Option<i64>,
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
        let sent = *seconds.borrow();
        Some(Box::new(EngineStream { engine, policies, seconds, sent, decisions, stop }))
    }
}

impl LiveStream for EngineStream {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(async {
            loop {
                if let Some(second) = self.next_second() {
                    let counts = self.engine.telemetry().history().second(second, &self.policies);
                    return Some(LiveEvent::Tick { at: second * 1_000, counts });
                }
                tokio::select! {
                    () = self.stop.cancelled() => return None,
                    changed = self.seconds.changed() => changed.ok()?,
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

impl EngineStream {
    /// The next second that is over and was not sent yet.
    fn next_second(&mut self) -> Option<i64> {
        let last = (*self.seconds.borrow_and_update())?;
        let kept = i64::try_from(SECONDS).expect("it is small");
        let next = self.sent.map_or(last, |sent| (sent + 1).max(last - kept + 1));
        (next <= last).then(|| *self.sent.insert(next))
    }
}

/// Waits for the next line, for ever if decisions are not watched.
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

#[cfg(test)]
mod tests {
    use sluicegate::policy::PolicySet;
    use sluicegate_control::traffic::Counts;

    use super::*;

    #[tokio::test]
    async fn a_client_that_reads_slowly_misses_no_second() {
        let engine = ServerEngine::in_memory(PolicySet::default());
        let telemetry = engine.telemetry();
        telemetry.record_second(1_000_000);
        let mut stream = EngineStream {
            engine: Arc::clone(&engine),
            policies: vec!["p".to_owned()],
            seconds: telemetry.history().seconds(),
            sent: Some(999),
            decisions: None,
            stop: CancellationToken::new(),
        };
        assert!(telemetry.history().watch(&stream.policies));
        for second in 1_001..=1_003 {
            telemetry.record_second(second * 1_000);
        }
        for at in [1_000_000, 1_001_000, 1_002_000] {
            let counts = vec![Counts::default()];
            assert_eq!(stream.next().await, Some(LiveEvent::Tick { at, counts }));
        }
        telemetry.record_second(2_000_000);
        let Some(LiveEvent::Tick { at, .. }) = stream.next().await else { panic!("a second") };
        assert_eq!(at, (1_999 - 119) * 1_000, "older ones are not kept");
        stream.stop.cancel();
        stream.sent = Some(1_999);
        assert_eq!(stream.next().await, None);
    }
}
