//! Policies that change while the server runs.
//!
//! ```text
//! every second: looks different? ─▶ read all ─▶ check all ─▶ swap whole, version + 1
//!                                                   └▶ wrong: said, and the last good ones stay
//! ```
//!
//! Looking is done by asking for the files' times and numbers. That costs microseconds a second and
//! sees what notifications of the system miss: links that are turned, and network file systems.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use sluicegate::{Clock, WallClock};
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{DescriptorTree, Document, PolicySet};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::source::{Fingerprint, Loaded, Source};
use crate::descriptors::{Descriptors, Origin};
use crate::gate::Gate;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The policies of a server and where they come from.
#[derive(Debug)]
pub(crate) struct Live {
    source: Option<Source>,
    beside: Beside,
    status: Mutex<Status>,
}

/// What goes with the policies of the files.
#[derive(Debug)]
struct Beside {
    /// Policies that came with descriptors; one of the files of the same name is in their place.
    imported: Option<Document>,
    /// Names that descriptors lead to.
    needed: Vec<String>,
}

/// What is in force, and what came of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    /// 1 at start, and one more with every change.
    pub(crate) version: u64,
    /// When they were read, µs since the Unix epoch.
    pub(crate) read_at_us: u64,
    /// SHA-256 of the documents; empty without any.
    pub(crate) hash: String,
    /// Where they come from.
    pub(crate) source: Option<String>,
    /// Why the files as they are now are not in force.
    pub(crate) error: Option<String>,
    /// Changes that were refused.
    pub(crate) refused: u64,
    /// What leads descriptors to policies, which was read at start.
    pub(crate) descriptors: Option<Origin>,
}

impl Live {
    /// Reads the policies for the first time.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn start(
        source: Option<Source>,
        descriptors: Descriptors,
    ) -> Result<(Self, PolicySet, DescriptorTree)> {
        let Descriptors { imported, tree, origin } = descriptors;
        let needed = tree.policies().iter().map(ToString::to_string).collect();
        let beside = Beside { imported, needed };
        let loaded = source.as_ref().map(Source::load).transpose()?;
        let (given, hash) = match loaded {
            Some(Loaded { document, hash }) => (Some(document), hash),
            None => (None, String::new()),
        };
        let policies = beside.joined(given, None)?;
        let path = source.as_ref().map(|source| source.path().display().to_string());
        let read_at_us = WallClock.now().get();
        let status = Status {
            version: 1,
            read_at_us,
            hash,
            source: path,
            error: None,
            refused: 0,
            descriptors: origin,
        };
        Ok((Self { source, beside, status: Mutex::new(status) }, policies, tree))
    }

    /// What is in force.
    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the files every second until `stop`, and puts what has changed in force.
    pub(crate) async fn watch(self: &Arc<Self>, gate: &Gate, stop: &CancellationToken) {
        let Some(source) = self.source.clone().filter(|source| source.path().as_os_str() != "-")
        else {
            return;
        };
        let mut seen = None;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let (looked_at, before) = (source.clone(), seen.clone());
            match spawn_blocking(move || look(&looked_at, before.as_ref())).await {
                Ok((fingerprint, changed)) => {
                    seen = Some(fingerprint);
                    if let Some(changed) = changed {
                        self.apply(gate, changed);
                    }
                }
                Err(error) => tracing::error!("policies: {error}"),
            }
        }
    }

    /// Puts `changed` in force, or says why not.
    fn apply(&self, gate: &Gate, changed: Result<Loaded>) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = gate.engine();
        let changed = changed.and_then(|Loaded { document, hash }| {
            let policies = (hash != status.hash)
                .then(|| self.beside.joined(Some(document), Some(&engine.policies())));
            Ok((policies.transpose()?, hash))
        });
        match changed {
            Ok((None, _)) => status.error = None,
            Ok((Some(policies), hash)) => {
                gate.set_policies(policies);
                let (version, read_at_us) = (status.version + 1, WallClock.now().get());
                *status = Status { version, read_at_us, hash, error: None, ..status.clone() };
                tracing::info!("policies: version {version} is in force");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!("policies: the last good ones stay: {}", error.replace('\n', "; "));
                status.error = Some(error);
                status.refused += 1;
            }
        }
    }
}

impl Beside {
    /// All policies together, following `old` if there were any.
    fn joined(&self, given: Option<Document>, old: Option<&PolicySet>) -> Result<PolicySet> {
        let Self { imported, needed } = self;
        let all = match (given, imported.clone()) {
            (Some(given), Some(imported)) => given.or_else_of(imported),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Document::default(),
        };
        let count = all.policies().len();
        if count > POLICIES_MAX {
            bail!("{count} policies, expected at most {POLICIES_MAX}");
        }
        let set = match old {
            Some(old) => PolicySet::succeeding(old, all),
            None => PolicySet::new(all),
        };
        if let Some(unknown) = needed.iter().find(|name| set.resolve(name).is_none()) {
            bail!("descriptors lead to the policy `{unknown}`, which there is not");
        }
        Ok(set)
    }
}

/// What the files look like, and what is in them if that has changed. Files that cannot be looked at
/// look like none.
fn look(source: &Source, before: Option<&Fingerprint>) -> (Fingerprint, Option<Result<Loaded>>) {
    let fingerprint = source.fingerprint();
    let now = fingerprint.as_ref().map_or_else(|_| Fingerprint::new(), Clone::clone);
    if before == Some(&now) {
        return (now, None);
    }
    let loaded = fingerprint.and_then(|_| source.load());
    (now, Some(loaded))
}
