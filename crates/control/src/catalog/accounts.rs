//! Accounts. The catalog gets passwords as hashes, and does not compute these.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::change::{Change, begin, is_version};
use super::sessions::{self, KeptPassword};
use super::{Catalog, ChangeContext, Page};
use crate::access::{Account, Action};
use crate::audit::AuditTarget;
use crate::db::Row;
use crate::error::Error;
use crate::limits::{ACCOUNT_BYTES_MAX, ACCOUNTS_MAX};
use sluicegate_policy::finding;

/// An account, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Account)]
pub struct AccountView {
    /// Identifier; never changes.
    pub id: String,
    /// Account name; never changes.
    pub name: String,
    /// `true` for an administrator.
    pub is_admin: bool,
    /// `true` if sign-in is disabled.
    pub is_disabled: bool,
    /// `true` if the account has a password.
    pub has_password: bool,
    /// Number of the latest change, from 1.
    pub version: i64,
    /// Creation time, in milliseconds since 1970.
    pub created_at: i64,
    /// OpenID Connect issuer and subject; null: the account signs in with a password only.
    pub subject: Option<String>,
    /// The latest sign-in of the last 30 days; null: none, or a change of the account has ended its sessions since.
    pub last_sign_in_at: Option<i64>,
}

/// A new password of one's own account.
#[derive(Clone, Copy, Debug)]
pub struct PasswordChange<'a> {
    /// Name of the account.
    pub account: &'a str,
    /// The version of the account when the old password was verified.
    pub version: i64,
    /// Hash of the new password.
    pub hash: &'a str,
    /// Hash of the secret of the session that begins.
    pub session: &'a str,
}

/// An account to create.
#[derive(Clone, Copy, Debug)]
pub struct NewAccount<'n> {
    /// Account name.
    pub name: &'n str,
    /// Hash of the password; none for accounts that sign in with OpenID Connect.
    pub password_hash: Option<&'n str>,
    /// Issuer and subject of an account that signs in with OpenID Connect.
    pub subject: Option<&'n str>,
    /// `true` for an administrator.
    pub is_admin: bool,
}

/// Changes to an account; none: unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccountChange<'c> {
    /// `true` for an administrator.
    pub is_admin: Option<bool>,
    /// `true` if sign-in is disabled.
    pub is_disabled: Option<bool>,
    /// Hash of the new password.
    pub password_hash: Option<&'c str>,
}

const NOT_FOUND: Error = Error::NotFound("account");

/// The columns of an account, in its order.
macro_rules! accounts {
    ($which:literal) => {
        concat!(
            "SELECT id, name, is_admin, is_disabled, password, version, created_at, subject, ",
            "(SELECT MAX(s.created_at) FROM sessions s WHERE s.account = accounts.id) ",
            "FROM accounts WHERE ",
            $which
        )
    };
}
pub(super) use accounts;

/// Returns whether `name` is a valid account name. Invalid ones are not looked up.
pub(crate) fn is_account_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._@+-".contains(c);
    (1..=ACCOUNT_BYTES_MAX).contains(&name.len()) && name.chars().all(fits)
}

impl Catalog {
    /// Returns whether any account exists.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn has_accounts(&self) -> Result<bool, Error> {
        Ok(self.db.row("SELECT id FROM accounts LIMIT 1", &[]).await?.is_some())
    }

    /// Returns a page of the accounts, by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn accounts(&self, page: &Page) -> Result<Vec<AccountView>, Error> {
        let sql = accounts!("name > ? ORDER BY name LIMIT ?");
        let rows = self.db.rows(sql, &[page.after().into(), page.limit().into()]).await?;
        rows.iter().map(AccountView::of).collect()
    }

    /// Returns the account of this name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn account(&self, name: &str) -> Result<AccountView, Error> {
        let row = self.db.row(accounts!("name = ?"), &[name.into()]).await?;
        AccountView::of(&row.ok_or(NOT_FOUND)?)
    }

    /// Returns the password hash of the account of this name, if it may sign in.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn password(&self, name: &str) -> Result<Option<KeptPassword>, Error> {
        if !is_account_name(name) {
            return Ok(None);
        }
        let sql = "SELECT id, version, password FROM accounts \
                   WHERE name = ? AND is_disabled = 0 AND password IS NOT NULL";
        let Some(row) = self.db.row(sql, &[name.into()]).await? else { return Ok(None) };
        let (account, version, hash) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Some(KeptPassword { account, version, hash }))
    }

    /// Returns the id of the account with this OpenID Connect subject, if it may sign in.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn account_of_subject(&self, subject: &str) -> Result<Option<String>, Error> {
        let sql = "SELECT id FROM accounts WHERE subject = ? AND is_disabled = 0";
        let row = self.db.row(sql, &[subject.into()]).await?;
        row.map(|row| row.get(0)).transpose()
    }

    /// Returns the account with this id and its roles, if it may sign in.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn actor(&self, id: &str) -> Result<Option<Account>, Error> {
        let sql = "SELECT name, is_admin FROM accounts WHERE id = ? AND is_disabled = 0";
        let Some(row) = self.db.row(sql, &[id.into()]).await? else { return Ok(None) };
        let roles = self.roles(id).await?;
        Ok(Some(Account { id: id.to_owned(), name: row.get(0)?, is_admin: row.is(1)?, roles }))
    }

    /// Creates the first account, an administrator.
    ///
    /// # Errors
    /// [`Error::Conflict`] if there is one.
    pub async fn set_up(
        &self,
        by: &ChangeContext,
        new: NewAccount<'_>,
    ) -> Result<AccountView, Error> {
        let mut change = begin!(self, by);
        if change.rows.row("SELECT id FROM accounts LIMIT 1", &[]).await?.is_some() {
            return Err(Error::Conflict(finding!(
                "setup_done",
                "setup is already done: an account exists"
            )));
        }
        let new = NewAccount { is_admin: true, ..new };
        let made = insert(&mut change, Action::SetUp, new).await?;
        change.commit(made).await
    }

    /// Creates an account.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Taken`], [`Error::TooMany`].
    pub async fn create_account(
        &self,
        by: &ChangeContext,
        new: NewAccount<'_>,
    ) -> Result<AccountView, Error> {
        let mut change = begin!(self, by);
        let made = insert(&mut change, Action::CreateAccount, new).await?;
        change.commit(made).await
    }

    /// Changes an account. Its sessions end.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`], [`Error::Conflict`] if no administrator would be left.
    pub async fn change_account(
        &self,
        by: &ChangeContext,
        name: &str,
        version: i64,
        wanted: AccountChange<'_>,
    ) -> Result<AccountView, Error> {
        let mut change = begin!(self, by);
        let before = locked(&mut change, name).await?;
        is_version(version, before.version)?;
        let after = AccountView {
            is_admin: wanted.is_admin.unwrap_or(before.is_admin),
            is_disabled: wanted.is_disabled.unwrap_or(before.is_disabled),
            has_password: before.has_password || wanted.password_hash.is_some(),
            version: version + 1,
            ..before.clone()
        };
        if !after.is_admin || after.is_disabled {
            somebody_else_is_admin(&mut change, &before).await?;
        }
        let sql = "UPDATE accounts SET is_admin = ?, is_disabled = ?, version = ? WHERE id = ?";
        let values = [
            after.is_admin.into(),
            after.is_disabled.into(),
            after.version.into(),
            (&after.id).into(),
        ];
        change.rows.run(sql, &values).await?;
        if let Some(hash) = wanted.password_hash {
            let sql = "UPDATE accounts SET password = ? WHERE id = ?";
            change.rows.run(sql, &[hash.into(), (&after.id).into()]).await?;
        }
        let of_account = [(&after.id).into()];
        change.rows.run("DELETE FROM sessions WHERE account = ?", &of_account).await?;
        let (old, new) =
            (before.audit_text(false), after.audit_text(wanted.password_hash.is_some()));
        change.audit(Action::ChangeAccount, AuditTarget::alone(name), Some(old), Some(new));
        change.commit(after).await
    }

    /// Ends all sessions of an account.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn end_sessions(&self, by: &ChangeContext, name: &str) -> Result<(), Error> {
        let mut change = begin!(self, by);
        let account = locked(&mut change, name).await?;
        let of_account = [(&account.id).into()];
        change.rows.run("DELETE FROM sessions WHERE account = ?", &of_account).await?;
        change.audit(Action::EndSessions, AuditTarget::alone(name), None, None);
        change.commit(()).await
    }

    /// Sets a new password of one's own account. All sessions end, and one begins.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`].
    pub async fn change_password(
        &self,
        by: &ChangeContext,
        new: &PasswordChange<'_>,
    ) -> Result<(), Error> {
        let PasswordChange { account: name, version, hash, session } = *new;
        let mut change = begin!(self, by);
        let account = locked(&mut change, name).await?;
        is_version(version, account.version)?;
        let sql = "UPDATE accounts SET password = ?, version = version + 1 WHERE id = ?";
        change.rows.run(sql, &[hash.into(), (&account.id).into()]).await?;
        let of_account = [(&account.id).into()];
        change.rows.run("DELETE FROM sessions WHERE account = ?", &of_account).await?;
        sessions::insert(&mut change, &account.id, session).await?;
        change.audit(Action::ChangePassword, AuditTarget::alone(name), None, None);
        change.commit(()).await
    }

    /// Deletes an account, with its sessions and roles.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`], [`Error::Conflict`] if no administrator would be left.
    pub async fn delete_account(
        &self,
        by: &ChangeContext,
        name: &str,
        version: i64,
    ) -> Result<(), Error> {
        let mut change = begin!(self, by);
        let account = locked(&mut change, name).await?;
        is_version(version, account.version)?;
        somebody_else_is_admin(&mut change, &account).await?;
        for sql in [
            "DELETE FROM sessions WHERE account = ?",
            "DELETE FROM members WHERE account = ?",
            "DELETE FROM accounts WHERE id = ?",
        ] {
            change.rows.run(sql, &[(&account.id).into()]).await?;
        }
        change.audit(
            Action::DeleteAccount,
            AuditTarget::alone(name),
            Some(account.audit_text(false)),
            None,
        );
        change.commit(()).await
    }
}

impl AccountView {
    pub(super) fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.get(0)?,
            name: row.get(1)?,
            is_admin: row.is(2)?,
            is_disabled: row.is(3)?,
            has_password: row.get::<Option<String>>(4)?.is_some(),
            version: row.get(5)?,
            created_at: row.get(6)?,
            subject: row.get(7)?,
            last_sign_in_at: row.get(8)?,
        })
    }

    /// Returns the account for the audit, without its password hash.
    pub(super) fn audit_text(&self, new_password: bool) -> String {
        let Self { is_admin, is_disabled, .. } = self;
        serde_json::json!({
            "is_admin": is_admin, "is_disabled": is_disabled, "new_password": new_password,
        })
        .to_string()
    }
}

async fn locked(change: &mut Change<'_>, name: &str) -> Result<AccountView, Error> {
    let row = change.rows.row(accounts!("name = ?"), &[name.into()]).await?;
    AccountView::of(&row.ok_or(NOT_FOUND)?)
}

pub(super) async fn somebody_else_is_admin(
    change: &mut Change<'_>,
    account: &AccountView,
) -> Result<(), Error> {
    let sql = "SELECT COUNT(*) FROM accounts WHERE is_admin = 1 AND is_disabled = 0 AND id <> ?";
    let row = change.rows.row(sql, &[(&account.id).into()]).await?;
    let is_last = account.is_admin && row.map_or(Ok(0), |row| row.get::<i64>(0))? == 0;
    if !is_last {
        return Ok(());
    }
    Err(Error::Conflict(finding!(
        "last_admin",
        "cannot remove the last administrator: add another one first"
    )))
}

pub(super) async fn insert(
    change: &mut Change<'_>,
    action: Action,
    new: NewAccount<'_>,
) -> Result<AccountView, Error> {
    let NewAccount { name, password_hash, subject, is_admin } = new;
    if !is_account_name(name) {
        let problem = finding!(
            "bad_account_name",
            "expected 1 to {max} letters, digits, `.`, `_`, `@`, `+` or `-`",
            max = ACCOUNT_BYTES_MAX
        );
        return Err(Error::invalid("/name", problem));
    }
    let count = change.rows.row("SELECT COUNT(*) FROM accounts", &[]).await?;
    if count.map_or(Ok(0), |row| row.get(0))? >= ACCOUNTS_MAX {
        return Err(Error::TooMany(format!("{ACCOUNTS_MAX} accounts")));
    }
    let made = AccountView {
        id: uuid::Uuid::now_v7().to_string(),
        name: name.to_owned(),
        is_admin,
        is_disabled: false,
        has_password: password_hash.is_some(),
        version: 1,
        created_at: change.by.at,
        subject: subject.map(str::to_owned),
        last_sign_in_at: None,
    };
    let sql = "INSERT INTO accounts \
               (id, name, password, subject, is_admin, is_disabled, version, created_at) \
               VALUES (?, ?, ?, ?, ?, 0, 1, ?)";
    let values = [
        (&made.id).into(),
        name.into(),
        password_hash.into(),
        subject.into(),
        is_admin.into(),
        made.created_at.into(),
    ];
    change.rows.run(sql, &values).await?;
    change.audit(
        action,
        AuditTarget::alone(name),
        None,
        Some(made.audit_text(password_hash.is_some())),
    );
    Ok(made)
}
