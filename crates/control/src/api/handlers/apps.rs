//! Apps and their members.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::{AccessDenied, Account, Actor, Role};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};

/// An app to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewApp {
    /// 1 to 128 characters of `a-z`, `0-9`, `.`, `_` and `-`; cannot be changed later.
    #[schema(pattern = "^[a-z0-9._-]{1,128}$")]
    name: String,
    /// A description for people.
    #[serde(default)]
    #[schema(max_length = 1000)]
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
    #[schema(max_length = 1000)]
    description: String,
}

/// The role to assign.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct MemberRole {
    /// `viewer` or `owner`.
    role: Role,
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let of = match &ask.by.actor {
        Actor::Account(account) if !account.is_admin => Some(account.id.as_str()),
        _ => None,
    };
    let apps = ask.api.catalog.apps(of, &ask.page()).await?;
    Ok(ApiResponse::list(&ask, apps, |app| app.name.clone()))
}

pub(in crate::api) async fn summaries(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let account = signed_in(&ask)?;
    let apps = ask.api.catalog.app_summaries(account, &ask.page()).await?;
    Ok(ApiResponse::list(&ask, apps, |app| app.name.clone()))
}

pub(in crate::api) async fn search(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let hits = ask.api.catalog.search(signed_in(&ask)?, &ask.query().q).await?;
    Ok(ApiResponse::all(hits))
}

/// Returns the account that sent the request; 403 for tokens.
pub(super) fn signed_in(ask: &ApiRequest) -> Result<&Account, ApiProblem> {
    match &ask.by.actor {
        Actor::Account(account) => Ok(account),
        _ => Err(AccessDenied::Forbidden.into()),
    }
}

pub(in crate::api) async fn get(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let app = ask.api.catalog.app(ask.param("app")).await?;
    Ok(ApiResponse::ok(&app).version(app.version))
}

pub(in crate::api) async fn create(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewApp { name, description, owners } = ask.json()?;
    let made = ask.api.catalog.create_app(&ask.by, &name, &description, &owners).await?;
    Ok(ApiResponse::created(&made).version(made.version))
}

pub(in crate::api) async fn change(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (AppChange { description }, version) = (ask.json()?, ask.version()?);
    let app = ask.param("app");
    let changed = ask.api.catalog.change_app(&ask.by, app, version, &description).await?;
    Ok(ApiResponse::ok(&changed).version(changed.version))
}

pub(in crate::api) async fn delete(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let version = ask.version()?;
    ask.api.catalog.delete_app(&ask.by, ask.param("app"), version).await?;
    Ok(ApiResponse::done())
}

pub(in crate::api) async fn members(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let members = ask.api.catalog.members(ask.param("app"), &ask.page()).await?;
    Ok(ApiResponse::list(&ask, members, |member| member.account.clone()))
}

pub(in crate::api) async fn set_member(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let MemberRole { role } = ask.json()?;
    member(&ask, Some(role)).await
}

pub(in crate::api) async fn remove_member(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    member(&ask, None).await
}

async fn member(ask: &ApiRequest, role: Option<Role>) -> Result<ApiResponse, ApiProblem> {
    let (app, account) = (ask.param("app"), ask.param("account"));
    ask.api.catalog.set_member(&ask.by, app, account, role).await?;
    Ok(ApiResponse::done())
}
