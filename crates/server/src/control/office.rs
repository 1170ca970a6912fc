//! Where operators come to: the admin API, once the catalog is there.

#[cfg(feature = "oidc")]
use std::sync::Arc;
use std::sync::OnceLock;

use anyhow::Result;
#[cfg(feature = "oidc")]
use anyhow::anyhow;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sluicegate::http::problem::MEDIA_TYPE;
use sluicegate_control::api::{Api, Source};
#[cfg(feature = "oidc")]
use sluicegate_control::identity::Oidc;
use tower::ServiceExt;

use crate::config::CatalogConfig;
use crate::wire::accept::Peer;

/// The admin API of a server.
#[derive(Debug)]
pub(crate) struct Office {
    /// None: the catalog was not reached yet.
    router: OnceLock<Router>,
    /// Where people sign in elsewhere, if they do.
    #[cfg(feature = "oidc")]
    oidc: Option<Arc<Oidc>>,
}

impl Office {
    /// The one that `config` describes, not open yet.
    ///
    /// # Errors
    /// What is wrong with the files that it names.
    #[cfg_attr(
        not(feature = "oidc"),
        expect(
            clippy::unnecessary_wraps,
            unused_variables,
            reason = "no file is named without it"
        )
    )]
    pub(crate) fn new(config: &CatalogConfig) -> Result<Self> {
        Ok(Self {
            router: OnceLock::new(),
            #[cfg(feature = "oidc")]
            oidc: oidc(config)?,
        })
    }

    /// From now on this answers.
    pub(super) fn open(&self, api: &Api) {
        #[cfg(feature = "oidc")]
        let api = match &self.oidc {
            Some(oidc) => &api.clone().with_oidc(Arc::clone(oidc)),
            None => api,
        };
        self.router.set(api.router()).ok();
    }

    /// Whether it was opened.
    pub(super) fn is_open(&self) -> bool {
        self.router.get().is_some()
    }

    /// Answers `request`, which came from `peer`.
    pub(crate) async fn answer(&self, peer: Peer, mut request: Request<Body>) -> Response {
        let Some(router) = self.router.get() else { return away() };
        let source = match peer {
            Peer::Ip(address) => address.to_string(),
            Peer::Local => "local".to_owned(),
        };
        request.extensions_mut().insert(Source(source));
        match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

#[cfg(feature = "oidc")]
fn oidc(config: &CatalogConfig) -> Result<Option<Arc<Oidc>>> {
    let oidc = config.oidc.as_ref().map(|oidc| Oidc::new(oidc.of_catalog()));
    match oidc.transpose() {
        Ok(oidc) => Ok(oidc.map(Arc::new)),
        Err(error) => {
            let problem = error.to_string();
            Err(anyhow!("catalog.oidc.{}", problem.trim_start_matches('/')))
        }
    }
}

fn away() -> Response {
    let problem = serde_json::json!({
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "the catalog does not answer; what it said last holds",
    });
    let headers = [(header::CONTENT_TYPE, MEDIA_TYPE), (header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, problem.to_string()).into_response()
}
