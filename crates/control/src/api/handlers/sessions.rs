//! Who one is: the first account, signing in and out, one's own password.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sluicegate::{Cost, KeyedRateLimiter};
use utoipa::ToSchema;

use crate::access::{Account, Actor, Denied, Scope};
use crate::api::Api;
use crate::api::ask::{Ask, Reply};
use crate::api::problem::Problem;
use crate::catalog::{By, NewAccount};
use crate::identity::{Secret, SecretKind};

/// The first account.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct SetUp {
    /// The setup token that was printed when the program started.
    token: String,
    /// What the account is to be called.
    account: String,
    /// Twelve characters or more.
    password: String,
}

/// Who signs in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct SignIn {
    account: String,
    password: String,
}

/// One's own new password.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewPassword {
    /// The one that it was.
    current: String,
    /// Twelve characters or more.
    password: String,
}

/// Who one is.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Me {
    /// As the audit names them.
    actor: String,
    is_admin: bool,
    /// The role in each app.
    roles: std::collections::BTreeMap<String, crate::access::Role>,
    /// Of a token.
    scopes: Vec<Scope>,
}

pub(in crate::api) async fn set_up(ask: Ask) -> Result<Reply, Problem> {
    let SetUp { token, account, password } = ask.json()?;
    let api = &ask.api;
    limit(api, &account, &ask.by.source)?;
    if !api.setup.is(&token, ask.by.at) {
        let problem = "token: it is wrong, was used, or is older than 15 minutes; while there are no \
                       accounts, the server shows a new one when it starts";
        return Err(Problem::new(StatusCode::FORBIDDEN, problem));
    }
    let hash = api.passwords.hash(&password).await?;
    let new =
        NewAccount { name: &account, password_hash: Some(&hash), subject: None, is_admin: true };
    let made = api.catalog.set_up(&ask.by, new).await?;
    if !ask.by.dry_run {
        api.setup.end();
    }
    Ok(Reply::created(&made).version(made.version))
}

pub(in crate::api) async fn sign_in(ask: Ask) -> Result<Reply, Problem> {
    let SignIn { account, password } = ask.json()?;
    let api = &ask.api;
    limit(api, &account, &ask.by.source)?;
    let kept = api.catalog.password_hash(&account).await?;
    let (id, kept) = kept.unzip();
    let is_right = api.passwords.verify(&password, kept).await?;
    let signed_in = match id.filter(|_| is_right) {
        Some(id) => api.catalog.actor(&id).await?,
        None => None,
    };
    // The same words, whichever of the two is wrong.
    let signed_in = signed_in.ok_or_else(wrong)?;
    let secret = begin(api, &signed_in, &ask.by).await?;
    // Whoever had a session in this browser has another one now.
    if let Some(old) = &ask.session {
        api.catalog.end_session(old).await?;
    }
    Ok(Reply::ok(&Me::of(&Actor::Account(signed_in))).cookie(Some(secret.expose())))
}

pub(in crate::api) async fn me(ask: Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&Me::of(&ask.by.actor)))
}

pub(in crate::api) async fn sign_out(ask: Ask) -> Result<Reply, Problem> {
    if let Some(session) = &ask.session {
        ask.api.catalog.end_session(session).await?;
    }
    Ok(Reply::done().cookie(None))
}

pub(in crate::api) async fn sign_out_everywhere(ask: Ask) -> Result<Reply, Problem> {
    ask.api.catalog.end_sessions(&account(&ask)?.id).await?;
    Ok(Reply::done().cookie(None))
}

pub(in crate::api) async fn change_password(ask: Ask) -> Result<Reply, Problem> {
    let NewPassword { current, password } = ask.json()?;
    let (api, account) = (&ask.api, account(&ask)?);
    limit(api, &account.name, &ask.by.source)?;
    let kept = api.catalog.password_hash(&account.name).await?;
    if !api.passwords.verify(&current, kept.map(|(_, kept)| kept)).await? {
        return Err(Problem::invalid("/current", "is not the password"));
    }
    let hash = api.passwords.hash(&password).await?;
    api.catalog.change_password(&ask.by, &account.name, &hash).await?;
    let secret = begin(api, account, &ask.by).await?;
    Ok(Reply::done().cookie(Some(secret.expose())))
}

/// Begins a session of an account.
async fn begin(api: &Api, account: &Account, by: &By) -> Result<Secret, Problem> {
    let secret = Secret::new(SecretKind::Session);
    let kept = (&*secret.hash(), &*by.source);
    api.catalog.begin_session(&account.id, kept, by.at, api.spans).await?;
    Ok(secret)
}

/// That neither this account nor this address is tried too often. It is asked before anything is
/// computed.
fn limit(api: &Api, account: &str, source: &str) -> Result<(), Problem> {
    limit_source(api, source)?;
    // What is no account's name is no key of a limiter either.
    let account: String = account.chars().take(crate::limits::ACCOUNT_BYTES_MAX).collect();
    attempt(&api.attempts.of_account, &account)
}

/// That this address does not try too often.
pub(super) fn limit_source(api: &Api, source: &str) -> Result<(), Problem> {
    attempt(&api.attempts.of_source, source)
}

fn attempt(limiter: &KeyedRateLimiter<str>, key: &str) -> Result<(), Problem> {
    let decision = limiter.check(key, Cost::ONE);
    if decision.allowed() {
        return Ok(());
    }
    let seconds = decision.retry_after().map_or(60, |span| span.ceil_secs().max(1));
    Err(Problem::again_in(seconds, "too many attempts"))
}

fn wrong() -> Problem {
    Problem::new(axum::http::StatusCode::UNAUTHORIZED, "the account or the password is wrong")
}

fn account(ask: &Ask) -> Result<&Account, Problem> {
    match &ask.by.actor {
        Actor::Account(account) => Ok(account),
        _ => Err(Denied::Forbidden.into()),
    }
}

impl Me {
    fn of(actor: &Actor) -> Self {
        let mut me = Self {
            actor: actor.to_string(),
            is_admin: false,
            roles: [].into(),
            scopes: Vec::new(),
        };
        match actor {
            Actor::Account(Account { is_admin, roles, .. }) => {
                (me.is_admin, me.roles) = (*is_admin, roles.clone());
            }
            Actor::Token(token) => me.scopes.clone_from(&token.scopes),
            Actor::Nobody | Actor::Operator | Actor::Provider => {}
        }
        me
    }
}
