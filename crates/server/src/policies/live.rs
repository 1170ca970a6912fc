//! Policies and descriptors that change while the server runs.
//!
//! ```text
//! every second: looks different? ─▶ read all ─▶ check all ─▶ swap whole, version + 1
//!                                                   └▶ wrong: logged, and the last good ones stay
//! ```
//!
//! All files are one set: policies, and the descriptors that lead to them, are in force together or not at
//! all. Policies of a catalog [arrive as changes](PolicyManager::apply_delta) instead; the descriptors beside
//! it are watched as well.
//!
//! A look compares the files' times and numbers. That costs microseconds a second and detects what
//! notifications of the system miss: links that are changed, and network file systems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use sluicegate::Clock;
use sluicegate::internals::WallClock;
use sluicegate_control::node::CatalogDelta;
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{DescriptorTree, Document, Policy, PolicySet};
use sluicegate_text::documents::{DocumentSource, Loaded};
use sluicegate_text::files::Fingerprint;
use sluicegate_text::store::Takes;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::in_force::InForce;
use crate::descriptors::{self, DescriptorOrigin, Descriptors};

/// Interval between looks at the files.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum number of readings in one look, of files that change while they are read: an editor that
/// replaces several files needs two, and no look lasts for ever.
const READS_MAX: usize = 3;

/// The policies of a server, and their sources.
#[derive(Debug)]
pub(crate) struct PolicyManager {
    files: WatchedFiles,
    beside: Mutex<FileExtras>,
    status: Mutex<PolicyStatus>,
    /// Notified when other files are in force.
    changed: Notify,
    /// Policies of the catalog whose present version is not in force, with the reason: this program
    /// cannot read them, has no room for them, or its store does not take their rules.
    unreadable: Mutex<BTreeMap<String, String>>,
    takes: Takes,
}

/// The files that are read, and watched.
#[derive(Clone, Debug)]
struct WatchedFiles {
    policies: Option<DocumentSource>,
    descriptors: Option<descriptors::DescriptorSource>,
}

/// The contents of the files.
#[derive(Debug)]
struct FileSet {
    /// The policies; absent if no policy files are configured.
    given: Option<Loaded>,
    descriptors: Descriptors,
}

/// Additions to the policies of the files.
#[derive(Clone, Debug)]
struct FileExtras {
    /// Policies that were imported with descriptors; a policy of the files with the same name replaces one.
    imported: Option<Document>,
    /// Names of policies that descriptors refer to.
    needed: Vec<String>,
}

/// The policies in force, and the result of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PolicyStatus {
    /// Version of the policies: 1 at start, and one more with every change.
    pub(crate) version: u64,
    /// The time when the policies were read, µs since the Unix epoch.
    pub(crate) read_at_us: u64,
    /// SHA-256 of the documents; empty without any.
    pub(crate) hash: String,
    /// The state of the catalog, if the policies come from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) catalog: Option<CatalogStatus>,
    /// The source of the policies.
    pub(crate) source: Option<String>,
    /// The reason why the present files, or policies of the catalog, are not in force.
    pub(crate) error: Option<String>,
    /// The number of changes that were refused.
    pub(crate) refused: u64,
    /// The source of the descriptors.
    pub(crate) descriptors: Option<DescriptorOrigin>,
}

/// The state of the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CatalogStatus {
    /// The revision that is held.
    pub(crate) revision: i64,
    /// The catalog answered the last request.
    pub(crate) answers: bool,
    /// The time of the last answer, µs since the Unix epoch; 0: none since the start.
    pub(crate) answered_at_us: u64,
}

impl PolicyManager {
    /// Reads the policies for the first time.
    ///
    /// # Errors
    /// What is wrong with the files.
    pub(crate) fn start(
        policies: Option<DocumentSource>,
        descriptors: Option<descriptors::DescriptorSource>,
        takes: Takes,
    ) -> Result<(Self, PolicySet, DescriptorTree)> {
        let files = WatchedFiles { policies, descriptors };
        let FileSet { given, descriptors } = files.load()?;
        descriptors.print_notes();
        let beside = FileExtras::of(&descriptors);
        let Descriptors { tree, origin, .. } = descriptors;
        let (given, hash) = Loaded::parts(given);
        let policies = checked(beside.joined(given, None)?, takes)?;
        let path = files.policies.as_ref().map(|source| source.path().display().to_string());
        let status = PolicyStatus { hash, ..PolicyStatus::first(path, origin) };
        Ok((Self::new(files, beside, status, takes), policies, tree))
    }

    /// Creates the manager of a catalog in a database of this kind, without policies yet, with
    /// descriptors that were read from `source`.
    pub(crate) fn of_catalog(
        kind: &str,
        source: Option<descriptors::DescriptorSource>,
        descriptors: Descriptors,
        takes: Takes,
    ) -> (Self, DescriptorTree) {
        let beside = FileExtras { imported: None, ..FileExtras::of(&descriptors) };
        let Descriptors { tree, origin, .. } = descriptors;
        let mut status = PolicyStatus::first(Some(format!("catalog ({kind})")), origin);
        status.catalog = Some(CatalogStatus::default());
        (
            Self::new(WatchedFiles { policies: None, descriptors: source }, beside, status, takes),
            tree,
        )
    }

    fn new(files: WatchedFiles, beside: FileExtras, status: PolicyStatus, takes: Takes) -> Self {
        let (beside, status) = (Mutex::new(beside), Mutex::new(status));
        let (changed, unreadable) = (Notify::new(), Mutex::default());
        Self { files, beside, status, changed, unreadable, takes }
    }

    /// Applies `news` of the catalog at `revision` to the policies `now`. Returns the new policies;
    /// `None` if they are the same.
    pub(crate) fn apply_delta(
        &self,
        now: &PolicySet,
        news: CatalogDelta,
        revision: i64,
    ) -> Option<PolicySet> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let CatalogDelta { mut changed, gone, refused, tokens: _ } = news;
        let catalog = status.catalog.unwrap_or_default();
        status.catalog = Some(CatalogStatus { revision, ..catalog });
        status.refused += refused.len() as u64;
        for name in changed.iter().map(Policy::name).chain(gone.iter().map(String::as_str)) {
            unreadable.remove(name);
        }
        unreadable.extend(refused);
        let problems = changed.extract_if(.., |policy| untaken(policy, self.takes).is_some());
        unreadable.extend(
            problems.filter_map(|policy| {
                Some((policy.name().to_owned(), untaken(&policy, self.takes)?))
            }),
        );
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
            tracing::info!("policies: version {}, revision {revision} is loaded", status.version);
        }
        policies.iter().for_each(warn_if_empty);
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        status.error = wrong(&unreadable, &beside, policies.as_ref().unwrap_or(now));
        if let Some(error) = &status.error {
            tracing::warn!("policies: {}", error.replace('\n', "; "));
        }
        policies
    }

    /// Records whether the catalog answered a request.
    pub(crate) fn set_catalog_answers(&self, answers: bool) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalog) = &mut status.catalog {
            catalog.answers = answers;
            if answers {
                catalog.answered_at_us = WallClock.now().get();
            }
        }
    }

    /// The files of the policies, if they are in files that can be read again.
    pub(crate) fn policy_files(&self) -> Option<&DocumentSource> {
        self.files.policies.as_ref().filter(|source| !source.is_standard_input())
    }

    /// The present status.
    pub(crate) fn status(&self) -> PolicyStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns when other files are in force than at the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Looks at the files every second until `stop`, and puts changes in force in `in_force`, for
    /// everything that uses its engine.
    pub(crate) async fn watch(self: &Arc<Self>, in_force: &InForce, stop: &CancellationToken) {
        if !self.files.are_watched() {
            return;
        }
        let mut fingerprint = None;
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let (files, before) = (self.files.clone(), fingerprint.clone());
            let look =
                move || read_if_changed(before.as_ref(), || files.fingerprint(), || files.load());
            match spawn_blocking(look).await {
                Ok((looks, changed)) => {
                    fingerprint = looks;
                    if let Some(changed) = changed {
                        self.apply(in_force, changed);
                    }
                }
                Err(error) => tracing::error!("policies: {error}"),
            }
        }
    }

    /// Puts `changed` in force, or logs the problem.
    fn apply(&self, in_force: &InForce, changed: Result<FileSet>) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        match changed.and_then(|set| self.put_in_force(&status, in_force, set)) {
            Ok(next) => {
                if next.version > status.version {
                    tracing::info!("policies: version {} is loaded", next.version);
                    warn_if_empty(&in_force.engine().core().policies());
                    self.changed.notify_one();
                }
                *status = next;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    "policies: reload rejected, keeping the current version: {}",
                    error.replace('\n', "; ")
                );
                status.error = Some(error);
                status.refused += 1;
            }
        }
    }

    /// Puts the new parts of `set` in force. Returns the status after that.
    fn put_in_force(
        &self,
        status: &PolicyStatus,
        in_force: &InForce,
        set: FileSet,
    ) -> Result<PolicyStatus> {
        let FileSet { given, descriptors } = set;
        let (given, hash) = Loaded::parts(given);
        let now = in_force.engine().core().policies();
        let is_of_catalog = status.catalog.is_some();
        let has_new_tree = descriptors.origin != status.descriptors;
        if !has_new_tree && (is_of_catalog || hash == status.hash) {
            let error = is_of_catalog.then(|| status.error.clone()).flatten();
            return Ok(PolicyStatus { error, ..status.clone() });
        }
        let new = FileExtras::of(&descriptors);
        let joined = || checked(new.joined(given, Some(&now))?, self.takes);
        let policies = (!is_of_catalog).then(joined).transpose()?;
        let error = if is_of_catalog {
            let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            wrong(&unreadable, &new, &now)
        } else {
            None
        };
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = new;
        let Descriptors { tree, origin, notes, .. } = descriptors;
        if has_new_tree {
            notes.iter().for_each(|note| tracing::info!("descriptors: {note}"));
        }
        in_force.set(policies, has_new_tree.then_some(tree));
        let (version, read_at_us) = (status.version + 1, WallClock.now().get());
        Ok(PolicyStatus { version, read_at_us, hash, error, descriptors: origin, ..status.clone() })
    }
}

/// Warns that no request is decided, if there are no policies.
fn warn_if_empty(policies: &PolicySet) {
    if policies.policies().is_empty() {
        tracing::warn!("policies: there are none now, so that no request is decided");
    }
}

impl WatchedFiles {
    /// Returns whether the files can change: standard input cannot, and cannot be read again with the rest.
    fn are_watched(&self) -> bool {
        let Self { policies, descriptors } = self;
        let is_file = |source: &DocumentSource| !source.is_standard_input();
        let is_any = policies.is_some() || descriptors.is_some();
        is_any
            && policies.as_ref().is_none_or(is_file)
            && descriptors.as_ref().is_none_or(descriptors::DescriptorSource::is_watched)
    }

    /// The present fingerprint of the files.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let Self { policies, descriptors } = self;
        let mut all = Fingerprint::new();
        if let Some(policies) = policies {
            all.extend(policies.fingerprint()?);
        }
        if let Some(descriptors) = descriptors {
            all.extend(descriptors.fingerprint()?);
        }
        Ok(all)
    }

    fn load(&self) -> Result<FileSet> {
        let Self { policies, descriptors } = self;
        // Descriptors first: their errors come before those of the policies that they name.
        let descriptors =
            descriptors.as_ref().map(descriptors::DescriptorSource::load).transpose()?;
        let given = policies.as_ref().map(DocumentSource::load).transpose()?;
        Ok(FileSet { given, descriptors: descriptors.unwrap_or_default() })
    }
}

/// The problems of the policies in force: unreadable ones, and those that descriptors need but cannot use.
fn wrong(
    unreadable: &BTreeMap<String, String>,
    beside: &FileExtras,
    policies: &PolicySet,
) -> Option<String> {
    let wrong = unreadable.iter().map(|(name, problem)| format!("policy `{name}`: {problem}"));
    let mut wrong: Vec<_> = wrong.collect();
    wrong.extend(beside.missing(policies));
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

impl FileExtras {
    fn of(descriptors: &Descriptors) -> Self {
        let Descriptors { imported, tree, .. } = descriptors;
        let needed = tree.policies().iter().map(ToString::to_string).collect();
        Self { imported: imported.clone(), needed }
    }

    /// Joins all policies, as successors of `old` if there were any.
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

    /// The problem of descriptors that refer to an unknown policy, or to one that a gateway cannot ask, if they do.
    fn missing(&self, set: &PolicySet) -> Option<String> {
        self.needed.iter().find_map(|name| match set.resolve(name) {
            None => Some(format!("descriptors refer to unknown policy `{name}`")),
            Some(policy) if policy.hands_out_permits() => Some(format!(
                "descriptors refer to policy `{name}`, which has a `concurrency` rule: descriptors of a tree name no permits; \
                 expected a policy without one"
            )),
            Some(_) => None,
        })
    }
}

impl PolicyStatus {
    /// The status at the start, without a hash.
    fn first(source: Option<String>, descriptors: Option<DescriptorOrigin>) -> Self {
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

/// Returns `policies`, if the store takes the rules of each.
fn checked(policies: PolicySet, takes: Takes) -> Result<PolicySet> {
    for policy in policies.policies() {
        if let Some(problem) = untaken(policy, takes) {
            bail!("policy `{}`: {problem}", policy.name());
        }
    }
    Ok(policies)
}

/// The reason why the store does not take the rules of `policy`, if it does not.
fn untaken(policy: &Policy, takes: Takes) -> Option<String> {
    policy.all_rules().find_map(|rules| Some(format!("rules: {}", takes(rules.set()).err()?)))
}

/// Removes the policies of `changed` for which there is no room in `now` without `gone`, and returns them.
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

/// Reads the files, if their fingerprint is not `before`. Returns the fingerprint, and the result of
/// `read` if there was one. Files that cannot be inspected have the fingerprint of no files.
///
/// Files that change while they are read are read again, at most [`READS_MAX`] times. If they never
/// hold still, the last reading counts and the fingerprint is `None`: the next look reads them again.
fn read_if_changed<T>(
    before: Option<&Fingerprint>,
    look: impl Fn() -> Result<Fingerprint>,
    read: impl Fn() -> Result<T>,
) -> (Option<Fingerprint>, Option<Result<T>>) {
    let mut last = None;
    for _ in 0..READS_MAX {
        let looked = look();
        let looks = looked.as_ref().map_or_else(|_| Fingerprint::new(), Clone::clone);
        if before == Some(&looks) {
            return (Some(looks), None);
        }
        let found = looked.and_then(|_| read());
        if look().unwrap_or_default() == looks {
            return (Some(looks), Some(found));
        }
        last = Some(found);
    }
    (None, last)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use sluicegate_text::store::StoreName;

    fn policy(name: &str) -> Policy {
        let text = format!(r#"{{"name":"{name}","rules":[{{"token_bucket":{{"rate":"1/s"}}}}]}}"#);
        Policy::parse_one(&text).unwrap()
    }

    /// The fingerprint of one file with this number.
    fn looks(number: u64) -> Fingerprint {
        vec![("a.yaml".into(), number, 0, 0, 0)]
    }

    #[test]
    fn files_that_change_while_they_are_read_are_read_again() {
        let number = Cell::new(1);
        let read = || {
            let found = number.get();
            number.set(2);
            Ok(found)
        };
        let (seen, found) = read_if_changed(None, || Ok(looks(number.get())), read);
        assert_eq!((seen, found.unwrap().unwrap()), (Some(looks(2)), 2));
        let (seen, found) = read_if_changed(Some(&looks(2)), || Ok(looks(number.get())), read);
        assert_eq!((seen, found.map(Result::unwrap)), (Some(looks(2)), None));
    }

    #[test]
    fn files_that_never_hold_still_are_read_again_at_the_next_look() {
        let number = Cell::new(1);
        let read = || Ok(number.replace(number.get() + 1));
        let (seen, found) = read_if_changed(None, || Ok(looks(number.get())), read);
        assert_eq!((seen, found.unwrap().unwrap()), (None, READS_MAX as u64));
    }

    #[test]
    fn what_has_no_place_is_left_out_and_said_and_the_rest_is_in_force() {
        let (live, _) =
            PolicyManager::of_catalog("sqlite", None, Descriptors::default(), |_| Ok(()));
        let all = (0..POLICIES_MAX).map(|number| policy(&format!("p{number}"))).collect();
        let news = |changed, gone| CatalogDelta { changed, gone, ..CatalogDelta::default() };
        let full = live.apply_delta(&PolicySet::default(), news(all, Vec::new()), 1).unwrap();
        let changed = vec![policy("p7"), policy("new"), policy("newer"), policy("p8")];
        let now = live.apply_delta(&full, news(changed, vec!["p8".to_owned()]), 2).unwrap();
        assert_eq!(now.len(), POLICIES_MAX);
        let is_there = |name| now.resolve(name).is_some();
        // The place that `p8` left is taken by the first that is new.
        assert_eq!(["p7", "new", "newer", "p8"].map(is_there), [true, true, false, false]);
        let error = live.status().error.unwrap();
        assert!(error.contains("`newer`") && error.contains("`p8`"), "{error}");
        assert!(!error.contains("`new`"), "{error}");
    }

    #[test]
    fn what_the_store_does_not_take_is_left_out_as_it_was_and_the_rest_is_in_force() {
        let takes = StoreName::parse("redis://localhost").unwrap().takes();
        let (live, _) = PolicyManager::of_catalog("sqlite", None, Descriptors::default(), takes);
        let log = |limit: u32| {
            let rule = format!(r#"{{"sliding_log":{{"limit":{limit},"window":"1s"}}}}"#);
            let other = r#"{"token_bucket":{"rate":"1/s"}}"#;
            let overrides = format!(r#"[{{"key":"k","rules":[{rule}]}}]"#);
            let text = format!(r#"{{"name":"log","rules":[{other}],"overrides":{overrides}}}"#);
            Policy::parse_one(&text).unwrap()
        };
        let news = |changed| CatalogDelta { changed, ..CatalogDelta::default() };
        let first = live.apply_delta(&PolicySet::default(), news(vec![log(2_500)]), 1).unwrap();
        let second = live.apply_delta(&first, news(vec![log(9_000), policy("new")]), 2).unwrap();
        assert_eq!(second.len(), 2);
        assert!(Arc::ptr_eq(first.resolve("log").unwrap(), second.resolve("log").unwrap()));
        let error = live.status().error.unwrap();
        assert!(error.contains("policy `log`: rules: ") && error.contains("`9000`"), "{error}");
        let third = live.apply_delta(&second, news(vec![log(2_000)]), 3).unwrap();
        assert_eq!((third.len(), live.status().error), (2, None));
    }
}
