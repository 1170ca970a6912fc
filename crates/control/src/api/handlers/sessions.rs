//! Setup of the first account, sessions, and one's own password.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{AccessDenied, Account, Action, Actor};
use crate::api::Api;
use crate::api::attempts::{Attempt, KNOWN_MS_MAX};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{
    ChangeContext, KeptPassword, LiveSession, NewAccount, NewSession, PasswordChange,
    is_account_name,
};
use crate::error::Error;
use crate::identity::{Secret, SecretKind};
use sluicegate_policy::finding;

/// The first account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct SetUp {
    /// The setup token printed when the server started.
    token: String,
    /// Name of the account to create.
    account: String,
    /// Twelve characters or more.
    #[schema(min_length = 12)]
    password: String,
}

/// Credentials to sign in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct SignIn {
    account: String,
    password: String,
}

/// A new password for your own account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewPassword {
    /// The current password.
    current: String,
    /// Twelve characters or more.
    #[schema(min_length = 12)]
    password: String,
}

/// The signed-in account.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Me {
    /// The caller, as named in the audit.
    actor: String,
    /// Account name.
    name: String,
    is_admin: bool,
    /// `true` if the account has a password; otherwise it signs in with OpenID Connect.
    has_password: bool,
    /// The role in each app.
    roles: std::collections::BTreeMap<String, crate::access::Role>,
    /// Instant at which the session ends unless it is used, in milliseconds since 1970. Requests with the header field
    /// `sluicegate-passive` do not use it.
    idle_until: i64,
    /// Instant at which the session ends in any case, in milliseconds since 1970.
    ends_at: i64,
}

pub(in crate::api) async fn set_up(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let SetUp { token, account, password } = ask.json()?;
    let api = &ask.api;
    let attempt = api.attempts.of_source(&ask.by.source)?;
    if !api.setup.is(&token, ask.by.at) {
        attempt.failed();
        ask.audit_failed(Action::SetUp, None, named(&account)).await;
        let problem = match api.catalog.has_accounts().await? {
            true => finding!(
                "setup_over",
                "the setup is done: there are accounts; sign in (`sluicegate login --name ACCOUNT`), or ask an \
                 administrator for an account or a new password"
            ),
            false => finding!(
                "bad_setup_token",
                "token: invalid, used or expired (after 15 minutes); until there is an account, each server writes a \
                 setup token of its own at start and every 15 minutes, on standard error or to \
                 `catalog.setup_token_file`"
            ),
        };
        return Err(ApiProblem::new(StatusCode::FORBIDDEN, problem));
    }
    let hash = api.passwords.hash(&password).await?;
    let new =
        NewAccount { name: &account, password_hash: Some(&hash), subject: None, is_admin: true };
    let made = api.catalog.set_up(&ask.by, new).await?;
    if !ask.by.dry_run {
        api.setup.end();
    }
    Ok(ApiResponse::created(&made).version(made.version))
}

pub(in crate::api) async fn sign_in(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let SignIn { account, password } = ask.json()?;
    let api = &ask.api;
    let attempt = attempt(&ask, &account).await?;
    let signed_in = match proven(api, &account, &password, &attempt).await? {
        Some(kept) => api.catalog.actor(&kept.account).await?.map(|account| (kept, account)),
        None => None,
    };
    // One message for both, so that it does not reveal which is wrong.
    let Some((kept, signed_in)) = signed_in else {
        attempt.failed();
        ask.audit_failed(Action::SignIn, None, named(&account)).await;
        return Err(wrong());
    };
    let secret = Secret::new(SecretKind::Session);
    let by = ChangeContext { actor: Actor::Account(signed_in.clone()), ..ask.by.clone() };
    api.changes.count(&by.actor, Action::SignIn)?;
    // The new session replaces the one of this browser.
    let old: Vec<_> = ask.session.iter().map(String::as_str).collect();
    let session = NewSession { hash: &secret.hash(), spans: api.spans, instead_of: &old };
    match api.catalog.sign_in(&by, &kept, session).await {
        // The password was changed meanwhile.
        Err(Error::Denied(_)) => return Err(wrong()),
        signed_in => signed_in?,
    }
    let live = LiveSession {
        account: signed_in.id.clone(),
        idle_until: ask.by.at + api.spans.idle_ms,
        ends_at: ask.by.at + api.spans.absolute_ms,
    };
    let me = Me::of(&signed_in, true, &live);
    Ok(ApiResponse::ok(&me).cookie(Some(secret.expose())))
}

pub(in crate::api) async fn me(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let account = account(&ask)?;
    let live = ask.live.as_ref().ok_or(AccessDenied::Unknown)?;
    let has_password = ask.api.catalog.account(&account.name).await?.has_password;
    Ok(ApiResponse::ok(&Me::of(account, has_password, live)))
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (name, own) = (&account(&ask)?.name, ask.session.as_deref());
    Ok(ApiResponse::all(ask.api.catalog.sessions(name, ask.by.at, ask.api.spans, own).await?))
}

pub(in crate::api) async fn sign_out(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let account = account(&ask)?;
    let session = ask.session.as_deref().unwrap_or_default();
    ask.api.catalog.sign_out(&ask.by, &account.id, &account.name, Some(session)).await?;
    Ok(ApiResponse::done().cookie(None))
}

pub(in crate::api) async fn sign_out_everywhere(
    ask: ApiRequest,
) -> Result<ApiResponse, ApiProblem> {
    let account = account(&ask)?;
    ask.api.catalog.sign_out(&ask.by, &account.id, &account.name, None).await?;
    Ok(ApiResponse::done().cookie(None))
}

pub(in crate::api) async fn change_password(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewPassword { current, password } = ask.json()?;
    let (api, account) = (&ask.api, account(&ask)?);
    let attempt = attempt(&ask, &account.name).await?;
    let Some(kept) = proven(api, &account.name, &current, &attempt).await? else {
        attempt.failed();
        ask.audit_failed(Action::ChangePassword, None, &account.name).await;
        return Err(ApiProblem::invalid("/current", finding!("wrong_password", "wrong password")));
    };
    let (hash, secret) = (api.passwords.hash(&password).await?, Secret::new(SecretKind::Session));
    let (account, version, session) = (account.name.as_str(), kept.version, secret.hash());
    let change = PasswordChange { account, version, hash: &hash, session: &session };
    api.catalog.change_password(&ask.by, &change).await?;
    Ok(ApiResponse::done().cookie(Some(secret.expose())))
}

/// Returns the stored password of this account, if it is `password`. An account that does not exist takes as
/// long.
async fn proven(
    api: &Api,
    account: &str,
    password: &str,
    attempt: &Attempt<'_>,
) -> Result<Option<KeptPassword>, ApiProblem> {
    let kept = api.catalog.password(account).await?;
    let hash = kept.as_ref().map(|kept| kept.hash.clone());
    let is_right = match attempt.is_known {
        true => api.passwords.verify_known(password, hash).await?,
        false => api.passwords.verify(password, hash).await?,
    };
    Ok(kept.filter(|_| is_right))
}

/// Takes an attempt on this account from the source of the request, before the password is computed.
async fn attempt<'a>(ask: &'a ApiRequest, account: &str) -> Result<Attempt<'a>, ApiProblem> {
    let (attempts, source) = (&ask.api.attempts, ask.by.source.as_str());
    // Text that cannot be an account name does not become a key of a limiter.
    if !is_account_name(account) {
        return Ok(attempts.of_source(source)?);
    }
    let used_up = match attempts.of_stranger(account, source) {
        Ok(attempt) => return Ok(attempt),
        Err(used_up) => used_up,
    };
    let browser = ask.session.as_deref();
    if used_up.is_of_place && browser.is_none() {
        return Err(used_up.into());
    }
    let known = ask.api.catalog.known(account, ask.by.at - KNOWN_MS_MAX).await?;
    let attempt = attempts.of_known(account, source, browser, &known);
    attempt.ok_or_else(|| used_up.into())
}

/// Returns the name for the audit: empty if it is not a valid account name, since it may be a password.
fn named(account: &str) -> &str {
    if is_account_name(account) { account } else { "" }
}

fn wrong() -> ApiProblem {
    ApiProblem::new(
        axum::http::StatusCode::UNAUTHORIZED,
        finding!("wrong_account_or_password", "wrong account or password"),
    )
}

fn account(ask: &ApiRequest) -> Result<&Account, ApiProblem> {
    match &ask.by.actor {
        Actor::Account(account) => Ok(account),
        _ => Err(AccessDenied::Forbidden.into()),
    }
}

impl Me {
    fn of(account: &Account, has_password: bool, live: &LiveSession) -> Self {
        Self {
            actor: Actor::Account(account.clone()).to_string(),
            name: account.name.clone(),
            is_admin: account.is_admin,
            has_password,
            roles: account.roles.clone(),
            idle_until: live.idle_until,
            ends_at: live.ends_at,
        }
    }
}
