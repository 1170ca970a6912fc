//! Tokens of machines.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use sluicegate_text::fields::whole_number;
use utoipa::ToSchema;

use super::apps::signed_in;
use crate::access::Scope;
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{NewToken, TokenView};
use crate::identity::{Secret, SecretKind};
use sluicegate_policy::finding;

/// Longest life of a token, in days: two years.
const DAYS_MAX: i64 = 731;

/// Days within which a token counts as expiring soon, by default.
const SOON_DAYS: i64 = 14;

/// Milliseconds of a day.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// A token to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken)]
pub(in crate::api) struct NewTokenBody {
    /// 1 to 128 characters of `a-z`, `0-9`, `.`, `_` and `-`. Two valid tokens can share a name.
    #[schema(pattern = "^[a-z0-9._-]{1,128}$")]
    name: String,
    /// `check`, `refund`, `policy:read`, `policy:write`.
    #[schema(min_items = 1)]
    scopes: Vec<Scope>,
    /// Days until the token expires, 1 to 731.
    #[serde(deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 731)]
    expires_in_days: i64,
}

/// The tokens that expire soon: the first of them, and their number.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct EndingTokens {
    /// The tokens that expire first, at most 100.
    items: Vec<TokenView>,
    /// Number of tokens that expire in this time.
    total: i64,
}

/// A created token.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct TokenMade {
    #[serde(flatten)]
    token: TokenView,
    /// The secret, returned only once; absent when a repeated request gets the same answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let tokens = ask.api.catalog.tokens(ask.param("app"), &ask.page(), ask.by.at).await?;
    Ok(ApiResponse::list(&ask, tokens, |token| token.id.clone()))
}

pub(in crate::api) async fn ending(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let days = ask.query().ends_within_days.unwrap_or(SOON_DAYS);
    if !(1..=DAYS_MAX).contains(&days) {
        let problem = finding!(
            "bad_days",
            "ends_within_days: `{value}` is outside 1..={max}",
            value = days,
            max = DAYS_MAX
        );
        return Err(ApiProblem::new(StatusCode::BAD_REQUEST, problem));
    }
    let until = ask.by.at + days * DAY_MS;
    let account = signed_in(&ask)?;
    let (items, total) = ask.api.catalog.ending_tokens(account, ask.by.at, until).await?;
    Ok(ApiResponse::ok(&EndingTokens { items, total }))
}

pub(in crate::api) async fn create(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewTokenBody { name, scopes, expires_in_days } = ask.json()?;
    if !(1..=DAYS_MAX).contains(&expires_in_days) {
        let problem = finding!(
            "outside",
            "`{value}` is outside 1..={max}",
            value = expires_in_days,
            max = DAYS_MAX
        );
        return Err(ApiProblem::invalid("/expires_in_days", problem));
    }
    let secret = Secret::new(SecretKind::Token);
    let (hash, expires_at) = (secret.hash(), ask.by.at + expires_in_days * DAY_MS);
    let new = NewToken { name: &name, scopes: &scopes, expires_at, hash: &hash };
    let catalog = &ask.api.catalog;
    let token = catalog.create_token(&ask.by, ask.param("app"), new).await?;
    // If the request came again, the token is the earlier one's, and has another secret.
    let kept = catalog.token_of_hash(&hash, ask.by.at).await?;
    let is_new = kept.is_some_and(|kept| kept.id == token.id);
    let secret = is_new.then(|| secret.expose().to_owned());
    Ok(ApiResponse::created(&TokenMade { token, secret }))
}

pub(in crate::api) async fn revoke(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, token) = (ask.param("app"), ask.param("token"));
    ask.api.catalog.revoke_token(&ask.by, app, token).await?;
    Ok(ApiResponse::done())
}
