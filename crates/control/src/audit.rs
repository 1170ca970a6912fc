//! The audit: entries about changes, with actor and reason. They are never changed, and each has the hash of the
//! one before it, so that removing or changing one breaks the chain behind it.
//!
//! ```text
//! hash(n) = SHA-256(hash(n-1) ‖ every other field of n, each behind its length)
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use utoipa::ToSchema;

use crate::access::Action;
use crate::catalog::{Catalog, Page};
use crate::db::{Row, SqlValue};
use crate::error::Error;
use sluicegate_policy::finding;

/// The hash before the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Entries that are read at a time, to be verified or exported: as many as are on a page.
const STEP: i64 = 100;

/// Outcome of an action that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// The action was done.
    Done,
    /// The actor lacked permission, or could not prove who it is.
    Denied,
    /// The action was permitted and not done, for example because the store did not answer.
    Failed,
}

/// An audit entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Entry)]
pub struct AuditEntry {
    /// Sequence number, from 1 without gaps.
    pub seq: i64,
    /// Time, in milliseconds since 1970.
    pub at: i64,
    /// The actor, such as `account:ada`.
    pub actor: String,
    /// Address of the client.
    pub source: String,
    /// The action.
    pub action: String,
    /// The app, if any.
    pub app: Option<String>,
    /// The object of the action.
    pub target: String,
    /// The outcome.
    pub outcome: String,
    /// The reason given.
    pub reason: String,
    /// The value before.
    pub before: Option<String>,
    /// The value after.
    pub after: Option<String>,
    /// Hash of this entry and, through the previous hash, of all earlier entries.
    pub hash: String,
}

/// The object of an audit entry: something of an app, or of none.
#[derive(Clone, Copy, Debug)]
pub struct AuditTarget<'a> {
    app: Option<&'a str>,
    name: &'a str,
}

impl<'a> AuditTarget<'a> {
    /// Returns the target `name` of `app`.
    pub const fn of(app: &'a str, name: &'a str) -> Self {
        Self { app: Some(app), name }
    }

    /// Returns the target `name`, which belongs to no app.
    pub const fn alone(name: &'a str) -> Self {
        Self { app: None, name }
    }

    /// Returns the target `name`, and the app that it belongs to if there is one.
    pub const fn new(app: Option<&'a str>, name: &'a str) -> Self {
        Self { app, name }
    }

    pub(crate) const fn app(&self) -> Option<&'a str> {
        self.app
    }

    pub(crate) const fn name(&self) -> &'a str {
        self.name
    }
}

/// Content of an audit entry about a change.
#[derive(Clone, Debug)]
pub(crate) struct AuditEvent {
    pub(crate) action: &'static str,
    pub(crate) app: Option<String>,
    pub(crate) target: String,
    pub(crate) outcome: AuditOutcome,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

/// Time and actor of the last change of something.
#[derive(Clone, Debug)]
pub(crate) struct LastChange {
    pub(crate) at: i64,
    pub(crate) actor: String,
}

/// The result of a successful verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Verified {
    /// Number of entries.
    pub entries: i64,
    /// Hash of the last entry; keep it elsewhere to detect a replaced chain.
    pub head: String,
}

/// The chain of entries, as far as it was verified from its beginning.
#[derive(Clone, Debug)]
pub struct Chain {
    entries: i64,
    hash: String,
}

/// The first entry at which the chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenChain {
    /// The entry is missing.
    #[error("entry {0} of the audit is missing")]
    Missing(i64),
    /// The entry is beyond the last one that was written.
    #[error("entry {0} of the audit is beyond the head: it was not written by the catalog")]
    Beyond(i64),
    /// The entry, or one before it, was changed.
    #[error("entry {} of the audit was changed: it now reads `{}` of `{}` by `{}`", .0.seq, .0.action, .0.target, .0.actor)]
    Changed(Box<AuditEntry>),
}

/// Filter of audit entries.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// App of the entries; none: all.
    pub app: Option<String>,
    /// Filter on the fields of an entry.
    pub entry: EntryFilter,
}

/// Filter on the fields of an entry; an empty or absent field matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// The exact actor: `account:ada`.
    pub actor: String,
    /// The exact action: `policy.update`.
    pub action: String,
    /// The exact object of the action.
    pub target: String,
    /// The outcome.
    pub outcome: Option<AuditOutcome>,
    /// From this time on, in milliseconds since 1970.
    pub since: Option<i64>,
    /// Before this time, in milliseconds since 1970.
    pub until: Option<i64>,
}

impl Default for Chain {
    fn default() -> Self {
        Self { entries: 0, hash: GENESIS.to_owned() }
    }
}

impl Chain {
    /// Returns a chain that is verified up to the entry `seq`, which has this hash.
    pub const fn behind(seq: i64, hash: String) -> Self {
        Self { entries: seq, hash }
    }

    /// Verifies the next entry.
    ///
    /// # Errors
    /// [`BrokenChain`]: it is not the next one, or not what was written.
    pub fn add(&mut self, entry: &AuditEntry) -> Result<(), BrokenChain> {
        if entry.seq != self.entries + 1 {
            return Err(BrokenChain::Missing(self.entries + 1));
        }
        if entry.hash_behind(&self.hash) != entry.hash {
            return Err(BrokenChain::Changed(Box::new(entry.clone())));
        }
        (self.entries, self.hash) = (entry.seq, entry.hash.clone());
        Ok(())
    }

    /// Returns the result of the verification so far.
    pub fn verified(self) -> Verified {
        Verified { entries: self.entries, head: self.hash }
    }
}

impl AuditEntry {
    /// Returns the entry as a line of an export, without the line break. Invisible characters are escaped.
    pub fn line(&self) -> String {
        crate::json::text(self)
    }

    /// Computes the hash that the entry should have behind one with the hash `before`.
    pub(crate) fn hash_behind(&self, before: &str) -> String {
        let mut hash = Sha256::new();
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        put(before.as_bytes());
        put(&self.seq.to_be_bytes());
        put(&self.at.to_be_bytes());
        for text in [&self.actor, &self.source, &self.action, &self.target, &self.outcome] {
            put(text.as_bytes());
        }
        put(self.reason.as_bytes());
        // An absent field and an empty one have different hashes.
        for text in [&self.app, &self.before, &self.after] {
            put(&[u8::from(text.is_some())]);
            put(text.as_deref().unwrap_or_default().as_bytes());
        }
        format!("{:x}", hash.finalize())
    }

    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            seq: row.get(0)?,
            at: row.get(1)?,
            actor: row.get(2)?,
            source: row.get(3)?,
            action: row.get(4)?,
            app: row.get(5)?,
            target: row.get(6)?,
            outcome: row.get(7)?,
            reason: row.get(8)?,
            before: row.get(9)?,
            after: row.get(10)?,
            hash: row.get(11)?,
        })
    }
}

impl AuditOutcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// The columns of an entry, in its order. Rows behind the head are left out: no change wrote them.
macro_rules! entries {
    (of_app) => { entries!("app = ? AND ", any_app) };
    (any_app) => { entries!("", any_app) };
    ($of:literal, any_app) => {
        entries!(
            $of,
            "(? = '' OR actor = ?) AND (? = '' OR action = ?) AND (? = '' OR target = ?) AND \
             (? = '' OR outcome = ?) AND at >= ? AND at < ? AND seq < ? ORDER BY seq DESC LIMIT ?"
        )
    };
    ($($which:literal),+) => {
        concat!(
            "SELECT seq, at, actor, source, action, app, target, outcome, reason, before_change, ",
            "after_change, hash FROM audit ",
            "WHERE seq <= (SELECT audit_seq FROM head WHERE id = 1) AND ",
            $($which),+
        )
    };
}

impl Catalog {
    /// Returns entries, the newest first, before the one that `page` names.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an invalid cursor, and those of the database.
    pub async fn audit(&self, filter: &AuditFilter, page: &Page) -> Result<Vec<AuditEntry>, Error> {
        let before = page.after.as_deref().map_or(Ok(i64::MAX), str::parse);
        let before = before
            .map_err(|_| Error::invalid("/after", finding!("bad_cursor", "invalid cursor")))?;
        let limit = page.limit_of_documents();
        let EntryFilter { actor, action, target, outcome, since, until } = &filter.entry;
        let outcome = outcome.map_or("", AuditOutcome::name);
        let asked = [actor, action, target, outcome].into_iter();
        let mut values: Vec<SqlValue> =
            asked.flat_map(|text| [SqlValue::from(text), text.into()]).collect();
        let span = [since.unwrap_or(0), until.unwrap_or(i64::MAX), before, limit];
        values.extend(span.map(SqlValue::from));
        let rows = match &filter.app {
            None => self.db.rows(entries!(any_app), &values).await?,
            Some(app) => {
                values.insert(0, app.into());
                self.db.rows(entries!(of_app), &values).await?
            }
        };
        rows.iter().map(AuditEntry::of).collect()
    }

    /// Returns entries in the order in which they were made, behind the one numbered `seq`: at most a
    /// hundred of them.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_since(&self, seq: i64) -> Result<Vec<AuditEntry>, Error> {
        let sql = entries!("seq > ? ORDER BY seq LIMIT ?");
        let rows = self.db.rows(sql, &[seq.into(), STEP.into()]).await?;
        rows.iter().map(AuditEntry::of).collect()
    }

    /// Verifies every entry.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first that is not what was written, or is missing.
    pub async fn verify_audit(&self) -> Result<Verified, Error> {
        self.verify_audit_with(|_| ()).await
    }

    /// Verifies every entry, and passes each valid one to `look`.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first that is not what was written, or is missing.
    pub async fn verify_audit_with(
        &self,
        look: impl FnMut(&AuditEntry),
    ) -> Result<Verified, Error> {
        Ok(self.verify_audit_part(Chain::default(), i64::MAX, look).await?.0)
    }

    /// Verifies the entries behind `chain`, at most `most` rounded up to a page. Also returns whether these were all.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first that is not what was written, or is missing.
    pub async fn verify_audit_part(
        &self,
        mut chain: Chain,
        most: i64,
        mut look: impl FnMut(&AuditEntry),
    ) -> Result<(Verified, bool), Error> {
        let until = chain.entries.saturating_add(most);
        // Entries that are added meanwhile are left out.
        let ChainHead { last, hash, beyond } = self.audit_head().await?;
        while chain.entries < last {
            if chain.entries >= until {
                return Ok((chain.verified(), false));
            }
            let entries = self.audit_since(chain.entries).await;
            let mut entries = entries.map_err(|error| unreadable(chain.entries, error))?;
            entries.retain(|entry| entry.seq <= last);
            if entries.is_empty() {
                break;
            }
            // Hashing a page of the longest entries takes tens of milliseconds.
            let hashed = spawn_blocking(move || {
                entries.iter().try_for_each(|entry| chain.add(entry)).map(|()| (chain, entries))
            });
            let hashed = hashed.await.map_err(|error| Error::Damaged(error.to_string()))?;
            let (added, entries) = hashed.map_err(Error::from)?;
            chain = added;
            entries.iter().for_each(&mut look);
        }
        if (chain.entries, &chain.hash) != (last, &hash) {
            return Err(BrokenChain::Missing(last).into());
        }
        match beyond {
            Some(seq) => Err(BrokenChain::Beyond(seq).into()),
            None => Ok((chain.verified(), true)),
        }
    }

    /// Returns the last time that `action` was done to each target of an app.
    pub(crate) async fn last_changes(
        &self,
        app: &str,
        action: Action,
    ) -> Result<BTreeMap<String, LastChange>, Error> {
        let sql = "SELECT target, at, actor FROM audit WHERE app = ? AND action = ? AND outcome = 'done' \
                   AND seq <= (SELECT audit_seq FROM head WHERE id = 1) ORDER BY seq";
        let rows = self.db.rows(sql, &[app.into(), action.name().into()]).await?;
        let change =
            |row: &Row| Ok((row.get(0)?, LastChange { at: row.get(1)?, actor: row.get(2)? }));
        rows.iter().map(change).collect()
    }

    /// Returns the head and what is beyond it with one query, since entries and the head are written together.
    async fn audit_head(&self) -> Result<ChainHead, Error> {
        let sql = "SELECT h.audit_seq, h.audit_hash, \
                   (SELECT MIN(a.seq) FROM audit a WHERE a.seq > h.audit_seq) \
                   FROM head h WHERE h.id = 1";
        let row = self.db.row(sql, &[]).await?;
        let row = row.ok_or_else(|| Error::Damaged("missing head".to_owned()))?;
        Ok(ChainHead { last: row.get(0)?, hash: row.get(1)?, beyond: row.get(2)? })
    }
}

/// The end of the chain.
struct ChainHead {
    last: i64,
    hash: String,
    /// The first entry behind it, which no change has written; none if there is none.
    beyond: Option<i64>,
}

/// Adds to an error the entry behind which the audit cannot be read.
fn unreadable(behind: i64, error: Error) -> Error {
    match error {
        Error::Damaged(problem) => {
            Error::Damaged(format!("after entry {behind} of the audit: {problem}"))
        }
        other => other,
    }
}

impl From<BrokenChain> for Error {
    fn from(broken: BrokenChain) -> Self {
        Self::Damaged(broken.to_string())
    }
}
