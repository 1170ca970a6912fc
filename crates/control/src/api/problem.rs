//! What went wrong, as problem+json (RFC 9457), with a pointer for each field that makes no sense.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::AccessDenied;
use crate::error::{Error, InvalidField};

/// The media type of problems.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static(sluicegate::http::problem::MEDIA_TYPE);

/// Something went wrong.
#[derive(Debug)]
pub(super) struct ApiProblem {
    status: StatusCode,
    detail: String,
    errors: Vec<InvalidField>,
    warnings: Vec<String>,
    version: Option<i64>,
    retry_after_s: Option<u64>,
}

/// An error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemBody<'a> {
    /// Always `about:blank`: the status identifies the kind of error.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: &'a str,
    /// The name of the status.
    #[schema(value_type = String)]
    title: &'a str,
    /// The status of the response.
    status: u16,
    /// What failed, and what is permitted.
    #[schema(value_type = String)]
    detail: &'a str,
    /// The invalid fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<WrongBody<'a>>,
    /// Effects that could lock out clients; `?force=true` applies the change anyway.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    #[schema(value_type = Vec<String>)]
    warnings: &'a [String],
    /// The current version of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
}

/// An invalid field.
#[derive(Serialize, ToSchema)]
#[schema(as = Wrong)]
struct WrongBody<'a> {
    /// Where, as a JSON pointer into the body (RFC 6901).
    #[schema(value_type = String)]
    pointer: &'a str,
    /// What was given and what is permitted.
    #[schema(value_type = String)]
    detail: &'a str,
}

/// Requests that failed because the catalog is damaged, since the process started.
static DAMAGED: AtomicU64 = AtomicU64::new(0);

/// How many requests failed because the catalog is damaged, since the process started.
pub fn damaged_total() -> u64 {
    DAMAGED.load(Ordering::Relaxed)
}

impl ApiProblem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            errors: Vec::new(),
            warnings: Vec::new(),
            version: None,
            retry_after_s: None,
        }
    }

    /// Something of the body makes no sense.
    pub(super) fn invalid(pointer: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Invalid(vec![InvalidField { pointer: pointer.into(), problem: problem.into() }])
            .into()
    }

    /// Come again.
    pub(super) fn again_in(seconds: u64, detail: &str) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, detail);
        Self { retry_after_s: Some(seconds), ..problem }
    }

    /// It is not there now; come again in a second.
    #[cfg(feature = "oidc")]
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self { retry_after_s: Some(1), ..problem }
    }

    pub(super) fn respond(self) -> Response {
        let Self { status, detail, errors, warnings, version, retry_after_s } = &self;
        let wrong = errors.iter();
        let wrong =
            wrong.map(|InvalidField { pointer, problem }| WrongBody { pointer, detail: problem });
        let body = ProblemBody {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
            errors: wrong.collect(),
            warnings,
            version: *version,
        };
        let body = serde_json::to_vec(&body).expect("texts and numbers are always JSON");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = *status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if *status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        }
        response
    }
}

impl From<AccessDenied> for ApiProblem {
    fn from(denied: AccessDenied) -> Self {
        let status = match denied {
            AccessDenied::Unknown => StatusCode::UNAUTHORIZED,
            AccessDenied::Forbidden => StatusCode::FORBIDDEN,
        };
        Self::new(status, denied.to_string())
    }
}

impl From<Error> for ApiProblem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Invalid(_) | Error::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Error::NotFound(_) => StatusCode::NOT_FOUND,
            Error::Taken | Error::Conflict(_) | Error::Warned(_) | Error::TooMany(_) => {
                StatusCode::CONFLICT
            }
            Error::Stale(_) => StatusCode::PRECONDITION_FAILED,
            Error::Denied(denied) => return (*denied).into(),
            Error::Busy | Error::Database(_) => StatusCode::SERVICE_UNAVAILABLE,
            Error::Unknown(_) | Error::Damaged(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let detail = match &error {
            // What a database says of itself is for who runs it.
            Error::Database(problem) | Error::Unknown(problem) | Error::Damaged(problem) => {
                tracing::error!("catalog: {problem}");
                if matches!(error, Error::Damaged(_)) {
                    DAMAGED.fetch_add(1, Ordering::Relaxed);
                }
                unavailable(&error)
            }
            Error::Invalid(_) => "invalid request".to_owned(),
            other => other.to_string(),
        };
        let mut problem = Self::new(status, detail);
        match error {
            Error::Invalid(errors) => problem.errors = errors,
            Error::Warned(warnings) => problem.warnings = warnings,
            Error::Stale(version) => problem.version = Some(version),
            Error::Busy | Error::Database(_) => problem.retry_after_s = Some(1),
            _ => {}
        }
        problem
    }
}

fn unavailable(error: &Error) -> String {
    match error {
        Error::Unknown(_) => "outcome unknown; retry with the same idempotency key",
        Error::Damaged(_) => {
            "the catalog is damaged: changes and sign-in are disabled until an operator repairs \
             it; see the server log or run `sluicegate audit verify`"
        }
        _ => "catalog unavailable",
    }
    .to_owned()
}
