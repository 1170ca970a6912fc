//! One request and its answer, over HTTP/1.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sluicegate_net::{http, tls};
use sluicegate_server::config::Listen;
use sluicegate_text::human;
use tokio_util::either::Either;

use super::probe::{Spoken, spoken_at};
use super::target::{Target, connect};
use super::tls::TlsRoots;

/// Largest answer that is read: a decision is some hundred bytes, and the body that a policy may
/// serve instead fits into 64 KiB.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// A server, and the authorities that may have signed its certificate if it uses TLS.
pub(crate) type ServerAddress<'a> = (&'a Target, &'a TlsRoots);

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request for a path without a body.
pub(crate) fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).expect("a path that is written here")
}

/// A request with a body of JSON.
pub(crate) fn post(path: &str, json: String) -> Request<Vec<u8>> {
    Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(json.into_bytes())
        .expect("a path that is written here, and a constant header")
}

/// Sends `request` to `target`, and waits for the whole answer, at most for `patience`.
///
/// # Errors
/// If the server does not answer.
pub(crate) async fn send(
    target: ServerAddress<'_>,
    request: Request<Vec<u8>>,
    patience: Duration,
) -> Result<HttpAnswer> {
    send_for(target, request, patience, ANSWER_BYTES_MAX).await
}

/// Like [`send`], for an answer with a body of at most `answer_bytes_max` bytes.
///
/// # Errors
/// If the server does not answer, or its answer is larger.
pub(crate) async fn send_for(
    reached: ServerAddress<'_>,
    mut request: Request<Vec<u8>>,
    patience: Duration,
    answer_bytes_max: usize,
) -> Result<HttpAnswer> {
    let (target, _) = reached;
    let host = target.authority().parse().context("--to: invalid host name")?;
    request.headers_mut().insert(header::HOST, host);
    let answer = tokio::time::timeout(patience, exchange(reached, request, answer_bytes_max)).await;
    answer.unwrap_or_else(|_| {
        let patience = human::span(patience.into());
        Err(anyhow!("{target} did not answer within {patience}"))
    })
}

async fn exchange(
    (target, trust): ServerAddress<'_>,
    request: Request<Vec<u8>>,
    answer_bytes_max: usize,
) -> Result<HttpAnswer> {
    let addresses = target.addresses().await?;
    let stream = connect(&addresses).await?;
    let stream = match target {
        Target::Tls { host, .. } => Either::Left(trust.greet(host, stream).await?),
        Target::Tcp { .. } | Target::Unix(_) => Either::Right(stream),
    };
    let answer = http::exchange(stream, request, answer_bytes_max).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if tls::wants_certificate(&error) => bail!(
            "{target} requires a client certificate (`tls.client_ca`), which this command does not send; use an address \
             of the server without `tls.client_ca`, such as a Unix socket"
        ),
        Err(error) => return Err(error).context(no_http(target, &addresses).await),
    };
    let (head, body) = answer.into_parts();
    Ok(HttpAnswer { status: head.status, headers: head.headers, body })
}

/// The reason why there was no HTTP answer at `addresses`, if it can be found.
async fn no_http(target: &Target, addresses: &[Listen]) -> String {
    const ADDRESSES: &str = "the HTTP address is port 8080 by default, the admin address port 8082";
    match spoken_at(addresses).await {
        Some(Spoken::Tls) => {
            format!("{target} speaks TLS: write `--to https://{}`", target.authority())
        }
        Some(other @ (Spoken::Resp | Spoken::Rls)) => {
            format!("{target} does not speak HTTP, but {}: {ADDRESSES}", other.name())
        }
        _ => {
            let tls =
                if matches!(target, Target::Tcp { .. }) { ", or of TLS (https://)" } else { "" };
            format!(
                "{target} did not answer like an HTTP server: is it the address of another protocol{tls}?"
            )
        }
    }
}

/// All but what RFC 3986, section 2.3, calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A value in a path, a query or the name of a file.
pub(crate) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, RESERVED).to_string()
}
