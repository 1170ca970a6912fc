//! Sessions of accounts, and their ends. Only the hash of a session's secret is stored.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use super::change::{Change, begin};
use super::{Catalog, ChangeContext};
use crate::access::{AccessDenied, Action};
use crate::audit::AuditTarget;
use crate::db::Row;
use crate::error::Error;

/// Password hash of an account that may sign in.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptPassword {
    /// The account's id.
    pub account: String,
    /// The account's version: a sign-in with this password fails after a change of the account.
    pub version: i64,
    /// The hash.
    pub hash: String,
}

/// Lifetimes of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSpans {
    /// Time after the last use, in milliseconds.
    pub idle_ms: i64,
    /// Time after the sign-in, in milliseconds.
    pub absolute_ms: i64,
}

impl Default for SessionSpans {
    /// Returns half an hour, and half a day.
    fn default() -> Self {
        Self { idle_ms: 30 * 60 * 1_000, absolute_ms: 12 * 60 * 60 * 1_000 }
    }
}

/// The session that a sign-in begins.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'s> {
    /// The hash of its secret.
    pub hash: &'s str,
    /// Lifetimes of the session.
    pub spans: SessionSpans,
    /// Hashes of the sessions that the browser had, which end.
    pub instead_of: &'s [&'s str],
}

/// Time for which an ended session is kept, in milliseconds: its network and its browser are known when the
/// account signs in again. 30 days.
const KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

/// Maximum number of sessions by which an account is known, the latest.
const KNOWN_MAX: i64 = 100;

/// Places of the latest sign-ins of an account: the hashes of its sessions and their addresses, the latest
/// first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentAddresses(Vec<(String, String)>);

impl RecentAddresses {
    /// Creates it from hashes and addresses.
    #[cfg(test)]
    pub(crate) const fn of(sessions: Vec<(String, String)>) -> Self {
        Self(sessions)
    }

    /// Returns its networks, the latest first, each once; `network` returns that of an address.
    pub(crate) fn networks<'k>(
        &'k self,
        network: impl Fn(&'k str) -> Cow<'k, str>,
    ) -> impl Iterator<Item = Cow<'k, str>> {
        let mut found = BTreeSet::new();
        let networks = self.0.iter().map(move |(_, source)| network(source));
        networks.filter(move |network| found.insert(network.clone()))
    }

    /// Returns whether this is the hash of one of its sessions.
    pub(crate) fn has_browser(&self, session: &str) -> bool {
        self.0.iter().any(|(hash, _)| hash == session)
    }
}

/// A session that is valid, as it is shown.
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
    /// `true` for the session of this request.
    pub is_current: bool,
}

/// A session that is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSession {
    /// The id of the account.
    pub account: String,
    /// Time at which it ends unless it is used, in milliseconds since 1970.
    pub idle_until: i64,
    /// Time at which it ends in any case, in milliseconds since 1970.
    pub ends_at: i64,
}

/// Maximum number of sessions that are shown: a person has a few.
const SHOWN_MAX: i64 = 1_000;

/// Characters of the hash that identify a session in a list.
const ID_CHARS: usize = 16;

/// Age of a session's recorded last use from which on it is written again, in milliseconds.
const TOUCH_MS: i64 = 60_000;

impl Catalog {
    /// Begins a session of the account whose password was right, unless the account was changed meanwhile.
    ///
    /// # Errors
    /// [`Error::Denied`] if it was changed or disabled.
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
                // The session is over; its row stays for a while, so that the browser is known.
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

    /// Returns the sessions of the account of this name that are valid at the time `at`, the latest first. `own`
    /// is the hash of the session of the request.
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

    /// Returns the places from which the account of this name has signed in since this time.
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

    /// Returns the session with this hash, if it is valid. This counts as use, unless the page sent the request
    /// by itself (`is_passive`): the user may be away.
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

impl fmt::Debug for KeptPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPassword").field("account", &self.account).finish_non_exhaustive()
    }
}

/// Begins a session of an account (its id); deletes those that it replaces, and those that ended long
/// ago.
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
