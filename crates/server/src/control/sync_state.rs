//! The state of the catalog, as the tasks beside `sync` get it.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::Clock;
use sluicegate::internals::WallClock;
use sluicegate_control::Catalog;
use sluicegate_control::node::CatalogSnapshot;
use tokio::time::Instant;

/// Longest time of a look, in which ten thousand policies are read. The tables of a new catalog are
/// created to the end, also if that takes longer.
pub(super) const LOOK_WAIT_MAX: Duration = Duration::from_secs(15);

/// The snapshot of the catalog, for tasks that no request waits for.
#[derive(Clone, Debug)]
pub(super) struct SyncState {
    pub(super) held: Arc<CatalogSnapshot>,
    /// The number of changes of tokens.
    pub(super) tokens: u64,
    /// The catalog, if it answered the last request; and the start of the last look that was answered.
    pub(super) catalog: Option<Catalog>,
    pub(super) asked_at: Instant,
}

/// Milliseconds since 1970.
pub(super) fn now() -> i64 {
    i64::try_from(WallClock.now().get() / 1_000).unwrap_or(i64::MAX)
}
