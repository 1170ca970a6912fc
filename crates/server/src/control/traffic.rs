//! Counts the traffic of each second, and writes the sums of each bucket of time to the catalog.
//!
//! Counting never waits for the catalog. A bucket is written once: a row that the catalog does not take in time is
//! dropped and counted. While there is no catalog nothing is written; the last hour is written once it is back.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_control::Catalog;
use sluicegate_control::traffic::{Bucket, PolicyCounts, Step, run_name};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::sync_state::{SyncState, now};
use crate::config::HistoryKept;
use crate::telemetry::Telemetry;

/// Age of the oldest bucket that is written after an outage of the catalog, ms: as many rows as one step keeps.
const BACK_FILL_MS: i64 = 60 * 60 * 1_000;

/// Number of refused keys in a row, for each policy.
const TOP_KEPT: usize = 5;

/// Counts and writes until `stop`, for the node with the name `node`.
pub(super) async fn run(
    telemetry: &Telemetry,
    kept: HistoryKept,
    node: &str,
    holding: &watch::Receiver<SyncState>,
    stop: &CancellationToken,
) {
    if kept != HistoryKept::Off {
        tokio::join!(count(telemetry, stop), write(telemetry, kept, node, holding, stop));
    }
}

/// Records the decisions until `at`, the last ones. They count to the second that has begun: the bucket of the second before
/// may be written already.
fn record_last(telemetry: &Telemetry, at: i64) {
    telemetry.record_second(at.div_euclid(1_000) * 1_000 + 1_000);
    telemetry.history().end_buckets(at);
}

/// Writes the counts since the last rows, after the last decision. The next run of this node may count in the
/// same buckets, so these rows belong to a node of their own.
pub(super) async fn write_last(
    telemetry: &Telemetry,
    kept: HistoryKept,
    node: &str,
    catalog: &Catalog,
) {
    let at = now();
    record_last(telemetry, at);
    let (run, end) = (run_name(node, at), CancellationToken::new());
    for step in steps(kept) {
        write_step(telemetry, *step, &run, catalog, &end).await;
    }
}

/// The steps that are written.
const fn steps(kept: HistoryKept) -> &'static [Step] {
    match kept {
        HistoryKept::Day => &Step::ALL,
        HistoryKept::Hour => &[Step::Fine],
        HistoryKept::Off => &[],
    }
}

/// Counts each second when it is over.
async fn count(telemetry: &Telemetry, stop: &CancellationToken) {
    loop {
        let over = (now().div_euclid(1_000) + 1) * 1_000;
        // The clock of the day and that of timers differ by parts of a millisecond. What is counted before the
        // second is over would belong to the one before it, which may be written already.
        while let left @ 1..=1_000 = over - now() {
            let wait = Duration::from_millis(left.unsigned_abs());
            if timeout(wait, stop.cancelled()).await.is_ok() {
                return telemetry.history().end();
            }
        }
        telemetry.record_second(now());
    }
}

/// Writes each bucket when it is over.
async fn write(
    telemetry: &Telemetry,
    kept: HistoryKept,
    node: &str,
    holding: &watch::Receiver<SyncState>,
    stop: &CancellationToken,
) {
    let mut seconds = telemetry.history().seconds();
    let (mut forgot_at, mut is_complete) = (0, kept != HistoryKept::Day);
    while let Some(Ok(())) = stop.run_until_cancelled(seconds.changed()).await {
        let Some(catalog) = holding.borrow().catalog.clone() else { continue };
        if !is_complete {
            is_complete = true;
            let completing = catalog.complete_traffic(node, now());
            if let Some(Err(error)) = stop.run_until_cancelled(completing).await {
                tracing::debug!("catalog: traffic history: {error}");
            }
        }
        for step in steps(kept) {
            write_step(telemetry, *step, node, &catalog, stop).await;
        }
        let at = now();
        if at - forgot_at >= Step::Coarse.ms() {
            forgot_at = at;
            if let Err(error) = catalog.forget_traffic(node, at).await {
                tracing::debug!("catalog: traffic history: {error}");
            }
        }
    }
}

/// Writes the buckets that are over and not written yet, until a row is not taken: the next ones have
/// time until the next second.
async fn write_step(
    telemetry: &Telemetry,
    step: Step,
    node: &str,
    catalog: &Catalog,
    stop: &CancellationToken,
) {
    let history = telemetry.history();
    let Some(through) = history.through(step) else { return };
    let written = history.written()[step as usize];
    if through <= written {
        return;
    }
    let since = written.max(through - BACK_FILL_MS);
    for mut bucket in history.buckets(step, since, &BTreeSet::new()) {
        let end = bucket.at + step.ms();
        // The refused keys are known of the last minutes only.
        if step == Step::Fine && end == through {
            add_top(telemetry, &mut bucket);
        }
        if !bucket.policies.is_empty() {
            let writing = catalog.record_traffic(node, step, &bucket);
            let Some(written) = stop.run_until_cancelled(writing).await else { return };
            if let Err(error) = written {
                tracing::debug!("catalog: traffic history: {error}");
                history.drop_row();
                return history.set_written(step, end);
            }
        }
        history.set_written(step, end);
    }
    history.set_written(step, through);
}

/// Adds the keys that were refused most, of the policies that refused something.
fn add_top(telemetry: &Telemetry, bucket: &mut Bucket) {
    for PolicyCounts { policy, counts, top } in &mut bucket.policies {
        if counts.over_the_limit() > 0 {
            let refused = telemetry.top(policy, TOP_KEPT).unwrap_or_default();
            *top = refused.into_iter().map(Into::into).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate::policy::{Document, PolicySet};
    use sluicegate::{Cost, Request, Verb};
    use tokio::time::Instant;

    use super::*;
    use crate::engine::ServerEngine;
    use crate::protocol::Wire;

    #[tokio::test]
    async fn decisions_after_the_last_second_are_in_the_bucket_that_has_begun() {
        let document = "policies: [ { name: p, rules: [ { token_bucket: { rate: 1/s } } ] } ]";
        let document = Document::parse(document).expect("the policy of the test");
        let engine = ServerEngine::in_memory(PolicySet::new(document));
        // The bucket until 10 s is written with the second that ends it.
        engine.telemetry().record_second(10_000);
        let request = Request::new("p", None, Verb::Check { cost: Cost::ONE });
        engine.turn(Wire::Http).decide(&request).await.expect("the store is in memory");
        record_last(engine.telemetry(), 10_200);
        let buckets = engine.telemetry().history().buckets(Step::Fine, 0, &BTreeSet::from([0]));
        let of_policies: Vec<_> =
            buckets.iter().map(|bucket| (bucket.at, bucket.policies.len())).collect();
        assert_eq!(of_policies[0], (10_000, 1), "{buckets:?}");
    }

    #[tokio::test]
    async fn a_node_that_is_stopped_before_it_has_counted_anything_ends() {
        let engine = ServerEngine::in_memory(PolicySet::default());
        let nothing =
            SyncState { held: Arc::default(), tokens: 0, catalog: None, asked_at: Instant::now() };
        let (_tell, holding) = watch::channel(nothing);
        let stop = CancellationToken::new();
        stop.cancel();
        let running = run(engine.telemetry(), HistoryKept::Day, "a", &holding, &stop);
        assert!(timeout(Duration::from_secs(5), running).await.is_ok());
    }
}
