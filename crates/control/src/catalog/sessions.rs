//! Sessions: who signed in, until when. What is kept of a session's secret is its hash.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use super::accounts::KeptPassword;
use super::change::{Change, begin};
use super::{Catalog, ChangeContext};
use crate::access::{AccessDenied, Action};
use crate::audit::AuditTarget;
use crate::db::Row;
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

/// The session of who signs in.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'s> {
    /// The hash of its secret.
    pub hash: &'s str,
    /// How long it lasts.
    pub spans: SessionSpans,
    /// The hashes of those that their browser had, which end.
    pub instead_of: &'s [&'s str],
}

/// How long an ended session is kept, in milliseconds: its network and its browser are known when the
/// account signs in again. 30 days.
const KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

/// Most sessions by which an account is known, the latest.
const KNOWN_MAX: i64 = 100;

/// From where an account has signed in lately: the hashes of its sessions and their addresses, the latest
/// first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentAddresses(Vec<(String, String)>);

impl RecentAddresses {
    /// Known by these.
    #[cfg(test)]
    pub(crate) const fn of(sessions: Vec<(String, String)>) -> Self {
        Self(sessions)
    }

    /// Its networks, the latest first, each once; `network` is that of an address.
    pub(crate) fn networks<'k>(
        &'k self,
        network: impl Fn(&'k str) -> Cow<'k, str>,
    ) -> impl Iterator<Item = Cow<'k, str>> {
        let mut seen = BTreeSet::new();
        let networks = self.0.iter().map(move |(_, source)| network(source));
        networks.filter(move |network| seen.insert(network.clone()))
    }

    /// Whether this is the hash of one of its sessions.
    pub(crate) fn has_browser(&self, session: &str) -> bool {
        self.0.iter().any(|(hash, _)| hash == session)
    }
}

/// A session that goes on, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    /// Identifies the session in this list; it cannot be used to sign in.
    pub id: String,
    /// Address of the client that signed in.
    pub source: String,
    /// Sign-in time, in milliseconds since 1970.
    pub created_at: i64,
    /// Time of last use, to the minute.
    pub seen_at: i64,
    /// Whether it is the session that asks.
    pub is_current: bool,
}

/// A session that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSession {
    /// The id of the account.
    pub account: String,
    /// When it ends unless it is used, in milliseconds since 1970.
    pub idle_until: i64,
    /// When it ends in any case, in milliseconds since 1970.
    pub ends_at: i64,
}

/// Most sessions that are shown: a person has a few.
const SHOWN_MAX: i64 = 1_000;

/// So much of its hash tells a session from others.
const ID_CHARS: usize = 16;

/// How much older a session's last use becomes before it is written again, in milliseconds.
const TOUCH_MS: i64 = 60_000;

impl Catalog {
    /// Signs in the account of a password that was right, unless the account was changed meanwhile: its
    /// session begins.
    ///
    /// # Errors
    /// [`Error::Denied`] if it was changed, or may not sign in any more.
    pub async fn sign_in(
        &self,
        by: &ChangeContext,
        password: &KeptPassword,
        session: NewSession<'_>,
    ) -> Result<(), Error> {
        let KeptPassword { account, version, .. } = password;
        let mut change = begin!(self, by);
        let sql = "SELECT name FROM accounts WHERE id = ? AND version = ? AND is_disabled = 0";
        let row = change.rows.row(sql, &[account.into(), (*version).into()]).await?;
        let name: String = row.ok_or(AccessDenied::Unknown)?.get(0)?;
        begin(&mut change, account, session).await?;
        change.audit(Action::SignIn, AuditTarget::alone(&name), None, None);
        change.commit(()).await
    }

    /// Ends a session (by the hash of its secret), or all sessions, of an account (its id and name).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sign_out(
        &self,
        by: &ChangeContext,
        account: &str,
        name: &str,
        session: Option<&str>,
    ) -> Result<(), Error> {
        let mut change = begin!(self, by);
        let which = match session {
            Some(hash) => {
                // It is over, and stays for a while to know the browser by.
                let sql = "UPDATE sessions SET seen_at = 0 WHERE account = ? AND hash = ?";
                change.rows.run(sql, &[account.into(), hash.into()]).await?;
                "one"
            }
            None => {
                let sql = "DELETE FROM sessions WHERE account = ?";
                change.rows.run(sql, &[account.into()]).await?;
                "all"
            }
        };
        let before = serde_json::json!({ "sessions": which }).to_string();
        change.audit(Action::SignOut, AuditTarget::alone(name), Some(before), None);
        change.commit(()).await
    }

    /// The sessions of the account called so that go on at the time `at`, the latest first. `own` is the hash of
    /// the one that asks.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sessions(
        &self,
        name: &str,
        at: i64,
        spans: SessionSpans,
        own: Option<&str>,
    ) -> Result<Vec<SessionView>, Error> {
        let sql = "SELECT s.hash, s.source, s.created_at, s.seen_at FROM sessions s \
                   JOIN accounts a ON a.id = s.account \
                   WHERE a.name = ? AND s.created_at > ? AND s.seen_at > ? \
                   ORDER BY s.created_at DESC LIMIT ?";
        let (created, seen) = (at - spans.absolute_ms, at - spans.idle_ms);
        let values = [name.into(), created.into(), seen.into(), SHOWN_MAX.into()];
        let rows = self.db.rows(sql, &values).await?;
        let view = |row: &Row| {
            let hash: String = row.get(0)?;
            Ok(SessionView {
                is_current: own == Some(&*hash),
                id: hash.chars().take(ID_CHARS).collect(),
                source: row.get(1)?,
                created_at: row.get(2)?,
                seen_at: row.get(3)?,
            })
        };
        rows.iter().map(view).collect()
    }

    /// From where the account called so has signed in since this time.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn known(&self, name: &str, since: i64) -> Result<RecentAddresses, Error> {
        let sql = "SELECT s.hash, s.source FROM sessions s JOIN accounts a ON a.id = s.account \
                   WHERE a.name = ? AND s.created_at > ? ORDER BY s.created_at DESC LIMIT ?";
        let rows = self.db.rows(sql, &[name.into(), since.into(), KNOWN_MAX.into()]).await?;
        let known = rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?)));
        Ok(RecentAddresses(known.collect::<Result<_, Error>>()?))
    }

    /// The session with this hash, if it goes on. It was used now, unless only a program asks for somebody who
    /// may be away (`is_passive`).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn use_session(
        &self,
        hash: &str,
        at: i64,
        spans: SessionSpans,
        is_passive: bool,
    ) -> Result<Option<LiveSession>, Error> {
        let sql = "SELECT account, seen_at, created_at FROM sessions \
                   WHERE hash = ? AND created_at > ? AND seen_at > ?";
        let values = [hash.into(), (at - spans.absolute_ms).into(), (at - spans.idle_ms).into()];
        let Some(row) = self.db.row(sql, &values).await? else { return Ok(None) };
        let mut seen_at: i64 = row.get(1)?;
        if !is_passive && seen_at < at - TOUCH_MS {
            let sql = "UPDATE sessions SET seen_at = ? WHERE hash = ?";
            self.db.run(sql, &[at.into(), hash.into()]).await?;
            seen_at = at;
        }
        let ends_at = row.get::<i64>(2)? + spans.absolute_ms;
        let idle_until = ends_at.min(seen_at + spans.idle_ms);
        Ok(Some(LiveSession { account: row.get(0)?, idle_until, ends_at }))
    }
}

/// Begins a session of an account (its id), and forgets those that ended long ago or that it takes the
/// place of.
pub(super) async fn begin(
    change: &mut Change<'_>,
    account: &str,
    NewSession { hash, spans, instead_of }: NewSession<'_>,
) -> Result<(), Error> {
    let at = change.by.at;
    let over = at - spans.absolute_ms.max(KEPT_MS);
    change.rows.run("DELETE FROM sessions WHERE created_at < ?", &[over.into()]).await?;
    for old in instead_of {
        change.rows.run("DELETE FROM sessions WHERE hash = ?", &[(*old).into()]).await?;
    }
    insert(change, account, hash).await
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
