//! Authentication of requests: people have the cookie of a session, machines a token.

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use sluicegate_net::headers::bearer;

use super::Api;
use super::problem::ApiProblem;
use sluicegate_policy::finding;

use crate::access::{Actor, Token};
use crate::catalog::{LiveSession, TokenUse};
use crate::identity::{Secret, SecretKind};

/// The cookie of a session. For its name, browsers keep it to this host, and to TLS except on loopback.
pub(super) const COOKIE: &str = "__Host-sluicegate";

/// Header field of requests that a page sends by itself: they do not count as use of the session.
const PASSIVE: &str = "sluicegate-passive";

/// The actor of a request, and the hash of its session cookie if it has one.
pub(super) struct Principal {
    pub(super) actor: Actor,
    pub(super) session: Option<String>,
    /// The session, if it is still valid.
    pub(super) live: Option<LiveSession>,
}

/// Authenticates a request by its head.
///
/// # Errors
/// 401 if a token is sent that is not valid (any more). A cookie of an ended session counts as none.
pub(super) async fn authenticate(api: &Api, head: &Parts) -> Result<Principal, ApiProblem> {
    if let Some(token) = bearer(&head.headers) {
        if token.is_empty() {
            return Err(ApiProblem::new(
                StatusCode::UNAUTHORIZED,
                finding!(
                    "token_without_scheme",
                    "authorization: no token: write `Authorization: Bearer TOKEN`, once"
                ),
            ));
        }
        let token = std::str::from_utf8(token).map_err(|_| unknown_token())?;
        return machine(api, token).await;
    }
    match cookie(&head.headers, COOKIE) {
        Some(session) => person(api, session, head.headers.contains_key(PASSIVE)).await,
        None => Ok(Principal { actor: Actor::Nobody, session: None, live: None }),
    }
}

async fn machine(api: &Api, shown: &str) -> Result<Principal, ApiProblem> {
    if !shown.starts_with(SecretKind::Token.prefix()) {
        return Err(unknown_token());
    }
    let at = api.now();
    let hash = Secret::hash_of(shown);
    let Some(view) = api.catalog.token_of_hash(&hash, at).await? else {
        return Err(match api.catalog.is_token_kept(&hash).await? {
            true => ApiProblem::new(
                StatusCode::UNAUTHORIZED,
                finding!("token_expired", "authorization: the token has expired; create another"),
            ),
            false => unknown_token(),
        });
    };
    api.catalog
        .record_tokens_used(&[TokenUse { id: view.id.clone(), at: at / 60_000 * 60_000 }])
        .await?;
    let token = Token { id: view.id, name: view.name, app: view.app, scopes: view.scopes };
    Ok(Principal { actor: Actor::Token(token), session: None, live: None })
}

/// Returns the problem of a token that is unknown or was revoked.
fn unknown_token() -> ApiProblem {
    ApiProblem::new(
        StatusCode::UNAUTHORIZED,
        finding!("unknown_token", "authorization: invalid token: unknown or revoked"),
    )
}

async fn person(api: &Api, shown: &str, is_passive: bool) -> Result<Principal, ApiProblem> {
    let hash = Secret::hash_of(shown);
    let live = api.catalog.use_session(&hash, api.now(), api.spans, is_passive).await?;
    let account = match &live {
        Some(live) => api.catalog.actor(&live.account).await?,
        None => None,
    };
    // A cookie outlives its session: its owner may sign in again.
    let actor = account.map_or(Actor::Nobody, Actor::Account);
    Ok(Principal { actor, session: Some(hash), live })
}

/// Returns the cookie of this name, if the client sent it.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let mut pairs =
        cookies.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}
