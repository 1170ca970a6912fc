//! What was changed, by whom, and why: entries that are never changed, each with the hash of the one
//! before it. Whoever takes one away, or changes one, breaks the chain behind it.
//!
//! ```text
//! hash(n) = SHA-256(hash(n-1) ‖ every other field of n, each behind its length)
//! ```

use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::catalog::{Catalog, Page};
use crate::db::{Row, Value};
use crate::error::Error;

/// The hash before the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Entries that are read at a time, to be verified or exported.
const STEP: i64 = 1_000;

/// How something ended that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not for the one who tried.
    Denied,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Entry {
    /// Counted from 1, without gaps.
    pub seq: i64,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// Who.
    pub actor: String,
    /// From where.
    pub source: String,
    /// What was done.
    pub action: String,
    /// In which app.
    pub app: Option<String>,
    /// To what.
    pub target: String,
    /// How it ended.
    pub outcome: String,
    /// Why.
    pub reason: String,
    /// What it was before.
    pub before: Option<String>,
    /// What it was afterwards.
    pub after: Option<String>,
    /// Of this entry and, by way of the one before, of all before it.
    pub hash: String,
}

/// What is noted of a change.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) action: &'static str,
    pub(crate) app: Option<String>,
    pub(crate) target: String,
    pub(crate) outcome: Outcome,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

/// That the chain holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Verified {
    /// How many entries there are.
    pub entries: i64,
    /// The hash of the last: whoever keeps it elsewhere will know if all of them are replaced.
    pub head: String,
}

/// Which entries.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this app only.
    pub app: Option<String>,
}

impl Entry {
    /// The hash that it should have, behind one with the hash `before`.
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
        // What is not there is not the same as what is empty.
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

impl Outcome {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Denied => "denied",
        }
    }
}

/// The columns of an entry, in its order.
macro_rules! entries {
    ($which:literal) => {
        concat!(
            "SELECT seq, at, actor, source, action, app, target, outcome, reason, before_change, ",
            "after_change, hash FROM audit WHERE ",
            $which
        )
    };
}

impl Catalog {
    /// Entries, the newest first, before the one that `page` names.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit(&self, filter: &Filter, page: &Page) -> Result<Vec<Entry>, Error> {
        let before = page.after.as_deref().map_or(Ok(i64::MAX), str::parse);
        let before = before.map_err(|_| Error::invalid("/after", "is no cursor of this list"))?;
        let limit = Value::from(page.limit());
        let rows = match &filter.app {
            None => {
                let sql = entries!("seq < ? ORDER BY seq DESC LIMIT ?");
                self.db.rows(sql, &[before.into(), limit]).await?
            }
            Some(app) => {
                let sql = entries!("app = ? AND seq < ? ORDER BY seq DESC LIMIT ?");
                self.db.rows(sql, &[app.into(), before.into(), limit]).await?
            }
        };
        rows.iter().map(Entry::of).collect()
    }

    /// Entries in the order in which they were made, behind the one numbered `seq`: at most a
    /// thousand of them.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_since(&self, seq: i64) -> Result<Vec<Entry>, Error> {
        let sql = entries!("seq > ? ORDER BY seq LIMIT ?");
        let rows = self.db.rows(sql, &[seq.into(), STEP.into()]).await?;
        rows.iter().map(Entry::of).collect()
    }

    /// Looks at every entry.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the first that is not what was written, or is missing.
    pub async fn verify_audit(&self) -> Result<Verified, Error> {
        let (mut seq, mut hash) = (0, GENESIS.to_owned());
        // What is added meanwhile is of no concern.
        let (last, head) = self.audit_head().await?;
        loop {
            let entries = self.audit_since(seq).await?;
            for entry in entries.iter().filter(|entry| entry.seq <= last) {
                if entry.seq != seq + 1 {
                    return Err(Error::Damaged(format!(
                        "entry {} of the audit is missing",
                        seq + 1
                    )));
                }
                if entry.hash_behind(&hash) != entry.hash {
                    let problem = format!("entry {} of the audit was changed", entry.seq);
                    return Err(Error::Damaged(problem));
                }
                (seq, hash) = (entry.seq, entry.hash.clone());
            }
            if entries.is_empty() || seq == last {
                break;
            }
        }
        if (seq, &hash) != (last, &head) {
            return Err(Error::Damaged(format!("entry {last} of the audit is missing")));
        }
        Ok(Verified { entries: last, head })
    }

    async fn audit_head(&self) -> Result<(i64, String), Error> {
        let row = self.db.row("SELECT audit_seq, audit_hash FROM head WHERE id = 1", &[]).await?;
        let row = row.ok_or_else(|| Error::Damaged("there is no head".to_owned()))?;
        Ok((row.get(0)?, row.get(1)?))
    }
}
