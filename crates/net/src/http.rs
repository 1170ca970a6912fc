//! One request over one connection, with a bound on the answer.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

pub use http::{Request, Response};

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection ended, or the answer is not HTTP/1.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The body is too long, or ended early.
    #[error("the body exceeds {bytes_max} bytes, or ended early")]
    Body {
        /// Longest body that is read.
        bytes_max: usize,
    },
}

/// Sends `request` over `stream` and returns the whole answer, whose body may have `bytes_max` bytes.
/// The request's URI is a path, and its `host` is set. The connection ends with this.
///
/// # Errors
/// [`ExchangeError`].
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Vec<u8>>,
    bytes_max: usize,
) -> Result<Response<Bytes>, ExchangeError> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The connection ends with the sender, which this owns.
    let asking = async move {
        let answer = sender.send_request(request.map(|body| Full::new(Bytes::from(body)))).await?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(|_| ExchangeError::Body { bytes_max })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    // The connection's errors are those of the answer, or come after it.
    let (answer, _) = tokio::join!(asking, connection);
    answer
}
