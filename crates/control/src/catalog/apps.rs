//! Apps and their members.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::change::{Change, begin, is_version};
use super::policy_apps::policy_naming;
use super::{Catalog, ChangeContext, Page, name, text};
use crate::access::{Action, Role};
use crate::audit::AuditTarget;
use crate::db::Row;
use crate::error::{Error, PlacedFinding};
use crate::limits::{APPS_MAX, MEMBERS_MAX};
use sluicegate_policy::finding;

/// An application: the unit of ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct App {
    /// App name; never changes.
    pub name: String,
    /// A description for people.
    pub description: String,
    /// Number of the latest change, from 1.
    pub version: i64,
    /// Creation time, in milliseconds since 1970.
    pub created_at: i64,
}

/// An account with a role in an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// The account's name.
    pub account: String,
    /// The role of the account.
    pub role: Role,
    /// Time since which it has the role, in milliseconds since 1970.
    pub since: i64,
    /// Origin of the role.
    pub by: RoleOrigin,
}

/// Origin of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoleOrigin {
    /// A person gave it.
    Given,
    /// A group of the OpenID Connect provider has it, as of the latest sign-in.
    Group,
}

/// Name of the OpenID Connect provider in the audit; it gives roles by groups.
const PROVIDER: &str = "provider";

impl Catalog {
    /// Returns apps by name: all, or those in which `account` (its id) has a role.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn apps(&self, account: Option<&str>, page: &Page) -> Result<Vec<App>, Error> {
        let (after, limit) = (page.after().into(), page.limit().into());
        let rows = match account {
            None => {
                let sql = "SELECT name, description, version, created_at FROM apps \
                           WHERE name > ? ORDER BY name LIMIT ?";
                self.db.rows(sql, &[after, limit]).await?
            }
            Some(account) => {
                let sql = "SELECT a.name, a.description, a.version, a.created_at FROM apps a \
                           JOIN members m ON m.app = a.name \
                           WHERE m.account = ? AND a.name > ? ORDER BY a.name LIMIT ?";
                self.db.rows(sql, &[account.into(), after, limit]).await?
            }
        };
        rows.iter().map(App::of).collect()
    }

    /// Returns the app of this name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn app(&self, app: &str) -> Result<App, Error> {
        let sql = "SELECT name, description, version, created_at FROM apps WHERE name = ?";
        let row = self.db.row(sql, &[app.into()]).await?;
        App::of(&row.ok_or(Error::NotFound("app"))?)
    }

    /// Creates an app, with these owners (names of accounts).
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Taken`], [`Error::TooMany`].
    pub async fn create_app(
        &self,
        by: &ChangeContext,
        app: &str,
        description: &str,
        owners: &[String],
    ) -> Result<App, Error> {
        let mut change = begin!(self, by);
        let made = add_app(&mut change, by, app, description, owners).await?;
        change.commit(made).await
    }

    /// Changes the description of an app.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`], [`Error::Stale`].
    pub async fn change_app(
        &self,
        by: &ChangeContext,
        app: &str,
        version: i64,
        description: &str,
    ) -> Result<App, Error> {
        let mut change = begin!(self, by);
        let before = locked(&mut change, app).await?;
        is_version(version, before.version)?;
        let after = App {
            description: text(description, "/description")?.to_owned(),
            version: version + 1,
            ..before.clone()
        };
        let sql = "UPDATE apps SET description = ?, version = ? WHERE name = ?";
        change.rows.run(sql, &[description.into(), after.version.into(), app.into()]).await?;
        let (old, new) = (before.description, after.description.clone());
        change.audit(Action::ChangeApp, AuditTarget::of(app, app), Some(old), Some(new));
        change.commit(after).await
    }

    /// Deletes an app that never had a policy or a token, with its members.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`], [`Error::Conflict`] if it has or had policies or tokens, whose
    /// history stays with the app, or if a policy of another app names it.
    pub async fn delete_app(
        &self,
        by: &ChangeContext,
        app: &str,
        version: i64,
    ) -> Result<(), Error> {
        let mut change = begin!(self, by);
        let before = locked(&mut change, app).await?;
        is_version(version, before.version)?;
        for (sql, what) in [
            (
                "SELECT COUNT(*) FROM policies WHERE app = ?",
                "policies or versions of deleted policies",
            ),
            ("SELECT COUNT(*) FROM tokens WHERE app = ?", "current or past tokens"),
        ] {
            let count = change.rows.row(sql, &[app.into()]).await?;
            if count.map_or(Ok(0), |row| row.get::<i64>(0))? > 0 {
                return Err(Error::Conflict(finding!(
                    "app_in_use",
                    "the app still has {what}, which stay as its history, so that it cannot be deleted; delete its policies and revoke its tokens instead",
                    what
                )));
            }
        }
        if let Some(policy) = policy_naming(&mut change.rows, app).await? {
            let problem =
                finding!("app_named", "the policy `{policy}` lists the app in `apps`", policy);
            return Err(Error::Conflict(problem));
        }
        change.rows.run("DELETE FROM members WHERE app = ?", &[app.into()]).await?;
        change.rows.run("DELETE FROM apps WHERE name = ?", &[app.into()]).await?;
        change.audit(Action::DeleteApp, AuditTarget::of(app, app), Some(before.description), None);
        change.commit(()).await
    }

    /// Returns the members of an app, by name.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn members(&self, app: &str, page: &Page) -> Result<Vec<Member>, Error> {
        let created_at = self.app(app).await?.created_at;
        let sql = "SELECT a.name, m.role FROM members m JOIN accounts a ON a.id = m.account \
                   WHERE m.app = ? AND a.name > ? ORDER BY a.name LIMIT ?";
        let values = [app.into(), page.after().into(), page.limit().into()];
        let rows = self.db.rows(sql, &values).await?;
        let mut changes = self.last_changes(app, Action::ChangeMembers).await?;
        let member = |row: &Row| {
            let account: String = row.get(0)?;
            // Without a change, the account is an owner since the app was made.
            let change = changes.remove(&format!("{app}/{account}"));
            let is_group = change.as_ref().is_some_and(|change| change.actor == PROVIDER);
            Ok(Member {
                account,
                role: role(row, 1)?,
                since: change.map_or(created_at, |change| change.at),
                by: if is_group { RoleOrigin::Group } else { RoleOrigin::Given },
            })
        };
        rows.iter().map(member).collect()
    }

    /// Gives an account (by name) a role in an app, replaces it, or (none) removes it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] if there is no such account, [`Error::TooMany`],
    /// [`Error::Warned`] if the app would have no owner any more.
    pub async fn set_member(
        &self,
        by: &ChangeContext,
        app: &str,
        account: &str,
        role: Option<Role>,
    ) -> Result<(), Error> {
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let id = account_id(&mut change, account, "/account").await?;
        if role != Some(Role::Owner) && is_last_owner(&mut change, app, &id).await? {
            let problem = finding!(
                "no_owner_left",
                "`{account}` is the last owner: only administrators could change the app",
                account
            );
            change.warn(vec![PlacedFinding::new("/role", problem)])?;
        }
        put_member(&mut change, app, &id, account, role).await?;
        change.commit(()).await
    }

    /// Returns the roles of an account (its id), by app.
    pub(super) async fn roles(&self, account: &str) -> Result<BTreeMap<String, Role>, Error> {
        let sql = "SELECT app, role FROM members WHERE account = ?";
        let rows = self.db.rows(sql, &[account.into()]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, role(row, 1)?))).collect()
    }
}

impl App {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            name: row.get(0)?,
            description: row.get(1)?,
            version: row.get(2)?,
            created_at: row.get(3)?,
        })
    }
}

/// Creates an app, with these owners (names of accounts).
pub(super) async fn add_app(
    change: &mut Change<'_>,
    by: &ChangeContext,
    app: &str,
    description: &str,
    owners: &[String],
) -> Result<App, Error> {
    let made = App {
        name: name(app, "/name")?.to_owned(),
        description: text(description, "/description")?.to_owned(),
        version: 1,
        created_at: by.at,
    };
    let count = change.rows.row("SELECT COUNT(*) FROM apps", &[]).await?;
    if count.map_or(Ok(0), |row| row.get(0))? >= APPS_MAX {
        return Err(Error::TooMany(format!("{APPS_MAX} apps")));
    }
    let sql = "INSERT INTO apps (name, description, version, created_at) VALUES (?, ?, 1, ?)";
    change.rows.run(sql, &[app.into(), description.into(), by.at.into()]).await?;
    for (place, owner) in owners.iter().enumerate() {
        let account = account_id(change, owner, &format!("/owners/{place}")).await?;
        let sql = "INSERT INTO members (app, account, role) VALUES (?, ?, ?)";
        let values = [app.into(), (&account).into(), Role::Owner.name().into()];
        change.rows.run(sql, &values).await?;
    }
    let after = serde_json::json!({ "description": description, "owners": owners });
    change.audit(Action::CreateApp, AuditTarget::of(app, app), None, Some(after.to_string()));
    Ok(made)
}

/// Returns the app within a change.
pub(super) async fn locked(change: &mut Change<'_>, app: &str) -> Result<App, Error> {
    let sql = "SELECT name, description, version, created_at FROM apps WHERE name = ?";
    let row = change.rows.row(sql, &[app.into()]).await?;
    App::of(&row.ok_or(Error::NotFound("app"))?)
}

/// Gives an account (its id and its name) a role in an existing app, replaces it, or (none) removes it.
pub(super) async fn put_member(
    change: &mut Change<'_>,
    app: &str,
    id: &str,
    account: &str,
    role: Option<Role>,
) -> Result<(), Error> {
    let sql = "SELECT role FROM members WHERE app = ? AND account = ?";
    let before = change.rows.row(sql, &[app.into(), id.into()]).await?;
    let before = before.map(|row| row.get::<String>(0)).transpose()?;
    if role.is_none() && before.is_none() {
        return Err(Error::NotFound("member"));
    }
    let count = "SELECT COUNT(*) FROM members WHERE app = ?";
    let count = change.rows.row(count, &[app.into()]).await?;
    if before.is_none() && count.map_or(Ok(0), |row| row.get(0))? >= MEMBERS_MAX {
        return Err(Error::TooMany(format!("{MEMBERS_MAX} members")));
    }
    let sql = "DELETE FROM members WHERE app = ? AND account = ?";
    change.rows.run(sql, &[app.into(), id.into()]).await?;
    if let Some(role) = role {
        let sql = "INSERT INTO members (app, account, role) VALUES (?, ?, ?)";
        change.rows.run(sql, &[app.into(), id.into(), role.name().into()]).await?;
    }
    let target = format!("{app}/{account}");
    let after = role.map(|role| role.name().to_owned());
    change.audit(Action::ChangeMembers, AuditTarget::of(app, &target), before, after);
    Ok(())
}

/// Returns whether this account (its id) is the only owner of an app.
async fn is_last_owner(change: &mut Change<'_>, app: &str, account: &str) -> Result<bool, Error> {
    let sql = "SELECT account FROM members WHERE app = ? AND role = ? LIMIT 2";
    let owners = change.rows.rows(sql, &[app.into(), Role::Owner.name().into()]).await?;
    Ok(owners.len() == 1 && owners[0].get::<String>(0)? == account)
}

async fn account_id(
    change: &mut Change<'_>,
    account: &str,
    pointer: &str,
) -> Result<String, Error> {
    let row = change.rows.row("SELECT id FROM accounts WHERE name = ?", &[account.into()]).await?;
    let row = row.ok_or_else(|| {
        Error::invalid(pointer, finding!("account_not_found", "no account `{account}`", account))
    })?;
    row.get(0)
}

pub(super) fn role(row: &Row, place: usize) -> Result<Role, Error> {
    let name: String = row.get(place)?;
    Role::named(&name).ok_or_else(|| Error::Damaged(format!("unknown role `{name}`")))
}
