//! Snapshots of the memory store, which keep its state over a restart of the server: `serve --snapshot`.
//!
//! The file is read before the first request, written at intervals while requests are answered, and
//! written once more after the last of them. A server that is killed loses what came after the last
//! write, and nothing else. What is settled stays settled; limits that callers send along
//! (`CL.THROTTLE`, those of rls) begin anew.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use sluicegate::Clock;
use sluicegate::internals::store::{KEYS_MAX_DEFAULT, Restored, SnapshotError};
use sluicegate::internals::{WallClock, settled_rules};
use sluicegate::store::MemoryStore;
use sluicegate_kernel::{Micros, RuleSet};
use sluicegate_net::file;
use sluicegate_policy::PolicySet;
use tokio_util::sync::CancellationToken;

use crate::config::{Span, StoreConfig};

/// Default interval between writes: a crash loses a minute at most.
const EVERY_DEFAULT: Duration = Duration::from_secs(60);

/// Part of a store that one policy may fill by default, as a divisor: half, so that a flood of keys of one
/// policy leaves as much to all others together. A smaller part would protect against floods of several
/// policies at once, but leave most of a store empty where one policy has nearly all keys, as on most servers.
const POLICY_KEYS_PART: usize = 2;

/// A memory store's file, and when it is written.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    store: Arc<MemoryStore>,
    path: PathBuf,
    every: Duration,
    /// The time of the last write, in microseconds since 1970; 0: unknown.
    written_at_us: Arc<AtomicU64>,
}

/// Opens the memory store that `config` describes, at the time `now`, with its file if it has one.
///
/// # Errors
/// If the file cannot be read or written, is torn, or is not of a memory store.
pub(crate) fn open(
    config: &StoreConfig,
    policies: &PolicySet,
    now: Micros,
) -> Result<(Arc<MemoryStore>, Option<Snapshots>)> {
    let keys_max = config.keys_max.unwrap_or(KEYS_MAX_DEFAULT);
    let Some(path) = config.snapshot.clone() else {
        return Ok((Arc::new(bounded(MemoryStore::new(keys_max), config)), None));
    };
    let store = match restore(&path, keys_max, policies, now)? {
        Some(store) => store,
        None => MemoryStore::new(keys_max),
    };
    let store = Arc::new(bounded(store, config));
    let every = config.snapshot_every.map_or(EVERY_DEFAULT, |Span(every)| every);
    let written_at_us = Arc::new(AtomicU64::new(modified_at_us(&path)));
    Ok((Arc::clone(&store), Some(Snapshots { store, path, every, written_at_us })))
}

/// Checks the snapshot file of `config`, if there is one. Returns a problem that may be gone at the start: a missing
/// folder, which a service manager creates with the service.
///
/// # Errors
/// If the file cannot be read, is torn, or is not of a memory store.
pub(crate) fn check(config: &StoreConfig) -> Result<Option<String>> {
    let Some(path) = &config.snapshot else { return Ok(None) };
    // The whole file is read, and no key is kept, because none has a known rule set.
    match MemoryStore::restore(path, 1, &[], Micros::ZERO) {
        Ok(_) => Ok(None),
        Err(SnapshotError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            let folder = file::directory_of(path);
            Ok((!folder.is_dir()).then(|| missing_folder(folder)))
        }
        Err(error) => Err(cannot_restore(path, error)),
    }
}

fn missing_folder(folder: &Path) -> String {
    format!(
        "store.snapshot: the folder {} does not exist; create it before the server starts",
        folder.display()
    )
}

/// Returns whether `error` is of a snapshot file, and no start succeeds until something is changed.
pub(crate) fn is_permanent(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<SnapshotError>() {
        Some(SnapshotError::Io(error)) => matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::IsADirectory
                | ErrorKind::NotADirectory
                | ErrorKind::ReadOnlyFilesystem
        ),
        Some(_) => true,
        None => false,
    }
}

/// `store` with the other bounds that `config` sets.
fn bounded(store: MemoryStore, config: &StoreConfig) -> MemoryStore {
    let keys_max = config.keys_max.unwrap_or(KEYS_MAX_DEFAULT);
    let keys_per_policy_max =
        config.keys_per_policy_max.unwrap_or(keys_max.div_ceil(POLICY_KEYS_PART));
    let store = store.with_keys_per_policy_max(keys_per_policy_max);
    match config.state_bytes_max {
        Some(bytes) => store.with_state_bytes_max(bytes),
        None => store,
    }
}

impl Snapshots {
    /// Writes the file at intervals until `stop`. A failure is logged, and the next write is tried in time.
    pub(crate) async fn run(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.every) => {}
                () = stop.cancelled() => return,
            }
            if let Err(error) = self.write().await {
                tracing::error!("{error:#}");
            }
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If the file cannot be written; the one before is kept.
    pub(crate) async fn write(&self) -> Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path.clone());
        let written = tokio::task::spawn_blocking(move || write(&store, &path)).await;
        written.context("snapshot")??;
        self.written_at_us.store(WallClock.now().get(), Relaxed);
        Ok(())
    }

    /// The time of the last write, in microseconds since 1970; 0: unknown.
    pub(crate) fn written_at_us(&self) -> u64 {
        self.written_at_us.load(Relaxed)
    }

    /// The interval between two writes.
    pub(crate) const fn every(&self) -> Duration {
        self.every
    }
}

/// The time of the last change of the file at `path`, in microseconds since 1970; 0: unknown.
fn modified_at_us(path: &Path) -> u64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_micros()).ok()).unwrap_or_default()
}

fn write(store: &MemoryStore, path: &Path) -> Result<()> {
    store.snapshot(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// Restores the store from `path`; `None` if there is no such file yet.
fn restore(
    path: &Path,
    keys_max: usize,
    policies: &PolicySet,
    now: Micros,
) -> Result<Option<MemoryStore>> {
    match MemoryStore::restore(path, keys_max, &rule_sets(policies), now) {
        Ok((store, restored)) => {
            tracing::info!("{}", restored_text(path, restored));
            Ok(Some(store))
        }
        Err(SnapshotError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            // A place that cannot be written to is found out now, not in a minute.
            write(&MemoryStore::new(1), path)?;
            let shown = path.display();
            tracing::info!("snapshot: {shown} not found, starting empty");
            Ok(None)
        }
        Err(error) => Err(cannot_restore(path, error)),
    }
}

/// The problem of a file that cannot be read, or that is not a valid snapshot.
fn cannot_restore(path: &Path, error: SnapshotError) -> anyhow::Error {
    let shown = path.display();
    let problem = match &error {
        SnapshotError::Io(_) => format!("store.snapshot: cannot read {shown}"),
        _ => format!("cannot restore {shown}; move the file away to start without it"),
    };
    anyhow::Error::new(error).context(problem)
}

fn restored_text(path: &Path, restored: Restored) -> String {
    let Restored { keys, full, other_rules } = restored;
    let noun = if keys == 1 { "key" } else { "keys" };
    let mut line = format!("snapshot: {keys} {noun} restored from {}", path.display());
    if full > 0 {
        line += &format!(", {full} full again meanwhile");
    }
    if other_rules > 0 {
        line += &format!(", {other_rules} skipped because their rules are not in the policies");
    }
    line
}

/// All rule sets of keys, each with the policy whose key quota counts them. Limits that callers send
/// along are not known before the first request, so their usage is forgotten.
fn rule_sets(policies: &PolicySet) -> Vec<(&str, Arc<RuleSet>)> {
    let of_all = policies.policies().iter().flat_map(|policy| {
        policy.all_rules().map(|rules| (policy.name(), Arc::clone(rules.set())))
    });
    of_all.chain([settled_rules()]).collect()
}
