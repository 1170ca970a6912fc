//! The HTTP client for the provider: a connection for each request, bounded in time and size, and no
//! redirect is followed.

use std::path::Path;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use sluicegate_net::http::{ExchangeError, exchange};
use sluicegate_net::tls::{self, AuthoritiesError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::ServerName;

use super::config::is_loopback;

/// Maximum time in which a provider answers: a person waits for it.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Largest answer: descriptions and sets of keys are some KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An HTTP client for a provider.
pub(super) struct ProviderHttp {
    tls: TlsConnector,
    /// The provider is on this machine, and may be reached without TLS there.
    may_be_plain: bool,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("`{0}` is not an `https` URL")]
    Unsafe(String),
    #[error("{0} did not answer in time")]
    Late(String),
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    #[error("{0}: {1}")]
    Exchange(String, ExchangeError),
    #[error("{0} returned status {1}")]
    Failed(String, StatusCode),
}

impl ProviderHttp {
    /// Creates a client that trusts the authorities in the file `ca`, or those of the system.
    ///
    /// # Errors
    /// The problem of the file.
    pub(super) fn new(ca: Option<&Path>, may_be_plain: bool) -> Result<Self, String> {
        let roots = match tls::authorities(ca) {
            // A provider on this machine may be asked without TLS.
            Err(AuthoritiesError::NoneInSystem) if may_be_plain => RootCertStore::empty(),
            roots => roots.map_err(|error| error.to_string())?,
        };
        Ok(Self { tls: TlsConnector::from(tls::client(roots)), may_be_plain })
    }

    /// Sends `request`, and returns the response.
    ///
    /// # Errors
    /// [`HttpError`].
    pub(super) async fn send(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, HttpError> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = timeout(ANSWER_WAIT_MAX, self.answer(&host, request)).await;
        answer.unwrap_or(Err(HttpError::Late(host)))
    }

    async fn answer(
        &self,
        host: &str,
        request: Request<Vec<u8>>,
    ) -> Result<Response<Vec<u8>>, HttpError> {
        let io = |error| HttpError::Io(host.to_owned(), error);
        let (port, is_tls) = match request.uri().scheme_str() {
            Some("https") => (443, true),
            Some("http") if self.may_be_plain && is_loopback(host) => (80, false),
            _ => return Err(HttpError::Unsafe(request.uri().to_string())),
        };
        let port = request.uri().port_u16().unwrap_or(port);
        // Only a URL has an IPv6 address in brackets.
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = TcpStream::connect((name.as_str(), port)).await.map_err(io)?;
        if !is_tls {
            return over(stream, host, request).await;
        }
        let name = ServerName::try_from(name).map_err(|error| io(std::io::Error::other(error)))?;
        let stream = self.tls.connect(name, stream).await.map_err(io)?;
        over(stream, host, request).await
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    request: Request<Vec<u8>>,
) -> Result<Response<Vec<u8>>, HttpError> {
    let answer = exchange(stream, in_origin_form(request), ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|error| HttpError::Exchange(host.to_owned(), error))?;
    if answer.status().is_server_error() {
        return Err(HttpError::Failed(host.to_owned(), answer.status()));
    }
    Ok(answer.map(Vec::from))
}

/// Returns the request as it is sent over a connection to its host.
fn in_origin_form(request: Request<Vec<u8>>) -> Request<Vec<u8>> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().map_or("", |authority| authority.as_str());
    let host = HeaderValue::from_str(authority).expect("a URL's authority is plain text");
    head.headers.insert(header::HOST, host);
    head.uri = head.uri.path_and_query().map_or_else(
        || Uri::from_static("/"),
        |path| {
            let path: PathAndQuery = path.clone();
            Uri::from(path)
        },
    );
    Request::from_parts(head, body)
}
