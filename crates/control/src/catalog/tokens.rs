//! Tokens of machines. Only their hashes are stored, so that the database contains no usable token.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::apps::locked;
use super::change::{Change, begin};
use super::{Catalog, ChangeContext, Page, name};
use crate::access::{Account, Action, Scope};
use crate::audit::AuditTarget;
use crate::db::{Row, SqlValue};
use crate::error::Error;
use crate::limits::{TOKENS_MAX, TOKENS_OF_NAME_MAX};
use sluicegate_policy::finding;

/// A use of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUse {
    /// Id of the token.
    pub id: String,
    /// Time of the use, ms since 1970.
    pub at: i64,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenView {
    /// Identifier; never changes.
    pub id: String,
    /// The owning app.
    pub app: String,
    /// Token name; two valid tokens can share a name, so that one can replace the other.
    pub name: String,
    /// The scopes that the token has.
    pub scopes: Vec<Scope>,
    /// Creation time, in milliseconds since 1970.
    pub created_at: i64,
    /// Creator.
    pub created_by: String,
    /// Expiry time.
    pub expires_at: i64,
    /// Revocation time.
    pub revoked_at: Option<i64>,
    /// The actor that revoked the token.
    #[serde(default)]
    pub revoked_by: Option<String>,
    /// `true` if the token is valid and expires within 14 days.
    #[serde(default)]
    pub ends_soon: bool,
    /// Time of last use, to the minute.
    pub used_at: Option<i64>,
}

/// A token to create.
#[derive(Clone, Copy, Debug)]
pub struct NewToken<'n> {
    /// Token name.
    pub name: &'n str,
    /// The scopes that the token has.
    pub scopes: &'n [Scope],
    /// Expiry time, in milliseconds since 1970.
    pub expires_at: i64,
    /// SHA-256 of its secret, in hex.
    pub hash: &'n str,
}

/// Time before its expiry in which a token ends soon, in ms: 14 days, so that its replacement can be planned.
const SOON_MS: i64 = 14 * 24 * 60 * 60 * 1_000;

/// The columns of a token, in its order.
macro_rules! tokens {
    ($which:literal) => {
        concat!(
            "SELECT id, app, name, scopes, created_at, created_by, expires_at, revoked_at, used_at ",
            "FROM tokens WHERE ",
            $which
        )
    };
}

/// Maximum number of tokens that end soon that are returned: a person looks at those that end first.
const ENDING_MAX: i64 = 100;

impl Catalog {
    /// Returns the tokens of an app as they are at the time `at`, the oldest first.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn tokens(&self, app: &str, page: &Page, at: i64) -> Result<Vec<TokenView>, Error> {
        self.app(app).await?;
        let sql = tokens!("app = ? AND id > ? ORDER BY id LIMIT ?");
        let values = [app.into(), page.after().into(), page.limit().into()];
        let rows = self.db.rows(sql, &values).await?;
        let mut revoked = self.last_changes(app, Action::RevokeToken).await?;
        let shown = rows.iter().map(|row| {
            let token = TokenView::of(row)?;
            let revoked_by = revoked.remove(&token.id).map(|change| change.actor);
            let ends_soon =
                token.revoked_at.is_none() && (at..at + SOON_MS).contains(&token.expires_at);
            Ok(TokenView { revoked_by, ends_soon, ..token })
        });
        shown.collect()
    }

    /// Returns the valid tokens that end after `at` and by `until`, in milliseconds since 1970, the first to end first:
    /// at most 100 of them, and the number of all. They are of all apps for an administrator, else of those in which
    /// `account` has a role.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ending_tokens(
        &self,
        account: &Account,
        at: i64,
        until: i64,
    ) -> Result<(Vec<TokenView>, i64), Error> {
        let all = i64::from(account.is_admin);
        let values: [SqlValue<'_>; 5] =
            [at.into(), until.into(), all.into(), account.id.as_str().into(), ENDING_MAX.into()];
        let sql = "SELECT COUNT(*) FROM tokens WHERE revoked_at IS NULL AND expires_at > ? \
                   AND expires_at <= ? AND (? = 1 OR EXISTS \
                   (SELECT 1 FROM members m WHERE m.app = tokens.app AND m.account = ?))";
        let count = self.db.row(sql, &values[..4]).await?;
        let total = count.map_or(Ok(0), |row| row.get(0))?;
        let sql = tokens!(
            "revoked_at IS NULL AND expires_at > ? AND expires_at <= ? AND (? = 1 OR EXISTS \
             (SELECT 1 FROM members m WHERE m.app = tokens.app AND m.account = ?)) \
             ORDER BY expires_at, id LIMIT ?"
        );
        let rows = self.db.rows(sql, &values).await?;
        let shown = rows.iter().map(|row| {
            let token = TokenView::of(row)?;
            let ends_soon = (at..at + SOON_MS).contains(&token.expires_at);
            Ok(TokenView { ends_soon, ..token })
        });
        Ok((shown.collect::<Result<_, Error>>()?, total))
    }

    /// Returns the token whose secret has this hash, if it is valid at the time `at`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn token_of_hash(&self, hash: &str, at: i64) -> Result<Option<TokenView>, Error> {
        let sql = tokens!("hash = ? AND revoked_at IS NULL AND expires_at > ?");
        let row = self.db.row(sql, &[hash.into(), at.into()]).await?;
        row.map(|row| TokenView::of(&row)).transpose()
    }

    /// Returns whether there is a token whose secret has this hash and that was not revoked, expired or not.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn is_token_kept(&self, hash: &str) -> Result<bool, Error> {
        let sql = "SELECT id FROM tokens WHERE hash = ? AND revoked_at IS NULL";
        Ok(self.db.row(sql, &[hash.into()]).await?.is_some())
    }

    /// Creates a token of an app.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`], [`Error::TooMany`] valid tokens of this name, or of the app.
    pub async fn create_token(
        &self,
        by: &ChangeContext,
        app: &str,
        new: NewToken<'_>,
    ) -> Result<TokenView, Error> {
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        check(&mut change, app, new).await?;
        let mut scopes = new.scopes.to_vec();
        scopes.sort_unstable();
        scopes.dedup();
        let made = TokenView {
            id: uuid::Uuid::now_v7().to_string(),
            app: app.to_owned(),
            name: new.name.to_owned(),
            scopes,
            created_at: by.at,
            created_by: change.author().to_owned(),
            expires_at: new.expires_at,
            revoked_at: None,
            revoked_by: None,
            ends_soon: (by.at..by.at + SOON_MS).contains(&new.expires_at),
            used_at: None,
        };
        let revision = change.publish();
        let sql = "INSERT INTO tokens (id, app, name, hash, scopes, revision, created_at, \
                   created_by, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let scopes = words(&made.scopes);
        let values = [
            (&made.id).into(),
            app.into(),
            new.name.into(),
            new.hash.into(),
            (&scopes).into(),
            revision.into(),
            by.at.into(),
            (&made.created_by).into(),
            new.expires_at.into(),
        ];
        change.rows.run(sql, &values).await?;
        let after = serde_json::json!({
            "name": new.name, "scopes": made.scopes, "expires_at": new.expires_at,
        });
        change.audit(
            Action::CreateToken,
            AuditTarget::of(app, &made.id),
            None,
            Some(after.to_string()),
        );
        change.commit(made).await
    }

    /// Revokes a token of an app.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if it was revoked before.
    pub async fn revoke_token(&self, by: &ChangeContext, app: &str, id: &str) -> Result<(), Error> {
        let mut change = begin!(self, by);
        let sql = "SELECT name FROM tokens WHERE app = ? AND id = ? AND revoked_at IS NULL";
        let token = change.rows.row(sql, &[app.into(), id.into()]).await?;
        let name: String = token.ok_or(Error::NotFound("token"))?.get(0)?;
        let revision = change.publish();
        let sql = "UPDATE tokens SET revoked_at = ?, revision = ? WHERE app = ? AND id = ?";
        let values = [by.at.into(), revision.into(), app.into(), id.into()];
        change.rows.run(sql, &values).await?;
        let before = serde_json::json!({ "name": name }).to_string();
        change.audit(Action::RevokeToken, AuditTarget::of(app, id), Some(before), None);
        change.commit(()).await
    }

    /// Records the last use of tokens (their ids).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn record_tokens_used(&self, used: &[TokenUse]) -> Result<(), Error> {
        for TokenUse { id, at } in used {
            let sql = "UPDATE tokens SET used_at = ? WHERE id = ? AND COALESCE(used_at, 0) < ?";
            self.db.run(sql, &[(*at).into(), id.into(), (*at).into()]).await?;
        }
        Ok(())
    }
}

/// Checks that the token is valid, and that there may be one more.
async fn check(change: &mut Change<'_>, app: &str, new: NewToken<'_>) -> Result<(), Error> {
    name(new.name, "/name")?;
    if new.scopes.is_empty() {
        return Err(Error::invalid("/scopes", finding!("no_scope", "expected at least one")));
    }
    if new.expires_at <= change.by.at {
        return Err(Error::invalid("/expires_at", finding!("past", "must be in the future")));
    }
    let live = "SELECT name FROM tokens WHERE app = ? AND revoked_at IS NULL AND expires_at > ?";
    let live = change.rows.rows(live, &[app.into(), change.by.at.into()]).await?;
    let mut of_name = 0;
    for row in &live {
        of_name += i64::from(row.get::<String>(0)? == new.name);
    }
    if of_name >= TOKENS_OF_NAME_MAX {
        let which = format!("{TOKENS_OF_NAME_MAX} valid tokens of this name");
        return Err(Error::TooMany(which));
    }
    if i64::try_from(live.len()).is_ok_and(|count| count >= TOKENS_MAX) {
        return Err(Error::TooMany(format!("{TOKENS_MAX} valid tokens of this app")));
    }
    Ok(())
}

pub(super) fn words(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(" ")
}

pub(super) fn scopes(row: &Row, place: usize) -> Result<Vec<Scope>, Error> {
    let words: String = row.get(place)?;
    let scope = |word: &str| {
        Scope::named(word).ok_or_else(|| Error::Damaged(format!("unknown scope `{word}`")))
    };
    words.split(' ').map(scope).collect()
}

impl TokenView {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get(0)?,
            app: row.get(1)?,
            name: row.get(2)?,
            scopes: scopes(row, 3)?,
            created_at: row.get(4)?,
            created_by: row.get(5)?,
            expires_at: row.get(6)?,
            revoked_at: row.get(7)?,
            revoked_by: None,
            ends_soon: false,
            used_at: row.get(8)?,
        })
    }
}
