//! The body of a request, with a bound on its length and its time.

use std::fmt::Display;
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::time::timeout;

use crate::wire::http::codec::Problem;

/// Largest body, bytes: a key of 1 KiB with every byte escaped fits ten times over.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Longest time of a body after its head: clients have it ready.
pub(super) const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Reads a body, which most often has come with its head.
pub(super) async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes, Error: Display>,
{
    // A body that declares too great a length need not be read.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    let body = pin!(body);
    let mut reading = pin!(collect(body));
    if let Some(read) = reading.as_mut().now_or_never() {
        return read;
    }
    timeout(BODY_WAIT_MAX, reading).await.unwrap_or_else(|_| {
        let detail = format!("body: not received within {} s", BODY_WAIT_MAX.as_secs());
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
    })
}

async fn collect<B>(mut body: Pin<&mut B>) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes, Error: Display>,
{
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::bad_request(format!("body: {error}")))?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + whole.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        whole.extend_from_slice(&std::mem::take(&mut first));
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

fn too_long() -> Problem {
    let detail = format!("body: more than {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}
