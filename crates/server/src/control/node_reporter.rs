//! Reports to the catalog: that this node is there, the revision that it holds, its state, and the tokens
//! that were used.

use std::time::Duration;

use sluicegate_control::node::Presence;
use sluicegate_control::{Catalog, is_catalog_writable};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::subscribers::Subscribers;
use super::sync_state::{SyncState, now};
use crate::authenticator::Authenticator;

/// Interval between checks whether a report is due.
const EVERY: Duration = Duration::from_secs(1);

/// Interval between reports of used tokens, and between attempts to write to a catalog that refuses
/// writes; and the longest time that such a report may take: nothing is less urgent.
const USED_EVERY: Duration = Duration::from_secs(10);
const USED_WAIT_MAX: Duration = Duration::from_millis(500);

/// Reports until `stop`, and then once more which tokens were used.
pub(super) async fn run(
    mut presence: Presence,
    subscribers: &Subscribers<'_>,
    mut holding: watch::Receiver<SyncState>,
    stop: &CancellationToken,
) {
    let authenticator = subscribers.authenticator;
    let mut health = Health::new(subscribers.engine, subscribers.leaving);
    let mut used_at: Option<Instant> = None;
    while !stop.is_cancelled() {
        let SyncState { held, catalog, .. } = holding.borrow_and_update().clone();
        if let Some(catalog) = catalog {
            let (revision, at) = (held.revision(), now());
            if presence.is_due(revision, at) || health.has_changed() {
                let report = health.report();
                let saying = presence.report_with(&catalog, revision, &report, at);
                if let Some(Err(error)) = stop.run_until_cancelled(saying).await {
                    tracing::debug!("catalog: {error}");
                }
            }
            if used_at.is_none_or(|at| at.elapsed() >= USED_EVERY) {
                used_at = Some(Instant::now());
                record_used_tokens(authenticator, &catalog).await;
                // A catalog that refused a write is tried again, even if no client changes anything.
                if !is_catalog_writable()
                    && let Some(Err(error)) = stop.run_until_cancelled(catalog.try_write()).await
                {
                    tracing::debug!("catalog: {error}");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            // An error means that no sender is left; then this ends as well.
            changed = holding.changed() => if changed.is_err() { break },
            () = sleep(EVERY) => {}
        }
    }
    let catalog = holding.borrow().catalog.clone();
    if let Some(catalog) = catalog {
        record_used_tokens(authenticator, &catalog).await;
    }
}

async fn record_used_tokens(authenticator: &Authenticator, catalog: &Catalog) {
    let used = authenticator.used();
    let noted = timeout(USED_WAIT_MAX, catalog.record_tokens_used(&used)).await;
    if !matches!(noted, Ok(Ok(()))) {
        tracing::debug!("catalog: could not report token use");
    }
}
