//! Policies for programs that decide in Redis themselves: `spec/redis-protocol.md`.
//!
//! ```text
//! look ─▶ as new, or newer ─▶ nothing to do
//!      ├▶ older, and little has changed ─▶ change: one call
//!      └▶ nothing, or too much ─▶ stage, stage, .. beside it ─▶ swap
//! ```
//!
//! A write names the head that was found, and changes nothing if that is not there any more: a late writer looks
//! again, and finds that there is nothing left to do. No call carries more than [`CALL_BYTES_MAX`] and a policy,
//! and half a publication is never visible. All of a fleet stage under one name, so only one of them does at a
//! time.

use std::time::Duration;

use redis::{Cmd, Value};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::codec::ScriptClock;
use super::record::PolicyRecord;
use super::request::RequestKind;
use super::{LuaScript, RedisClient, RedisError, ServerErrorReply};
use crate::{Executed, StoreError};

/// The hash that has the policies.
pub const POLICIES_KEY: &str = "sg:{policies}";

/// The channel on which new revisions are announced.
pub const POLICIES_CHANNEL: &str = "sg:policies";

/// The format of the written fields.
pub const POLICIES_FORMAT: u32 = 1;

/// The largest revision: like every number, exact in a double.
pub const REVISION_MAX: i64 = (1 << 53) - 1;

/// The key at which policies are staged, in the same slot.
const NEXT_KEY: &str = "sg:{policies}:next";

/// Most policies in one call: some 0.1 ms of Redis' time.
const CALL_POLICIES_MAX: usize = 100;

/// Bytes of policies after which no other is added to a call: less than a millisecond of a link.
const CALL_BYTES_MAX: usize = 128 << 10;

/// The longest time of a call: longer than the deadlines of decisions, because no request waits here.
pub(super) const CALL_MAX: Duration = Duration::from_secs(1);

/// The longest time of one publication: ten thousand policies are a hundred calls, of a few milliseconds each where
/// Redis is far away.
const PUBLISH_MAX: Duration = Duration::from_secs(30);

/// The time for which staged policies outlive their last call. Longer than a call may take, and short enough that
/// others go on soon after a writer died.
const NEXT_TTL: Duration = Duration::from_secs(5);

/// The most times that a writer reads the head: again only if another writer has published since, which seldom
/// happens twice.
const LOOKS_MAX: usize = 4;

/// Fields that are staged beside the policies: `#attempt`, `#format` and `#revision`.
const OWN_FIELDS: usize = 3;

const SCRIPT: LuaScript = LuaScript {
    text: include_str!("publish.lua"),
    sha1: include_str!(concat!(env!("OUT_DIR"), "/publish.sha1")),
};

/// A revision of the policies.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'p> {
    /// Its number, in 0..=[`REVISION_MAX`]. What comes later has a larger one.
    pub revision: i64,
    /// Every policy, in the order of their names.
    pub policies: &'p [PublicationPolicy<'p>],
    /// The changes, if they are known. Without them, all policies are written.
    pub changed: Option<RevisionDiff<'p>>,
    /// The revision that this one replaces although it is later: the catalog went back, or is another one. A writer
    /// that got [`PublishOutcome::Later`], and then finds that the catalog has not got so far, may set it; so may
    /// one that published that revision from a catalog that no longer exists.
    pub instead_of: Option<i64>,
    /// The source of the policies.
    pub source: PublicationSource<'p>,
    /// The clock by which servers decide in this Redis.
    pub clock: ScriptClock,
    /// Number of nodes that share a limit without Redis, where it is configured.
    pub nodes: Option<u32>,
    /// The record of a policy; `None` for one that this program cannot compile.
    pub compile: fn(&PublicationPolicy<'_>) -> Option<PolicyRecord>,
}

/// The source of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationSource<'p> {
    /// A catalog, of which every server has the same revisions. It takes the place of files.
    Catalog,
    /// Files, which every server reads by itself: the revision is when this one took them over, and published files
    /// are not written again. A catalog's policies stay.
    Files {
        /// A hash of all that is in them.
        digest: &'p str,
    },
}

/// The difference between a revision and an earlier one.
#[derive(Clone, Copy, Debug)]
pub struct RevisionDiff<'p> {
    /// The earlier one.
    pub since: i64,
    /// The names of all policies that are new, changed or gone since. Those that the publication does
    /// not have are gone.
    pub names: &'p [&'p str],
}

/// A policy as it is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicationPolicy<'p> {
    /// Unique; it does not begin with `#`.
    pub name: &'p str,
    /// The name of its app.
    pub app: &'p str,
    /// The policy only reports what it would refuse: its state is `shadow`.
    pub is_shadow: bool,
    /// The number of its version.
    pub version: i64,
    /// The time at which this version was made or taken over, in ms since the Unix epoch, 0..=[`REVISION_MAX`]:
    /// programs take it over as of then, so that none that starts late has an earlier version that looks like the later
    /// one.
    pub since_ms: Option<i64>,
    /// The policy as a JSON object, as in `policies[]` of a policy document.
    pub document: &'p str,
}

/// The outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// Redis has it now, and it was announced on the channel.
    Written,
    /// Redis had it before.
    Known,
    /// A later revision is there, and stays: another writer was faster, or the catalog went back.
    Later {
        /// The later revision.
        revision: i64,
    },
    /// Another writer is writing all policies just now. Try again a little later.
    Busy,
    /// A later version of Sluicegate writes policies here, in another format, which stays.
    LaterFormat {
        /// The later format.
        format: u32,
    },
    /// A catalog publishes here, and files do not take its place.
    OfCatalog,
}

/// Why policies were not published. It may be tried again: present policies are not written twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The publication is invalid.
    #[error("{field}: {problem}")]
    Unusable {
        /// The field, with its place.
        field: String,
        /// The problem.
        problem: String,
    },
    /// Redis did not answer in time, or refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The fields of the hash beside the policies; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PublishedHead {
    format: String,
    revision: String,
    files: String,
    clock: String,
    nodes: String,
}

/// The plan of a writer.
#[derive(Debug, PartialEq, Eq)]
enum PublishPlan {
    /// No write.
    Leave(PublishOutcome),
    /// Write these policies in place.
    Change(Vec<String>),
    /// Write all policies.
    Whole,
}

/// The field of a policy.
#[derive(Serialize)]
struct PolicyField<'p> {
    version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<i64>,
    state: &'static str,
    app: &'p str,
    #[serde(flatten)]
    record: Option<PolicyRecord>,
    document: &'p RawValue,
}

/// Writes `publication` into the Redis of `client`, if it is not there yet.
pub(super) async fn publish(
    client: &RedisClient,
    publication: &Publication<'_>,
) -> Result<PublishOutcome, PublishError> {
    publication.check()?;
    let writer = Writer { client, until: Instant::now() + PUBLISH_MAX };
    for _ in 0..LOOKS_MAX {
        let found = writer.read_head().await?;
        let is_done = match PublishPlan::new(&found, publication)? {
            PublishPlan::Leave(published) => return Ok(published),
            PublishPlan::Change(policies) => writer.change(&found, publication, policies).await?,
            PublishPlan::Whole => match writer.write_whole(&found, publication).await? {
                None => return Ok(PublishOutcome::Busy),
                Some(is_done) => is_done,
            },
        };
        if is_done {
            return Ok(PublishOutcome::Written);
        }
    }
    Err(StoreError::Contended { executed: Executed::No }.into())
}

impl<'p> Publication<'p> {
    /// Returns a publication of all of `policies`, without known changes; decided by Redis' clock among any number
    /// of nodes.
    pub const fn new(
        revision: i64,
        policies: &'p [PublicationPolicy<'p>],
        source: PublicationSource<'p>,
        compile: fn(&PublicationPolicy<'_>) -> Option<PolicyRecord>,
    ) -> Self {
        let (changed, instead_of, clock, nodes) = (None, None, ScriptClock::Server, None);
        Self { revision, policies, changed, instead_of, source, clock, nodes, compile }
    }
}

impl Publication<'_> {
    fn check(&self) -> Result<(), PublishError> {
        if !(0..=REVISION_MAX).contains(&self.revision) {
            let problem = format!("`{}` is outside 0..={REVISION_MAX}", self.revision);
            return Err(unusable("revision".to_owned(), &problem));
        }
        for (place, policy) in self.policies.iter().enumerate() {
            let field = || format!("policies[{place}].name");
            named(policy.name, field)?;
            if place > 0 && self.policies[place - 1].name >= policy.name {
                let problem = format!("`{}` is not in name order", policy.name);
                return Err(unusable(field(), &problem));
            }
        }
        let names = self.changed.map_or(&[][..], |changed| changed.names).iter().enumerate();
        for (place, name) in names {
            named(name, || format!("changed.names[{place}]"))?;
        }
        Ok(())
    }

    fn policy(&self, name: &str) -> Option<&PublicationPolicy<'_>> {
        let place = self.policies.binary_search_by(|policy| policy.name.cmp(name)).ok()?;
        self.policies.get(place)
    }

    /// Returns the changes from revision `there` to this one: names and texts in turn; `None` if they are not
    /// known, or too much for one call.
    fn changes(&self, there: i64) -> Result<Option<Vec<String>>, PublishError> {
        // The changes since an earlier revision than `there` contain those since `there`.
        let changed = self.changed.filter(|changed| changed.since <= there);
        let Some(RevisionDiff { names, .. }) = changed else { return Ok(None) };
        if names.len() > CALL_POLICIES_MAX {
            return Ok(None);
        }
        let mut policies = Vec::with_capacity(2 * names.len());
        let mut bytes = 0;
        for name in names {
            let text = self.policy(name).map_or(Ok(String::new()), |it| it.field(self.compile))?;
            if bytes >= CALL_BYTES_MAX {
                return Ok(None);
            }
            bytes += text.len();
            policies.extend([(*name).to_owned(), text]);
        }
        Ok(Some(policies))
    }

    /// Returns the fields beside the policies: names and texts. An empty text means no field.
    fn settings(&self) -> [(&'static str, String); 3] {
        let clock = if self.clock == ScriptClock::Server { "server" } else { "client" };
        let files = match self.source {
            PublicationSource::Catalog => "",
            PublicationSource::Files { digest } => digest,
        };
        let nodes = self.nodes.map(|nodes| nodes.to_string()).unwrap_or_default();
        [("#clock", clock.to_owned()), ("#files", files.to_owned()), ("#nodes", nodes)]
    }

    /// Returns whether `found` has the same fields beside the policies.
    fn is_set_as(&self, found: &PublishedHead) -> bool {
        let [(_, clock), (_, files), (_, nodes)] = self.settings();
        (&clock, &files, &nodes) == (&found.clock, &found.files, &found.nodes)
    }
}

impl PublicationPolicy<'_> {
    /// Returns the text of its field: its record, and the document that the record was made of.
    ///
    /// # Errors
    /// [`PublishError::Unusable`] if `document` is not a JSON object.
    pub fn field(
        &self,
        compile: fn(&Self) -> Option<PolicyRecord>,
    ) -> Result<String, PublishError> {
        let Self { name, app, is_shadow, version, since_ms, document } = *self;
        let field = || format!("policy `{name}`");
        let document: &RawValue =
            serde_json::from_str(document).map_err(|_| unusable(field(), "is not JSON"))?;
        if !document.get().starts_with('{') {
            return Err(unusable(field(), "is not a JSON object"));
        }
        let state = if is_shadow { "shadow" } else { "active" };
        let record = compile(self);
        let text =
            serde_json::to_string(&PolicyField { version, since_ms, state, app, record, document });
        Ok(text.expect("texts and numbers are JSON"))
    }
}

/// Refuses an invalid name, which would be another field.
fn named(name: &str, field: impl Fn() -> String) -> Result<(), PublishError> {
    match name.is_empty() || name.starts_with('#') {
        true => Err(unusable(field(), &format!("invalid name `{name}`"))),
        false => Ok(()),
    }
}

fn unusable(field: String, problem: &str) -> PublishError {
    PublishError::Unusable { field, problem: problem.to_owned() }
}

impl PublishedHead {
    /// Reads the reply to `HMGET`.
    fn read(reply: &Value) -> Option<Self> {
        let text = |value: &Value| match value {
            Value::Nil => Some(String::new()),
            Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
            _ => None,
        };
        let Value::Array(values) = reply else { return None };
        let [format, revision, files, clock, nodes] = &values[..] else { return None };
        Some(Self {
            format: text(format)?,
            revision: text(revision)?,
            files: text(files)?,
            clock: text(clock)?,
            nodes: text(nodes)?,
        })
    }
}

impl PublishPlan {
    fn new(found: &PublishedHead, publication: &Publication<'_>) -> Result<Self, PublishError> {
        match found.format.parse() {
            Ok(format) if format > POLICIES_FORMAT => {
                return Ok(Self::Leave(PublishOutcome::LaterFormat { format }));
            }
            Ok(POLICIES_FORMAT) => {}
            _ => return Ok(Self::Whole),
        }
        let Ok(there) = found.revision.parse::<i64>() else { return Ok(Self::Whole) };
        let Publication { revision, instead_of, source, .. } = *publication;
        let is_known = match source {
            PublicationSource::Files { .. } if found.files.is_empty() => {
                return Ok(Self::Leave(PublishOutcome::OfCatalog));
            }
            PublicationSource::Files { digest } => found.files == digest,
            PublicationSource::Catalog if !found.files.is_empty() => return Ok(Self::Whole),
            PublicationSource::Catalog => there == revision,
        };
        Ok(match there {
            _ if instead_of == Some(there) => Self::Whole,
            _ if is_known && publication.is_set_as(found) => Self::Leave(PublishOutcome::Known),
            // The policies are there; only the fields beside them differ.
            _ if is_known => Self::Change(Vec::new()),
            _ if there >= revision => Self::Leave(PublishOutcome::Later { revision: there }),
            _ => publication.changes(there)?.map_or(Self::Whole, Self::Change),
        })
    }
}

/// Writes one publication.
struct Writer<'c> {
    client: &'c RedisClient,
    until: Instant,
}

impl Writer<'_> {
    async fn read_head(&self) -> Result<PublishedHead, RedisError> {
        let mut command = redis::cmd("HMGET");
        command.arg(POLICIES_KEY).arg(&["#format", "#revision", "#files", "#clock", "#nodes"]);
        match self.call(RequestKind::Plain(command)).await {
            // A value of another type is replaced.
            Err(RedisError::Refused(error)) if error.is_wrong_type() => {
                Ok(PublishedHead::default())
            }
            reply => PublishedHead::read(&reply?).ok_or(RedisError::Malformed),
        }
    }

    /// Writes `policies` if the head is still `found`.
    async fn change(
        &self,
        found: &PublishedHead,
        publication: &Publication<'_>,
        policies: Vec<String>,
    ) -> Result<bool, RedisError> {
        let mut command = script(&[POLICIES_KEY], "change");
        command.arg(&found.format).arg(&found.revision);
        // The revision of files that are there already stays.
        match publication.source {
            PublicationSource::Files { .. } => command.arg(POLICIES_CHANNEL).arg(&found.revision),
            PublicationSource::Catalog => command.arg(POLICIES_CHANNEL).arg(publication.revision),
        };
        command.arg(policies);
        for (name, text) in publication.settings() {
            command.arg(name).arg(text);
        }
        self.run(command).await
    }

    /// Writes all policies in place of `found`; `None` if another writer is at work.
    async fn write_whole(
        &self,
        found: &PublishedHead,
        publication: &Publication<'_>,
    ) -> Result<Option<bool>, PublishError> {
        let attempt = format!("{:016x}", fastrand::u64(..));
        let mut rest = publication.policies;
        let mut command = stage(&attempt, "");
        command.arg("#format").arg(POLICIES_FORMAT).arg("#revision").arg(publication.revision);
        let mut fields = publication.policies.len() + OWN_FIELDS;
        for (name, text) in publication.settings().into_iter().filter(|(_, text)| !text.is_empty())
        {
            command.arg(name).arg(text);
            fields += 1;
        }
        let mut is_first = true;
        loop {
            rest = add(&mut command, rest, publication.compile)?;
            if !self.run(command).await? {
                return Ok((!is_first).then_some(false));
            }
            if rest.is_empty() {
                break;
            }
            is_first = false;
            command = stage(&attempt, &attempt);
        }
        let mut command = script(&[POLICIES_KEY, NEXT_KEY], "swap");
        command.arg(&found.format).arg(&found.revision);
        command.arg(POLICIES_CHANNEL).arg(publication.revision);
        command.arg(&attempt).arg(fields);
        Ok(Some(self.run(command).await?))
    }

    /// Returns whether the script made the change.
    async fn run(&self, command: Cmd) -> Result<bool, RedisError> {
        match self.call(RequestKind::Other(SCRIPT, command)).await? {
            Value::Int(done @ 0..=1) => Ok(done == 1),
            _ => Err(RedisError::Malformed),
        }
    }

    async fn call(&self, what: RequestKind) -> Result<Value, RedisError> {
        let deadline = self.until.min(Instant::now() + CALL_MAX);
        let reply = self.client.command(POLICIES_KEY.as_bytes(), what, deadline).await;
        self.client.account(reply.and_then(|value| match value {
            Value::ServerError(error) => Err(RedisError::Refused(ServerErrorReply::from(&error))),
            value => Ok(value),
        }))
    }
}

impl From<RedisError> for PublishError {
    fn from(error: RedisError) -> Self {
        Self::Store(error.into())
    }
}

fn script(keys: &[&str], what: &str) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SCRIPT.sha1).arg(keys.len()).arg(keys).arg(what);
    command
}

/// Returns the command that stages policies of `attempt` behind those that `before` has staged.
fn stage(attempt: &str, before: &str) -> Cmd {
    let mut command = script(&[NEXT_KEY], "stage");
    command.arg(attempt).arg(before).arg(NEXT_TTL.as_millis().to_string());
    command
}

/// Adds the first of `policies` to `command`, as many as one call may carry, and returns the others.
fn add<'p>(
    command: &mut Cmd,
    policies: &'p [PublicationPolicy<'p>],
    compile: fn(&PublicationPolicy<'_>) -> Option<PolicyRecord>,
) -> Result<&'p [PublicationPolicy<'p>], PublishError> {
    let (mut bytes, mut count) = (0, 0);
    for policy in policies.iter().take(CALL_POLICIES_MAX) {
        if bytes >= CALL_BYTES_MAX {
            break;
        }
        let text = policy.field(compile)?;
        bytes += text.len();
        count += 1;
        command.arg(policy.name).arg(text);
    }
    Ok(&policies[count..])
}
