//! The API itself, and the nodes.

use serde::Serialize;
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::identity::{Oidc, PASSWORD_CHARS_MIN};

/// Properties of a server that anybody can read, before signing in.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Meta {
    /// State of the catalog.
    pub catalog: CatalogState,
    /// `true` while the first account is still to be created, with the setup token; null unless the catalog
    /// answers.
    pub setup_due: Option<bool>,
    /// The OpenID Connect provider to sign in with; null if none is configured.
    pub oidc: Option<MetaOidc>,
    /// Version of the server.
    pub software: &'static str,
    /// Shortest password, in characters.
    pub password_chars_min: usize,
}

/// A provider of OpenID Connect.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MetaOidc {
    /// Host of the provider.
    pub name: String,
}

/// State of a server's catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatalogState {
    /// No catalog is configured.
    None,
    /// The catalog does not answer.
    Away,
    /// The catalog answers.
    Ready,
}

impl Meta {
    /// Describes a server with a catalog in this state; `setup_due` is null.
    pub fn new(catalog: CatalogState, oidc: Option<&Oidc>) -> Self {
        Self {
            catalog,
            setup_due: None,
            oidc: oidc.map(|oidc| MetaOidc { name: oidc.name() }),
            software: env!("CARGO_PKG_VERSION"),
            password_chars_min: PASSWORD_CHARS_MIN,
        }
    }
}

pub(in crate::api) async fn meta(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let oidc = ask.api.oidc.as_deref();
    let meta = match ask.api.catalog.has_accounts().await {
        Ok(has_accounts) => {
            Meta { setup_due: Some(!has_accounts), ..Meta::new(CatalogState::Ready, oidc) }
        }
        Err(_) => Meta::new(CatalogState::Away, oidc),
    };
    Ok(ApiResponse::ok(&meta))
}

pub(in crate::api) async fn openapi(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    Ok(ApiResponse::ok(&(ask.api.description)()))
}

pub(in crate::api) async fn policy_schema(_: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    Ok(ApiResponse::ok(&sluicegate_policy::schema::document()))
}

pub(in crate::api) async fn fleet(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let fleet = ask.api.catalog.fleet().await?;
    Ok(ApiResponse::ok(&ask.api.sightings.of(fleet, ask.by.at, &ask.api.listen)))
}

pub(in crate::api) async fn nodes(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let nodes = ask.api.catalog.nodes(&ask.page()).await?;
    Ok(ApiResponse::list(&ask, nodes, |node| node.name.clone()))
}

/// The configuration of a node.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Settings {
    /// As `sluicegate config print` prints it; secrets are `***`.
    #[schema(value_type = Object)]
    configuration: Json,
}

pub(in crate::api) async fn settings(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    Ok(ApiResponse::ok(&Settings { configuration: (*ask.api.settings).clone() }))
}
