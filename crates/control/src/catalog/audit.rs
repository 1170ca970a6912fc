//! The entries of the audit: lists of them, and their verification.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::{Catalog, Page};
use crate::access::Action;
use crate::audit::{
    AuditEntry, AuditFilter, AuditOutcome, BrokenChain, Chain, EntryFilter, LastChange, Verified,
};
use crate::db::{Row, SqlValue};
use crate::error::Error;
use sluicegate_policy::finding;

/// Entries that are read at a time, to be verified or exported: as many as are on a page.
const STEP: i64 = 100;

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
        let texts = [actor, action, target, outcome].into_iter();
        let mut values: Vec<SqlValue> =
            texts.flat_map(|text| [SqlValue::from(text), text.into()]).collect();
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
