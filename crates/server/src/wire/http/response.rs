//! Responses of the HTTP wire.

use axum::body::Body as AnyBody;
use axum::http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;

use super::codec::Problem;

/// The media type of problems.
pub(super) const PROBLEM: HeaderValue =
    HeaderValue::from_static(sluicegate::internals::http::problem::MEDIA_TYPE);

/// Room for the header fields of most answers: the type, and those about the budget.
const FIELDS: usize = 4;

/// A response with its whole body.
pub(super) type FullResponse = Response<Full<Bytes>>;

/// A problem of this status, for another listener of HTTP.
pub(crate) fn refuse(status: StatusCode, detail: &str) -> Response<AnyBody> {
    problem(&Problem::new(status, detail)).map(AnyBody::new)
}

/// The response of a problem.
pub(super) fn problem(problem: &Problem) -> FullResponse {
    let mut answer = respond(problem.status(), PROBLEM, problem.encode());
    if let Some(challenge) = problem.challenge() {
        let challenge = HeaderValue::from_static(challenge);
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// A response with this status, type and body.
pub(super) fn respond(status: StatusCode, media_type: HeaderValue, body: Vec<u8>) -> FullResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.reserve(FIELDS);
    headers.insert(header::CONTENT_TYPE, media_type);
    answer
}
