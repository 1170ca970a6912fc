//! Record of whether the database takes changes, for the whole process, which has one catalog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::Error;

/// Writes that the database did not take, since the process started.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// A write failed, and no change was committed since.
static IS_FAILING: AtomicBool = AtomicBool::new(false);

/// Returns the number of writes that the database did not take, since the process started.
pub fn catalog_write_failures_total() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Returns whether the database takes changes: `false` from a write that it did not take until the next
/// change that is committed.
pub fn is_catalog_writable() -> bool {
    !IS_FAILING.load(Ordering::Relaxed)
}

/// Records that the database is not where it was opened: it takes no changes, also if none was tried.
pub(super) fn set_moved() {
    IS_FAILING.store(true, Ordering::Relaxed);
}

/// Counts a write that the database did not take. A write that the database refuses because of its content,
/// such as a name that exists, counts as taken.
pub(super) fn written<T>(done: Result<T, Error>) -> Result<T, Error> {
    if let Err(error @ (Error::Database(_) | Error::Unknown(_))) = &done {
        FAILURES.fetch_add(1, Ordering::Relaxed);
        if !IS_FAILING.swap(true, Ordering::Relaxed) {
            tracing::warn!("catalog: the database does not take changes: {error}");
        }
    }
    done
}

/// Records a committed change: if it succeeds, the database takes changes.
pub(super) fn committed(done: Result<(), Error>) -> Result<(), Error> {
    written(done)?;
    if IS_FAILING.swap(false, Ordering::Relaxed) {
        tracing::info!("catalog: the database takes changes again");
    }
    Ok(())
}
