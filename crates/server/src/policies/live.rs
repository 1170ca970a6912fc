//! Policies that change while the server runs.
//!
//! ```text
//! every second: looks different? ─▶ read all ─▶ check all ─▶ swap whole, version + 1
//!                                                   └▶ wrong: said, and the last good ones stay
//! ```
//!
//! Those of a catalog come [from whoever follows it](Live::take) instead.
//!
//! Looking is done by asking for the files' times and numbers. That costs microseconds a second and
//! sees what notifications of the system miss: links that are turned, and network file systems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use sluicegate::{Clock, WallClock};
use sluicegate_control::node::News;
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{DescriptorTree, Document, Policy, PolicySet};
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
    /// Policies of the catalog that this program cannot read, with why.
    unreadable: Mutex<BTreeMap<String, String>>,
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
    /// How it stands with the catalog, where they come from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) catalog: Option<CatalogStatus>,
    /// Where they come from.
    pub(crate) source: Option<String>,
    /// Why the files as they are now are not in force.
    pub(crate) error: Option<String>,
    /// Changes that were refused.
    pub(crate) refused: u64,
    /// What leads descriptors to policies, which was read at start.
    pub(crate) descriptors: Option<Origin>,
}

/// How it stands with the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CatalogStatus {
    /// Which revision of it is held.
    pub(crate) revision: i64,
    /// Whether it answered when it was asked last.
    pub(crate) answers: bool,
    /// When it answered last, µs since the Unix epoch; 0: not since the start.
    pub(crate) answered_at_us: u64,
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
        let beside = Beside { imported, needed: needed(&tree) };
        let loaded = source.as_ref().map(Source::load).transpose()?;
        let (given, hash) = match loaded {
            Some(Loaded { document, hash }) => (Some(document), hash),
            None => (None, String::new()),
        };
        let policies = beside.joined(given, None)?;
        let path = source.as_ref().map(|source| source.path().display().to_string());
        let status = Status { hash, ..Status::first(path, origin) };
        Ok((Self::new(source, beside, status), policies, tree))
    }

    /// Those of a catalog in a database of this kind, none of which is there yet.
    pub(crate) fn of_catalog(kind: &str, descriptors: Descriptors) -> (Self, DescriptorTree) {
        let Descriptors { tree, origin, .. } = descriptors;
        let beside = Beside { imported: None, needed: needed(&tree) };
        let mut status = Status::first(Some(format!("catalog ({kind})")), origin);
        status.catalog = Some(CatalogStatus::default());
        (Self::new(None, beside, status), tree)
    }

    fn new(source: Option<Source>, beside: Beside, status: Status) -> Self {
        Self { source, beside, status: Mutex::new(status), unreadable: Mutex::default() }
    }

    /// What is in force once the catalog is at `revision`, where `news` changes something of `now`.
    pub(crate) fn take(&self, now: &PolicySet, news: News, revision: i64) -> Option<PolicySet> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let News { mut changed, gone, refused, tokens: _ } = news;
        let catalog = status.catalog.unwrap_or_default();
        status.catalog = Some(CatalogStatus { revision, ..catalog });
        status.refused += refused.len() as u64;
        for name in changed.iter().map(Policy::name).chain(gone.iter().map(String::as_str)) {
            unreadable.remove(name);
        }
        unreadable.extend(refused);
        for policy in too_many(now, &mut changed, &gone) {
            let problem = format!("expected at most {POLICIES_MAX} policies");
            unreadable.insert(policy.name().to_owned(), problem);
        }
        let changes = !(changed.is_empty() && gone.is_empty());
        let policies = changes.then(|| now.changed(changed, &gone)).transpose();
        let policies = policies.unwrap_or_else(|error| {
            unreadable.insert("*".to_owned(), error.to_string());
            None
        });
        if policies.is_some() {
            status.version += 1;
            status.read_at_us = WallClock.now().get();
            tracing::info!("policies: version {}, revision {revision} is in force", status.version);
        }
        let wrong = unreadable.iter().map(|(name, problem)| format!("policy `{name}`: {problem}"));
        let mut wrong: Vec<_> = wrong.collect();
        wrong.extend(self.beside.missing(policies.as_ref().unwrap_or(now)));
        status.error = (!wrong.is_empty()).then(|| wrong.join("; "));
        if let Some(error) = &status.error {
            tracing::warn!("policies: {}", error.replace('\n', "; "));
        }
        policies
    }

    /// The catalog was asked, and answered or not.
    pub(crate) fn asked(&self, answers: bool) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalog) = &mut status.catalog {
            catalog.answers = answers;
            if answers {
                catalog.answered_at_us = WallClock.now().get();
            }
        }
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
        let all = match (given, self.imported.clone()) {
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
        match self.missing(&set) {
            Some(missing) => bail!("{missing}"),
            None => Ok(set),
        }
    }

    /// That descriptors lead to a policy which is not there, if they do.
    fn missing(&self, set: &PolicySet) -> Option<String> {
        let unknown = self.needed.iter().find(|name| set.resolve(name).is_none())?;
        Some(format!("descriptors lead to the policy `{unknown}`, which there is not"))
    }
}

impl Status {
    /// Nothing, from there.
    fn first(source: Option<String>, descriptors: Option<Origin>) -> Self {
        Self {
            version: 1,
            read_at_us: WallClock.now().get(),
            hash: String::new(),
            catalog: None,
            source,
            error: None,
            refused: 0,
            descriptors,
        }
    }
}

/// Takes those of `changed` away for which there is no place in `now` without `gone`.
fn too_many(now: &PolicySet, changed: &mut Vec<Policy>, gone: &[String]) -> Vec<Policy> {
    let gone: BTreeSet<_> = gone.iter().map(String::as_str).collect();
    let is_there = |name: &str| now.resolve(name).is_some() && !gone.contains(name);
    let leaving = gone.iter().filter(|name| now.resolve(name).is_some()).count();
    let mut room = (POLICIES_MAX + leaving).saturating_sub(now.len());
    let has_no_place = |policy: &mut Policy| {
        let needs = usize::from(!is_there(policy.name()));
        let has_place = needs <= room;
        room -= if has_place { needs } else { 0 };
        !has_place
    };
    changed.extract_if(.., has_no_place).collect()
}

/// The policies that `tree` leads to.
fn needed(tree: &DescriptorTree) -> Vec<String> {
    tree.policies().iter().map(ToString::to_string).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str) -> Policy {
        let text = format!(r#"{{"name":"{name}","rules":[{{"token_bucket":{{"rate":"1/s"}}}}]}}"#);
        Policy::parse_one(&text).unwrap()
    }

    #[test]
    fn what_has_no_place_is_left_out_and_said_and_the_rest_is_in_force() {
        let (live, _) = Live::of_catalog("sqlite", Descriptors::default());
        let all = (0..POLICIES_MAX).map(|number| policy(&format!("p{number}"))).collect();
        let news = |changed, gone| News { changed, gone, ..News::default() };
        let full = live.take(&PolicySet::default(), news(all, Vec::new()), 1).unwrap();
        let changed = vec![policy("p7"), policy("new"), policy("newer"), policy("p8")];
        let now = live.take(&full, news(changed, vec!["p8".to_owned()]), 2).unwrap();
        assert_eq!(now.len(), POLICIES_MAX);
        let is_there = |name| now.resolve(name).is_some();
        // The place that `p8` left is taken by the first that is new.
        assert_eq!(["p7", "new", "newer", "p8"].map(is_there), [true, true, false, false]);
        let error = live.status().error.unwrap();
        assert!(error.contains("`newer`") && error.contains("`p8`"), "{error}");
        assert!(!error.contains("`new`"), "{error}");
    }
}
