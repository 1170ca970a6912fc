//! One request, one answer, over HTTP/1.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use axum::body::{self, Body, Bytes};
use axum::http::{Request, StatusCode, header};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio_util::either::Either;

use super::target::{Target, connect};
use super::tls::Trust;
use crate::words;

/// Largest answer that is read: a decision is some hundred bytes, and the body that a policy may
/// serve instead fits into 64 KiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A server, and whom it must be signed by if TLS is spoken to it.
pub(crate) type Reached<'a> = (&'a Target, &'a Trust);

/// What a server said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// A request for a path without a body.
pub(crate) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a path that is written here")
}

/// A request with a body of JSON.
pub(crate) fn post(path: &str, json: String) -> Request<Body> {
    Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(json))
        .expect("a path that is written here, and a constant header")
}

/// Sends `request` to `target`, and waits for all of the answer, `patience` at most.
///
/// # Errors
/// If there is no server, or none that answers.
pub(crate) async fn send(
    target: Reached<'_>,
    request: Request<Body>,
    patience: Duration,
) -> Result<Answer> {
    send_for(target, request, patience, ANSWER_BYTES_MAX).await
}

/// The same, for an answer of so many bytes at most.
///
/// # Errors
/// If there is no server, or none that answers so.
pub(crate) async fn send_for(
    reached: Reached<'_>,
    mut request: Request<Body>,
    patience: Duration,
    answer_bytes_max: usize,
) -> Result<Answer> {
    let (target, _) = reached;
    let host = target.authority().parse().context("--to: is no name of a host")?;
    request.headers_mut().insert(header::HOST, host);
    let answer = tokio::time::timeout(patience, exchange(reached, request, answer_bytes_max)).await;
    answer.unwrap_or_else(|_| {
        let patience = words::span(patience.into());
        Err(anyhow!("{target} did not answer within {patience}"))
    })
}

async fn exchange(
    (target, trust): Reached<'_>,
    request: Request<Body>,
    answer_bytes_max: usize,
) -> Result<Answer> {
    let stream = connect(&target.addresses().await?).await?;
    let stream = match target {
        Target::Tls { host, .. } => Either::Left(trust.greet(host, stream).await?),
        Target::Tcp { .. } | Target::Unix(_) => Either::Right(stream),
    };
    let unclear = || format!("{target} did not answer as an HTTP server does");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.with_context(unclear)?;
    // The connection ends with the sender, which this takes along.
    let asking = async move {
        let answer = sender.send_request(request).await.with_context(unclear)?;
        let status = answer.status();
        let body = body::to_bytes(Body::new(answer.into_body()), answer_bytes_max).await;
        Ok(Answer { status, body: body.with_context(unclear)? })
    };
    // Its errors are those of the answer, or come when that is there.
    let (answer, _) = tokio::join!(asking, connection);
    answer
}
