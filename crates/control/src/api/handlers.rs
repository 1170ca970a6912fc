//! Handlers of the routes, called after authentication and authorization.

pub(super) mod accounts;
pub(super) mod apps;
pub(super) mod audit;
pub(super) mod import;
pub(super) mod keys;
pub(super) mod meta;
#[cfg(feature = "oidc")]
pub(super) mod oidc;
pub(super) mod permits;
pub(super) mod policies;
pub(super) mod refused;
pub(super) mod sessions;
pub(super) mod stream;
pub(super) mod tokens;
pub(super) mod traffic;
pub(super) mod whatif;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::Api;
use super::problem::ApiProblem;
use crate::identity::Oidc;

/// Sign-in with OpenID Connect in a build without it. The handlers answer as if it were not configured, so
/// that routes and description stay the same.
#[cfg(not(feature = "oidc"))]
pub(super) mod oidc {
    use crate::api::problem::ApiProblem;
    use crate::api::request::{ApiRequest, ApiResponse};

    pub(in crate::api) async fn login(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
        super::oidc_of(&ask.api).map(|never| match *never {})
    }

    pub(in crate::api) async fn callback(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
        super::oidc_of(&ask.api).map(|never| match *never {})
    }

    pub(in crate::api) async fn problem(_: ApiRequest) -> Result<ApiResponse, ApiProblem> {
        Ok(ApiResponse::ok(&super::SignInFailure { problem: None }))
    }
}

/// Why the last sign-in of this browser with OpenID Connect failed.
#[derive(Serialize, ToSchema)]
pub(super) struct SignInFailure {
    /// The problem (RFC 9457); null: none.
    #[schema(value_type = Option<Object>)]
    problem: Option<Json>,
}

/// Returns the OpenID Connect client; 404 if it is not configured.
fn oidc_of(api: &Api) -> Result<&Oidc, ApiProblem> {
    api.oidc.as_deref().ok_or_else(|| {
        let detail = sluicegate_policy::finding!(
            "no_oidc_here",
            "OpenID Connect sign-in is not configured: set `catalog.oidc`"
        );
        ApiProblem::new(StatusCode::NOT_FOUND, detail)
    })
}
