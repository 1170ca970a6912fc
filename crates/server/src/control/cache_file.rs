//! Keeps what is held in a file, for a start without the catalog.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_control::node::CatalogSnapshot;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::sync::SyncState;

/// How often the file is written at most: it is all that is held. It is written at once when a token
/// changed: one that was revoked must not be good again after a start without the catalog.
const EVERY: Duration = Duration::from_secs(1);

/// Writes what is held to the file at `path` when it changes, until `stop`, and what is not there by
/// then.
pub(super) async fn run(
    path: &Path,
    mut holding: watch::Receiver<SyncState>,
    stop: &CancellationToken,
) {
    let (mut written, mut is_failing) = (None, false);
    loop {
        let is_last = stop.is_cancelled();
        let now = holding.borrow_and_update().clone();
        if !is_held(&now, written.as_ref()) {
            match now.held.write_in_background(path).await {
                Ok(()) => (written, is_failing) = (Some(Arc::clone(&now.held)), false),
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::warn!(
                        "catalog.kept: not saved; a start without the catalog would fail: {error}"
                    );
                }
                Err(_) => {}
            }
        }
        if is_last {
            return;
        }
        let is_there = |holding: &SyncState| is_held(holding, written.as_ref());
        let until_new = async {
            tokio::select! {
                () = sleep(EVERY) => {}
                // An error is that nobody looks any more, and then this ends as well.
                _ = holding.wait_for(|holding| holding.tokens != now.tokens) => {}
            }
            holding.wait_for(|holding| !is_there(holding)).await.ok();
        };
        stop.run_until_cancelled(until_new).await;
    }
}

fn is_held(holding: &SyncState, written: Option<&Arc<CatalogSnapshot>>) -> bool {
    written.is_some_and(|written| Arc::ptr_eq(written, &holding.held))
}
