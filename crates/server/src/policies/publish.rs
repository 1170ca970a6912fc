//! Publishes the policies of the files in Redis, for programs that decide there themselves (`spec/redis-protocol.md`).
//!
//! Every server reads its own files, and no revision says which files are later. So a revision is the
//! instant at which a server took its files over: the policies of the server that did so last are
//! published, and decide keys that several servers share as well. A server that finds its own policies
//! published leaves them as they are, however often it is started.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use sluicegate::internals::record_of;
use sluicegate::internals::store::redis::{
    POLICIES_FORMAT, PolicyRecord, Publication, PublicationPolicy, PublicationSource,
    PublishOutcome,
};
use sluicegate_policy::Policy;
use sluicegate_text::documents::{DocumentSource, Located, WrittenFile};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::PolicyManager;
use crate::store::RedisBackend;

/// Interval between checks whether Redis still has the policies: it may have lost its data.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The policies of the files, as they are published.
#[derive(Debug)]
struct PublishedFiles {
    /// The instant when the files were taken over, in ms since the Unix epoch.
    revision: i64,
    /// SHA-256 of the documents.
    digest: String,
    /// The policies in the order of their names.
    policies: Vec<FilePolicy>,
}

#[derive(Debug)]
struct FilePolicy {
    name: String,
    document: String,
}

/// The record of `policy`; `None` if its document cannot be read.
pub(crate) fn compile(policy: &PublicationPolicy<'_>) -> Option<PolicyRecord> {
    let read = Policy::parse_kept(policy.document).ok()?;
    Some(record_of(&if policy.is_shadow { read.shadowed() } else { read }))
}

/// The records of the policies in `files`, as a server publishes them in Redis: a JSON object of their format and of
/// each policy by its name, in that order. Their version is 1, and they have no instant. The inner error lists the
/// problems in the files.
///
/// # Errors
/// If the files cannot be read.
pub fn records(files: &DocumentSource) -> Result<Result<String, Vec<Located>>> {
    let policies = match files.written()? {
        Ok(written) => named(written)?,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let mut lines = vec![format!("  \"#format\": {POLICIES_FORMAT}")];
    for policy in &policies {
        let record = policy.publication(1, None).field(compile)?;
        lines.push(format!("  {}: {record}", json!(policy.name)));
    }
    Ok(Ok(format!("{{\n{}\n}}\n", lines.join(",\n"))))
}

/// The policies of files in the order of their names.
fn named(written: Vec<WrittenFile>) -> Result<Vec<FilePolicy>> {
    let policies = written.into_iter().flat_map(|(_, policies)| policies).map(FilePolicy::new);
    let mut policies = policies.collect::<Option<Vec<_>>>().context("a policy without a name")?;
    policies.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(policies)
}

/// Publishes the policies of `files` that are in force when they change, and checks at intervals whether
/// they are still there, until `stop`.
pub(crate) async fn run(
    files: &DocumentSource,
    live: &PolicyManager,
    store: &RedisBackend,
    stop: &CancellationToken,
) {
    let publishing = async {
        let mut publisher = FilesPublisher::default();
        loop {
            publisher.look(files, live, store).await;
            tokio::select! {
                () = live.changed() => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    };
    stop.run_until_cancelled(publishing).await;
}

#[derive(Debug, Default)]
struct FilesPublisher {
    /// The version in force, and its files, which were read again.
    held: Option<(u64, Arc<PublishedFiles>)>,
    failure: PublishFailure,
}

/// Remembers whether publishing fails, so that it is logged once.
#[derive(Debug, Default)]
pub(crate) struct PublishFailure(bool);

impl PublishFailure {
    /// Logs `problem` unless the attempt before had one too.
    pub(crate) fn record(&mut self, problem: Option<&str>) {
        if let Some(problem) = problem
            && !self.0
        {
            tracing::warn!("cannot publish policies in Redis: {problem}");
        }
        self.0 = problem.is_some();
    }
}

impl FilesPublisher {
    async fn look(&mut self, files: &DocumentSource, live: &PolicyManager, store: &RedisBackend) {
        let looked = async {
            let held = self.read(files, live).await?;
            publish(store, &held).await
        };
        let problem = looked.await.err().map(|error| format!("{error:#}"));
        self.failure.record(problem.as_deref());
    }

    /// Returns the policies in force.
    async fn read(
        &mut self,
        files: &DocumentSource,
        live: &PolicyManager,
    ) -> Result<Arc<PublishedFiles>> {
        let status = live.status();
        if let Some((version, held)) = &self.held
            && *version == status.version
        {
            return Ok(Arc::clone(held));
        }
        // The files are of this version, also if there is a later one by then.
        let version = status.version;
        let (files, revision) = (files.clone(), status.read_at_us / 1_000);
        let read = spawn_blocking(move || PublishedFiles::read(&files, &status.hash, revision));
        let held = Arc::new(read.await.context("reading files")??);
        self.held = Some((version, Arc::clone(&held)));
        Ok(held)
    }
}

async fn publish(store: &RedisBackend, held: &PublishedFiles) -> Result<()> {
    let policies = held.policies.iter();
    let policies: Vec<_> =
        policies.map(|policy| policy.publication(held.revision, Some(held.revision))).collect();
    let source = PublicationSource::Files { digest: &held.digest };
    let published =
        store.publish(&Publication::new(held.revision, &policies, source, compile)).await?;
    match published {
        PublishOutcome::Written
        | PublishOutcome::Known
        | PublishOutcome::Later { .. }
        | PublishOutcome::Busy => Ok(()),
        PublishOutcome::LaterFormat { format } => Err(anyhow!(later_format(format))),
        PublishOutcome::OfCatalog => Err(anyhow!("those of a catalog are there")),
    }
}

/// The problem of publishing where a later version of the program has published.
pub(crate) fn later_format(format: u32) -> String {
    format!("a later version of Sluicegate wrote them, in format {format}")
}

impl PublishedFiles {
    /// Reads `files`, if they still have this `hash`: they may have changed since.
    fn read(files: &DocumentSource, hash: &str, revision: u64) -> Result<Self> {
        let read = || anyhow::Ok((files.load()?.hash, files.written()?));
        let (found, written) = read()?;
        if found != hash {
            return Err(anyhow!("the files are not those in force"));
        }
        let written = written.map_err(|_| anyhow!("the files are not those in force"))?;
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        Ok(Self { revision, digest: hash.to_owned(), policies: named(written)? })
    }
}

impl FilePolicy {
    /// The policy as it is published, with this version.
    fn publication(&self, version: i64, since_ms: Option<i64>) -> PublicationPolicy<'_> {
        let Self { name, document } = self;
        PublicationPolicy { name, app: "", is_shadow: false, version, since_ms, document }
    }

    /// Reads the policy in `document`; `None` if it has no name. A policy without apps gets every app,
    /// as it has in a file.
    fn new(document: Value) -> Option<Self> {
        let Value::Object(mut members) = document else { return None };
        members.entry("apps").or_insert_with(|| json!(["*"]));
        let name = members.get("name")?.as_str()?.to_owned();
        Some(Self { name, document: Value::Object(members).to_string() })
    }
}
