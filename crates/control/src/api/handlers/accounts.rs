//! Accounts, by administrators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{AccessDenied, Actor};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{AccountChange, NewAccount};

/// An account to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAccount)]
pub(in crate::api) struct NewAccountBody {
    /// 1 to 128 letters, digits, `.`, `_`, `@`, `+` or `-`.
    #[schema(pattern = "^[A-Za-z0-9._@+-]{1,128}$")]
    name: String,
    /// At least 12 characters; omit for accounts that sign in with OpenID Connect.
    #[schema(min_length = 12)]
    password: Option<String>,
    /// OpenID Connect issuer and subject: `https://id.example.org|1234`.
    subject: Option<String>,
    /// `true` for an administrator.
    #[serde(default)]
    is_admin: bool,
}

/// Changes to an account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AccountChange)]
pub(in crate::api) struct AccountChangeBody {
    /// `true` for an administrator; absent: unchanged.
    is_admin: Option<bool>,
    /// `true` to disable sign-in; absent: unchanged.
    is_disabled: Option<bool>,
    /// A new password; absent: unchanged.
    #[schema(min_length = 12)]
    password: Option<String>,
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let accounts = ask.api.catalog.accounts(&ask.page()).await?;
    Ok(ApiResponse::list(&ask, accounts, |account| account.name.clone()))
}

pub(in crate::api) async fn get(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let account = ask.api.catalog.account(ask.param("account")).await?;
    Ok(ApiResponse::ok(&account).version(account.version))
}

pub(in crate::api) async fn create(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewAccountBody { name, password, subject, is_admin } = ask.json()?;
    let hash = match &password {
        Some(password) => Some(ask.api.passwords.hash(password).await?),
        None => None,
    };
    let (hash, subject) = (hash.as_deref(), subject.as_deref());
    let new = NewAccount { name: &name, password_hash: hash, subject, is_admin };
    let made = ask.api.catalog.create_account(&ask.by, new).await?;
    Ok(ApiResponse::created(&made).version(made.version))
}

pub(in crate::api) async fn change(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let AccountChangeBody { is_admin, is_disabled, password } = ask.json()?;
    let version = ask.version()?;
    let hash = match &password {
        Some(password) => Some(ask.api.passwords.hash(password).await?),
        None => None,
    };
    let wanted = AccountChange { is_admin, is_disabled, password_hash: hash.as_deref() };
    let name = ask.param("account");
    let changed = ask.api.catalog.change_account(&ask.by, name, version, wanted).await?;
    Ok(ApiResponse::ok(&changed).version(changed.version))
}

pub(in crate::api) async fn delete(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let version = ask.version()?;
    ask.api.catalog.delete_account(&ask.by, ask.param("account"), version).await?;
    Ok(ApiResponse::done())
}

pub(in crate::api) async fn sessions(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (api, own) = (&ask.api, ask.session.as_deref());
    let account = api.catalog.account(ask.param("account")).await?;
    Ok(ApiResponse::all(api.catalog.sessions(&account.name, ask.by.at, api.spans, own).await?))
}

pub(in crate::api) async fn end_sessions(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    ask.api.catalog.end_sessions(&ask.by, ask.param("account")).await?;
    Ok(ApiResponse::done())
}

/// An account that was found.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Person {
    /// Account name.
    name: String,
}

pub(in crate::api) async fn people(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let Actor::Account(account) = &ask.by.actor else { return Err(AccessDenied::Forbidden.into()) };
    let names = ask.api.catalog.people(account, &ask.query().q).await?;
    Ok(ApiResponse::all(names.into_iter().map(|name| Person { name }).collect()))
}
