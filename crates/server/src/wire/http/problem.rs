//! What went wrong, as problem+json (RFC 9457).

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use serde::Serialize;
use sluicegate::DecideError;

use crate::fields::FieldError;
use crate::say;

/// A request that was not answered with a decision.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    /// A problem of this status.
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// The request makes no sense.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// What went wrong, for people.
    #[cfg(test)]
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// The response that says so.
    pub(super) fn into_response(self) -> Response<Body> {
        let document = Document {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let body = serde_json::to_vec(&document).expect("strings and a number are always JSON");
        Response::builder()
            .status(self.status)
            .header(header::CONTENT_TYPE, "application/problem+json")
            .body(Body::from(body))
            .expect("a known status and a constant header")
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<DecideError> for Problem {
    fn from(error: DecideError) -> Self {
        let status = match &error {
            DecideError::UnknownPolicy(_) => StatusCode::NOT_FOUND,
            DecideError::Unconfigured { .. } => StatusCode::FORBIDDEN,
            DecideError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, say::decide_error(&error))
    }
}
