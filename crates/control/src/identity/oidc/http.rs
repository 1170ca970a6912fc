//! The client that asks the provider: a connection for each request, bounded in time and size, and no
//! redirect is followed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::config::is_loopback;

/// How long a provider may take for an answer: a person waits for it.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Largest answer: descriptions and sets of keys are some KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Largest file of authorities: a bundle of all public ones is a quarter of a MiB.
const CA_BYTES_MAX: u64 = 1 << 20;

/// What asks a provider.
pub(super) struct Http {
    tls: TlsConnector,
    /// Whether the provider is on this machine, and may speak without TLS there.
    may_be_plain: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("`{0}` is no `https` URL")]
    Unsafe(String),
    #[error("{0} does not answer in time")]
    Late(String),
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    #[error("{0}: {1}")]
    Http(String, hyper::Error),
    #[error("{0} answers {1}")]
    Failed(String, StatusCode),
    #[error("{0}: the answer is longer than {ANSWER_BYTES_MAX} bytes, or broke off")]
    Body(String),
}

impl Http {
    /// One that trusts the authorities in the file `ca`, or those of the system.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(super) fn new(ca: Option<&Path>, may_be_plain: bool) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("aws-lc-rs supports the default protocol versions")
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), may_be_plain })
    }

    /// What is answered to `request`.
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
        // A URL has an IPv6 address in brackets, nobody else has.
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let stream = TcpStream::connect((name.as_str(), port)).await.map_err(io)?;
        if !is_tls {
            return exchange(stream, host, request).await;
        }
        let name = ServerName::try_from(name).map_err(|error| io(std::io::Error::other(error)))?;
        let stream = self.tls.connect(name, stream).await.map_err(io)?;
        exchange(stream, host, request).await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    host: &str,
    request: Request<Vec<u8>>,
) -> Result<Response<Vec<u8>>, HttpError> {
    let http = |error| HttpError::Http(host.to_owned(), error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    // It ends with this function: what is dropped is aborted.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response = sender.send_request(in_origin_form(request)).await.map_err(http)?;
    let (head, body) = response.into_parts();
    if head.status.is_server_error() {
        return Err(HttpError::Failed(host.to_owned(), head.status));
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|_| HttpError::Body(host.to_owned()))?;
    Ok(Response::from_parts(head, body.to_bytes().into()))
}

/// The request as it is sent over a connection to its host.
fn in_origin_form(request: Request<Vec<u8>>) -> Request<Body> {
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
    Request::from_parts(head, Body::from(body))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        // Certificates of the system that cannot be read are left out: others may do.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let unusable = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let size = fs::metadata(path).map_err(|error| unusable(&error))?.len();
    if size > CA_BYTES_MAX {
        return Err(unusable(&format_args!("it has more than {CA_BYTES_MAX} bytes")));
    }
    let pem = fs::read(path).map_err(|error| unusable(&error))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&"it contains no certificate"));
    }
    Ok(roots)
}
