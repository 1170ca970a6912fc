//! Where operators come to: the admin API, once the catalog is there.

use std::sync::OnceLock;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sluicegate::http::problem::MEDIA_TYPE;
use sluicegate_control::api::{Api, Source};
use tower::ServiceExt;

use crate::wire::accept::Peer;

/// The admin API of a server.
#[derive(Debug, Default)]
pub(crate) struct Office {
    /// None: the catalog was not reached yet.
    router: OnceLock<Router>,
}

impl Office {
    /// From now on this answers.
    pub(super) fn open(&self, api: &Api) {
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
