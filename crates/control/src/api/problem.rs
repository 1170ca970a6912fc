//! Errors of the API, as problem+json (RFC 9457), with a pointer for each invalid field.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::AccessDenied;
use crate::error::{Error, PlacedFinding};
use sluicegate_kernel::written::excerpt;
use sluicegate_policy::{Finding, finding, nearest};

/// The media type of problems.
const MEDIA_TYPE: HeaderValue =
    HeaderValue::from_static(sluicegate::internals::http::problem::MEDIA_TYPE);

/// An error of the API.
#[derive(Debug)]
pub(super) struct ApiProblem {
    status: StatusCode,
    detail: Box<Finding>,
    errors: Vec<PlacedFinding>,
    warnings: Vec<PlacedFinding>,
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
    /// The failure, and what is permitted.
    #[schema(value_type = String)]
    detail: &'a str,
    /// The code of `detail`, listed in `docs/findings.json`.
    #[schema(value_type = String)]
    code: &'a str,
    /// The parameters of `detail`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    params: BTreeMap<&'static str, String>,
    /// The invalid fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FindingBody>,
    /// Effects that could lock out clients; `?force=true` applies the change anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FindingBody>,
    /// The current version of the resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
}

/// Something that is wrong or risky.
#[derive(Serialize, ToSchema)]
#[schema(as = Finding)]
pub(super) struct FindingBody {
    /// The place, as a JSON pointer into the body (RFC 6901), or to a parameter such as `/reason`.
    pointer: String,
    /// The value that was given and what is permitted, or the effect of the change.
    detail: String,
    /// The code of `detail`, listed in `docs/findings.json`.
    #[schema(value_type = String)]
    code: &'static str,
    /// The parameters of `detail`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    params: BTreeMap<&'static str, String>,
    /// The line in a body of YAML, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The column in a body of YAML, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

impl From<&PlacedFinding> for FindingBody {
    fn from(PlacedFinding { pointer, finding, place }: &PlacedFinding) -> Self {
        Self {
            pointer: pointer.clone(),
            detail: finding.to_string(),
            code: finding.code(),
            params: finding.params().iter().cloned().collect(),
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
        }
    }
}

/// Requests that failed because the catalog is damaged, since the process started.
static DAMAGED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of requests that failed because the catalog is damaged, since the process started.
pub fn damaged_total() -> u64 {
    DAMAGED.load(Ordering::Relaxed)
}

/// Logs and counts that the catalog is damaged.
pub(super) fn count_damaged(problem: &str) {
    tracing::error!("catalog: {problem}");
    DAMAGED.fetch_add(1, Ordering::Relaxed);
}

impl ApiProblem {
    pub(super) fn new(status: StatusCode, detail: Finding) -> Self {
        Self {
            status,
            detail: Box::new(detail),
            errors: Vec::new(),
            warnings: Vec::new(),
            version: None,
            retry_after_s: None,
        }
    }

    /// Returns the kind of object that was not found, if that is the problem.
    pub(super) fn missing(&self) -> Option<&str> {
        let what = || self.detail.params().iter().find(|(name, _)| *name == "what");
        let (_, what) = what().filter(|_| self.detail.code() == "not_found")?;
        Some(what)
    }

    /// Creates a 404: no `what` has the name `name`, but maybe one of `names` was meant.
    pub(super) fn not_found<'n>(
        what: &str,
        name: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Self {
        let near = nearest(name, names).map(str::to_owned);
        let name = excerpt(name);
        Self::new(
            StatusCode::NOT_FOUND,
            match near {
                Some(near) => finding!(
                    "not_found_near",
                    "no {what} `{name}`; did you mean `{near}`?",
                    what,
                    name,
                    near
                ),
                None => finding!("not_found_named", "no {what} `{name}`", what, name),
            },
        )
    }

    /// Creates a 422: the body is invalid at `pointer`.
    pub(super) fn invalid(pointer: impl Into<String>, problem: Finding) -> Self {
        Error::Invalid(vec![PlacedFinding::new(pointer, problem)]).into()
    }

    /// Creates a 429 with `Retry-After`.
    pub(super) fn again_in(seconds: u64, detail: Finding) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, detail);
        Self { retry_after_s: Some(seconds), ..problem }
    }

    /// Creates a 503 with `Retry-After: 1`.
    pub(super) fn unavailable(detail: Finding) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self { retry_after_s: Some(1), ..problem }
    }

    /// Returns the body of the response, as JSON.
    pub(super) fn body(&self) -> Vec<u8> {
        let Self { status, detail, errors, warnings, version, .. } = self;
        let body = ProblemBody {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.text(),
            code: detail.code(),
            params: detail.params().iter().cloned().collect(),
            errors: errors.iter().map(FindingBody::from).collect(),
            warnings: warnings.iter().map(FindingBody::from).collect(),
            version: *version,
        };
        crate::json::text(&body).into_bytes()
    }

    pub(super) fn respond(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        let Self { status, detail, retry_after_s, .. } = &self;
        *response.status_mut() = *status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, MEDIA_TYPE);
        if *status == StatusCode::UNAUTHORIZED {
            let challenge = match detail.code() {
                "unknown_token" | "token_expired" | "token_without_scheme" => {
                    r#"Bearer error="invalid_token""#
                }
                _ => "Bearer",
            };
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(seconds) = retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        }
        response
    }
}

impl From<AccessDenied> for ApiProblem {
    fn from(denied: AccessDenied) -> Self {
        let (status, problem) = match denied {
            AccessDenied::Unknown => (
                StatusCode::UNAUTHORIZED,
                finding!("unknown_actor", "authentication required: sign in or send a token"),
            ),
            AccessDenied::Forbidden => {
                (StatusCode::FORBIDDEN, finding!("forbidden", "permission denied"))
            }
            AccessDenied::Scope(scope) => (
                StatusCode::FORBIDDEN,
                finding!(
                    "token_scope",
                    "permission denied: the token lacks the scope `{scope}`",
                    scope = scope.name()
                ),
            ),
        };
        Self::new(status, problem)
    }
}

/// Returns the detail for this error of a database. Only SQLite has a lock for the whole database.
fn why_not_there(problem: &str) -> Finding {
    if problem.contains("database is locked") {
        return finding!(
            "catalog_locked",
            "the database of the catalog is locked: another process is writing to it, and did not end in time"
        );
    }
    finding!("catalog_unavailable", "catalog unavailable")
}

impl From<Error> for ApiProblem {
    fn from(error: Error) -> Self {
        let (status, detail) = match &error {
            Error::Denied(denied) => return (*denied).into(),
            Error::Invalid(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, finding!("invalid", "invalid request"))
            }
            Error::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                finding!(
                    "idempotency_key_reused",
                    "the idempotency key was already used for a different request"
                ),
            ),
            Error::NotFound(what) => {
                (StatusCode::NOT_FOUND, finding!("not_found", "{what} not found", what))
            }
            Error::Taken => (StatusCode::CONFLICT, finding!("taken", "the name already exists")),
            Error::Conflict(finding) => (StatusCode::CONFLICT, finding.clone()),
            Error::Warned(_) => {
                (StatusCode::CONFLICT, finding!("warned", "{problem}", problem = error))
            }
            Error::TooMany(what) => {
                (StatusCode::CONFLICT, finding!("too_many", "limit reached: at most {what}", what))
            }
            Error::Stale(version) => (
                StatusCode::PRECONDITION_FAILED,
                finding!("stale", "version conflict: the current version is {version}", version),
            ),
            Error::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                finding!("busy", "too many concurrent requests; retry in 1 s"),
            ),
            // Messages of the database are for its operator.
            Error::Database(problem) => {
                tracing::error!("catalog: {problem}");
                (StatusCode::SERVICE_UNAVAILABLE, why_not_there(problem))
            }
            // These are about a file that a node reads only at start.
            Error::OtherFormat { .. } | Error::OtherCatalog { .. } => {
                tracing::error!("catalog: {error}");
                let detail = finding!("catalog_unavailable", "catalog unavailable");
                (StatusCode::SERVICE_UNAVAILABLE, detail)
            }
            Error::Unknown(problem) => {
                tracing::error!("catalog: {problem}");
                let detail = finding!(
                    "outcome_unknown",
                    "outcome unknown; retry with the same idempotency key"
                );
                (StatusCode::INTERNAL_SERVER_ERROR, detail)
            }
            Error::Damaged(problem) => {
                count_damaged(problem);
                let detail = finding!(
                    "catalog_damaged",
                    "the catalog is damaged: changes and sign-in are disabled until an operator repairs \
                     it; see the server log or run `sluicegate audit verify`"
                );
                (StatusCode::INTERNAL_SERVER_ERROR, detail)
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_database_is_not_called_unavailable() {
        let code = |problem: &str| {
            let problem = ApiProblem::from(Error::Database(problem.to_owned()));
            (problem.status, problem.detail.code().to_owned(), problem.retry_after_s)
        };
        let locked = (StatusCode::SERVICE_UNAVAILABLE, "catalog_locked".to_owned(), Some(1));
        assert_eq!(code("database is locked"), locked);
        assert_eq!(code("no answer within 10 s").1, "catalog_unavailable");
    }
}
