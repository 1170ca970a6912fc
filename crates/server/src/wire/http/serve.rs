//! The IO of the HTTP wire.

use std::io;
use std::sync::Arc;

use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request as HttpRequest, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{get, post};
use axum::{Router, serve as axum_serve};
use sluicegate::Engine;
use tokio::net::TcpListener;

use super::codec::{Body, Operation, encode};
use super::problem::Problem;

/// Largest body: a key of 1 KiB with every byte escaped fits ten times over.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Answers requests until `stop` completes, then lets those in flight end.
pub(crate) async fn serve(
    engine: Arc<Engine>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum_serve(listener, router(engine)).with_graceful_shutdown(stop).await
}

fn router(engine: Arc<Engine>) -> Router {
    let decide = |operation| {
        post(move |State(engine): State<Arc<Engine>>, request: HttpRequest| async move {
            decide(&engine, operation, request).await.unwrap_or_else(Problem::into_response)
        })
    };
    Router::new()
        .route("/v1/check", decide(Operation::Check))
        .route("/v1/peek", decide(Operation::Peek))
        .route("/v1/refund", decide(Operation::Refund))
        .route("/v1/reset", decide(Operation::Reset))
        .route("/livez", get(async || "ok\n"))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "there is no such path").into_response()
        })
        .method_not_allowed_fallback(async || {
            let detail = "this path does not know this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).into_response()
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(engine)
}

async fn decide(
    engine: &Engine,
    operation: Operation,
    request: HttpRequest,
) -> Result<Response<HttpBody>, Problem> {
    require_json(request.headers())?;
    let bytes =
        Bytes::from_request(request, &()).await.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("body: more than {BODY_BYTES_MAX} bytes");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            }
            status => Problem::new(status, rejection.body_text()),
        })?;
    let body = Body::decode(&bytes)?;
    let answer = engine.decide(&body.request(operation)?).await?;
    Ok(Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(HttpBody::from(encode(&answer)))
        .expect("a constant header"))
}

/// A page in a browser can send other types to a loopback server unasked; JSON it cannot.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = given.and_then(|value| value.split(';').next()).map(str::trim);
    if media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let detail = "content-type: expected `application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}
