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

use anyhow::{Context, Result};
use serde::Serialize;
use sluicegate_policy::PolicySet;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::source::{Fingerprint, Loaded, Source};
use crate::gate::Gate;
use crate::say;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The policies of a server and where they come from.
#[derive(Debug)]
pub(crate) struct Live {
    source: Option<Source>,
    status: Mutex<Status>,
}

/// What is in force, and what came of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    /// 1 at start, and one more with every change.
    pub(crate) version: u64,
    /// SHA-256 of the documents; empty without any.
    pub(crate) hash: String,
    /// Where they come from.
    pub(crate) source: Option<String>,
    /// Why the files as they are now are not in force.
    pub(crate) error: Option<String>,
    /// Changes that were refused.
    pub(crate) refused: u64,
}

impl Live {
    /// Reads the policies for the first time.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn start(source: Option<Source>) -> Result<(Self, PolicySet)> {
        let loaded = source.as_ref().map(Source::load).transpose()?;
        let (policies, hash) = match loaded {
            Some(Loaded { document, hash }) => (PolicySet::new(document), hash),
            None => (PolicySet::default(), String::new()),
        };
        let path = source.as_ref().map(|source| source.path().display().to_string());
        let status = Status { version: 1, hash, source: path, error: None, refused: 0 };
        Ok((Self { source, status: Mutex::new(status) }, policies))
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
                Err(error) => say::note(format_args!("policies: {error}")),
            }
        }
    }

    /// Puts `changed` in force, or says why not.
    fn apply(&self, gate: &Gate, changed: Result<Loaded>) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match changed {
            Ok(Loaded { hash, .. }) if hash == status.hash => status.error = None,
            Ok(Loaded { document, hash }) => {
                let engine = gate.engine();
                engine.set_policies(PolicySet::succeeding(&engine.policies(), document));
                *status =
                    Status { version: status.version + 1, hash, error: None, ..status.clone() };
                say::note(format_args!("policies: version {} is in force", status.version));
            }
            Err(error) => {
                let error = format!("{error:#}");
                say::note(format_args!("policies: the last good ones stay: {error}"));
                status.error = Some(error);
                status.refused += 1;
            }
        }
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
    (now, Some(loaded.context("reading the change")))
}
