//! The audit: entries about changes, with actor and reason. They are never changed, and each has the hash of the
//! one before it, so that removing or changing one breaks the chain behind it.
//!
//! ```text
//! hash(n) = SHA-256(hash(n-1) ‖ every other field of n, each behind its length)
//! ```

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::db::Row;
use crate::error::Error;

/// The hash before the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

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
    pub(crate) entries: i64,
    pub(crate) hash: String,
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

    pub(crate) fn of(row: &Row) -> Result<Self, Error> {
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

impl From<BrokenChain> for Error {
    fn from(broken: BrokenChain) -> Self {
        Self::Damaged(broken.to_string())
    }
}
