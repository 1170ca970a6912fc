//! `POST /json`: the same requests without gRPC, as in `envoyproxy/ratelimit`. `GET` and `PUT` with a
//! body are the same. `GET /healthcheck` answers `OK` until the server is stopping.
//!
//! Messages are as the mapping of proto3 to JSON writes them: `{"domain": "d", "descriptors":
//! [{"entries": [{"key": "k", "value": "v"}]}]}` is answered with
//! `{"overallCode": "OK", "statuses": [...]}` and 200, or 429 where the request is over the limit.
//! Errors are plain text.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::get;
use hyper::body::Body as _;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Code as Grpc;

use super::codec::{RlsError, json};
use super::proto::Code;
use super::serve::{MESSAGE_BYTES_MAX, REQUEST_WAIT_MAX};
use super::service::{RateLimits, RlsHandler};
use crate::authenticator::ListenerAuth;

/// The routes of `POST /json` and of `GET /healthcheck`, which answers `OK` until `leaving`.
pub(crate) fn routes(
    limits: Arc<RateLimits>,
    listener_auth: ListenerAuth,
    leaving: CancellationToken,
) -> Router {
    let health = async move || match leaving.is_cancelled() {
        false => (StatusCode::OK, "OK"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
    };
    Router::new()
        .route("/json", get(decide).post(decide).put(decide))
        .route("/healthcheck", get(health))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
        .with_state(RlsHandler::new(limits, listener_auth))
}

async fn decide(State(handler): State<RlsHandler>, request: Request) -> Response<String> {
    let caller = match handler.caller(request.headers()) {
        Ok(caller) => caller,
        Err(refusal) => return refused(&refusal),
    };
    if is_from_a_page(request.headers()) {
        let problem = "content-type: expected `application/json` from a browser page";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem.to_owned());
    }
    let parent = handler.parent(request.headers());
    // A client that declares too great a length need not send the body.
    if request.body().size_hint().lower() > MESSAGE_BYTES_MAX as u64 {
        let problem = format!("the body exceeds {MESSAGE_BYTES_MAX} bytes");
        return plain(StatusCode::PAYLOAD_TOO_LARGE, problem);
    }
    let body = match timeout(REQUEST_WAIT_MAX, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejection)) => return plain(rejection.status(), rejection.body_text()),
        Err(_) => {
            return plain(StatusCode::REQUEST_TIMEOUT, "timeout while reading the body".to_owned());
        }
    };
    let message = match json::decode(&body) {
        Ok(message) => message,
        Err(problem) => return plain(StatusCode::BAD_REQUEST, problem),
    };
    match parent.over(handler.decide(&caller, &message)).await {
        Ok(answer) => {
            let over = answer.overall_code == i32::from(Code::OverLimit);
            let status = if over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            respond(status, "application/json", json::encode(&answer))
        }
        Err(refusal) => refused(&refusal),
    }
}

/// Returns whether a page in a browser sent a body that is not JSON. Programs send any type, or
/// none; a page can send a plain one to a server on loopback unasked, and then sends its origin.
fn is_from_a_page(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = given.is_some_and(|given| given.starts_with("application/json"));
    headers.contains_key(header::ORIGIN) && !is_json
}

fn status(refusal: &RlsError) -> StatusCode {
    match refusal.code() {
        Grpc::NotFound => StatusCode::NOT_FOUND,
        Grpc::Unauthenticated => StatusCode::UNAUTHORIZED,
        Grpc::PermissionDenied => StatusCode::FORBIDDEN,
        Grpc::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn refused(refusal: &RlsError) -> Response<String> {
    let mut response = plain(status(refusal), refusal.message());
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

fn plain(status: StatusCode, problem: String) -> Response<String> {
    respond(status, "text/plain; charset=utf-8", problem + "\n")
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(body)
        .expect("a known status and a constant header")
}
