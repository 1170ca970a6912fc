//! Sessions: who signed in, until when. What is kept of a session's secret is its hash.

use super::Catalog;
use super::change::Change;
use crate::error::Error;

/// How long sessions last.
#[derive(Clone, Copy, Debug)]
pub struct SessionSpans {
    /// Without being used, in milliseconds.
    pub idle_ms: i64,
    /// In any case, in milliseconds.
    pub absolute_ms: i64,
}

impl Default for SessionSpans {
    /// Half an hour, and half a day.
    fn default() -> Self {
        Self { idle_ms: 30 * 60 * 1_000, absolute_ms: 12 * 60 * 60 * 1_000 }
    }
}

/// How much older a session's last use becomes before it is written again, in milliseconds.
const TOUCH_MS: i64 = 60_000;

impl Catalog {
    /// Begins a session of an account (its id), and ends those that are over.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn begin_session(
        &self,
        account: &str,
        (hash, source): (&str, &str),
        at: i64,
        spans: SessionSpans,
    ) -> Result<(), Error> {
        let sql = "DELETE FROM sessions WHERE created_at < ? OR seen_at < ?";
        let over = [(at - spans.absolute_ms).into(), (at - spans.idle_ms).into()];
        self.db.run(sql, &over).await?;
        let sql = "INSERT INTO sessions (hash, account, created_at, seen_at, source) \
                   VALUES (?, ?, ?, ?, ?)";
        let values = [hash.into(), account.into(), at.into(), at.into(), source.into()];
        self.db.run(sql, &values).await?;
        Ok(())
    }

    /// The id of the account whose session this is, if it goes on; it was used now.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn use_session(
        &self,
        hash: &str,
        at: i64,
        spans: SessionSpans,
    ) -> Result<Option<String>, Error> {
        let sql = "SELECT account, seen_at FROM sessions \
                   WHERE hash = ? AND created_at > ? AND seen_at > ?";
        let values = [hash.into(), (at - spans.absolute_ms).into(), (at - spans.idle_ms).into()];
        let Some(row) = self.db.row(sql, &values).await? else { return Ok(None) };
        if row.get::<i64>(1)? < at - TOUCH_MS {
            let sql = "UPDATE sessions SET seen_at = ? WHERE hash = ?";
            self.db.run(sql, &[at.into(), hash.into()]).await?;
        }
        row.get(0).map(Some)
    }

    /// Ends a session.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn end_session(&self, hash: &str) -> Result<(), Error> {
        self.db.run("DELETE FROM sessions WHERE hash = ?", &[hash.into()]).await?;
        Ok(())
    }

    /// Ends all sessions of an account (its id).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn end_sessions(&self, account: &str) -> Result<(), Error> {
        self.db.run("DELETE FROM sessions WHERE account = ?", &[account.into()]).await?;
        Ok(())
    }
}

/// Begins a session of an account (its id) with the secret of this hash.
pub(super) async fn insert(
    change: &mut Change<'_>,
    account: &str,
    hash: &str,
) -> Result<(), Error> {
    let sql = "INSERT INTO sessions (hash, account, created_at, seen_at, source) \
               VALUES (?, ?, ?, ?, ?)";
    let (at, source) = (change.by.at.into(), (&change.by.source).into());
    change.rows.run(sql, &[hash.into(), account.into(), at, at, source]).await?;
    Ok(())
}
