//! Apps, and who has a role in them.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::{Actor, Role};
use crate::api::ask::{Ask, Reply};
use crate::api::problem::Problem;

/// An app to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewApp {
    /// 1 to 128 characters of `a-z`, `0-9`, `.`, `_` and `-`; cannot be changed later.
    name: String,
    /// A description for people.
    #[serde(default)]
    description: String,
    /// Accounts that become owners.
    #[serde(default)]
    owners: Vec<String>,
}

/// Changes to an app.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct AppChange {
    /// A description for people.
    description: String,
}

/// The role to assign.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct MemberRole {
    /// `viewer` or `owner`.
    role: Role,
}

pub(in crate::api) async fn list(ask: Ask) -> Result<Reply, Problem> {
    let of = match &ask.by.actor {
        Actor::Account(account) if !account.is_admin => Some(account.id.as_str()),
        _ => None,
    };
    let apps = ask.api.catalog.apps(of, &ask.page()).await?;
    Ok(Reply::list(&ask, apps, |app| app.name.clone()))
}

pub(in crate::api) async fn get(ask: Ask) -> Result<Reply, Problem> {
    let app = ask.api.catalog.app(ask.param("app")).await?;
    Ok(Reply::ok(&app).version(app.version))
}

pub(in crate::api) async fn create(ask: Ask) -> Result<Reply, Problem> {
    let NewApp { name, description, owners } = ask.json()?;
    let made = ask.api.catalog.create_app(&ask.by, &name, &description, &owners).await?;
    Ok(Reply::created(&made).version(made.version))
}

pub(in crate::api) async fn change(ask: Ask) -> Result<Reply, Problem> {
    let (AppChange { description }, version) = (ask.json()?, ask.version()?);
    let app = ask.param("app");
    let changed = ask.api.catalog.change_app(&ask.by, app, version, &description).await?;
    Ok(Reply::ok(&changed).version(changed.version))
}

pub(in crate::api) async fn delete(ask: Ask) -> Result<Reply, Problem> {
    let version = ask.version()?;
    ask.api.catalog.delete_app(&ask.by, ask.param("app"), version).await?;
    Ok(Reply::done())
}

pub(in crate::api) async fn members(ask: Ask) -> Result<Reply, Problem> {
    let members = ask.api.catalog.members(ask.param("app"), &ask.page()).await?;
    Ok(Reply::list(&ask, members, |member| member.account.clone()))
}

pub(in crate::api) async fn set_member(ask: Ask) -> Result<Reply, Problem> {
    let MemberRole { role } = ask.json()?;
    member(&ask, Some(role)).await
}

pub(in crate::api) async fn remove_member(ask: Ask) -> Result<Reply, Problem> {
    member(&ask, None).await
}

async fn member(ask: &Ask, role: Option<Role>) -> Result<Reply, Problem> {
    let (app, account) = (ask.param("app"), ask.param("account"));
    ask.api.catalog.set_member(&ask.by, app, account, role).await?;
    Ok(Reply::done())
}
