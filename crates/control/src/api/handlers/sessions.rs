//! Who one is: the first account, signing in and out, one's own password.

use std::borrow::Cow;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sluicegate::http::{AddressKey, V6Prefix};
use sluicegate::{Cost, KeyedRateLimiter};
use utoipa::ToSchema;

use crate::access::{Account, Action, Actor, Denied};
use crate::api::Api;
use crate::api::ask::{Ask, Reply};
use crate::api::problem::Problem;
use crate::catalog::{By, KeptPassword, NewAccount, NewSession, is_account_name};
use crate::error::Error;
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
}

pub(in crate::api) async fn set_up(ask: Ask) -> Result<Reply, Problem> {
    let SetUp { token, account, password } = ask.json()?;
    let api = &ask.api;
    limit(api, &account, &ask.by.source)?;
    if !api.setup.is(&token, ask.by.at) {
        ask.note_refused(Action::SetUp, None, named(&account)).await;
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
    let signed_in = match proven(api, &account, &password).await? {
        Some(kept) => api.catalog.actor(&kept.account).await?.map(|account| (kept, account)),
        None => None,
    };
    // The same words, whichever of the two is wrong.
    let Some((kept, signed_in)) = signed_in else {
        ask.note_refused(Action::SignIn, None, named(&account)).await;
        return Err(wrong());
    };
    let secret = Secret::new(SecretKind::Session);
    let by = By { actor: Actor::Account(signed_in.clone()), ..ask.by.clone() };
    // Whoever had a session in this browser has another one now.
    let old: Vec<_> = ask.session.iter().map(String::as_str).collect();
    let session = NewSession { hash: &secret.hash(), spans: api.spans, instead_of: &old };
    match api.catalog.sign_in(&by, &kept, session).await {
        // The password is another one by now.
        Err(Error::Denied(_)) => return Err(wrong()),
        signed_in => signed_in?,
    }
    Ok(Reply::ok(&Me::of(&Actor::Account(signed_in))).cookie(Some(secret.expose())))
}

pub(in crate::api) async fn me(ask: Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&Me::of(&ask.by.actor)))
}

pub(in crate::api) async fn sign_out(ask: Ask) -> Result<Reply, Problem> {
    let account = account(&ask)?;
    let of = (account.id.as_str(), account.name.as_str());
    let session = ask.session.as_deref().unwrap_or_default();
    ask.api.catalog.sign_out(&ask.by, of, Some(session)).await?;
    Ok(Reply::done().cookie(None))
}

pub(in crate::api) async fn sign_out_everywhere(ask: Ask) -> Result<Reply, Problem> {
    let account = account(&ask)?;
    ask.api.catalog.sign_out(&ask.by, (&account.id, &account.name), None).await?;
    Ok(Reply::done().cookie(None))
}

pub(in crate::api) async fn change_password(ask: Ask) -> Result<Reply, Problem> {
    let NewPassword { current, password } = ask.json()?;
    let (api, account) = (&ask.api, account(&ask)?);
    limit(api, &account.name, &ask.by.source)?;
    let Some(kept) = proven(api, &account.name, &current).await? else {
        ask.note_refused(Action::ChangePassword, None, &account.name).await;
        return Err(Problem::invalid("/current", "is not the password"));
    };
    let (hash, secret) = (api.passwords.hash(&password).await?, Secret::new(SecretKind::Session));
    let of = (account.name.as_str(), kept.version);
    api.catalog.change_password(&ask.by, of, &hash, &secret.hash()).await?;
    Ok(Reply::done().cookie(Some(secret.expose())))
}

/// What is kept of the password of this account, if it is `password`. That takes as long if there is no
/// such account.
async fn proven(api: &Api, account: &str, password: &str) -> Result<Option<KeptPassword>, Problem> {
    let kept = api.catalog.password(account).await?;
    let hash = kept.as_ref().map(|kept| kept.hash.clone());
    let is_right = api.passwords.verify(password, hash).await?;
    Ok(kept.filter(|_| is_right))
}

/// That neither this account nor this address is tried too often. It is asked before anything is
/// computed.
fn limit(api: &Api, account: &str, source: &str) -> Result<(), Problem> {
    limit_source(api, source)?;
    // What is no account's name is no key of a limiter either: there is no such account.
    if is_account_name(account) { attempt(&api.attempts.of_account, account) } else { Ok(()) }
}

/// That this address does not try too often.
pub(super) fn limit_source(api: &Api, source: &str) -> Result<(), Problem> {
    attempt(&api.attempts.of_source, &network(source))
}

/// That this address does not begin to sign in elsewhere too often. Other sites can have browsers do
/// that, and are not to use up what is there for passwords.
#[cfg(feature = "oidc")]
pub(super) fn limit_begun(api: &Api, source: &str) -> Result<(), Problem> {
    attempt(&api.attempts.of_begun, &network(source))
}

fn attempt(limiter: &KeyedRateLimiter<str>, key: &str) -> Result<(), Problem> {
    let decision = limiter.check(key, Cost::ONE);
    if decision.allowed() {
        return Ok(());
    }
    let seconds = decision.retry_after().map_or(60, |span| span.ceil_secs().max(1));
    Err(Problem::again_in(seconds, "too many attempts"))
}

/// Whose attempts are counted together: those from one address of IPv4, and from all of IPv6 of one
/// network. Who has one of these has all of them.
fn network(source: &str) -> Cow<'_, str> {
    match source.parse() {
        Ok(address) => AddressKey::text_of(address, V6Prefix::default()).into(),
        Err(_) => source.into(),
    }
}

/// The name of an account, as the audit has it; what is none may be a password.
fn named(account: &str) -> &str {
    if is_account_name(account) { account } else { "" }
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
        let mut me = Self { actor: actor.to_string(), is_admin: false, roles: [].into() };
        if let Actor::Account(Account { is_admin, roles, .. }) = actor {
            (me.is_admin, me.roles) = (*is_admin, roles.clone());
        }
        me
    }
}
