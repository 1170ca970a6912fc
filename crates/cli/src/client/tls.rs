//! TLS as a client: the authorities that the command line trusts.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use sluicegate_net::tls;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::target::ServerStream;

/// The authorities that may have signed the certificate of a server of `https://`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsRoots {
    /// PEM file of certificate authorities for `https://` servers. Default: the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl TlsRoots {
    /// Makes the TLS handshake with the server `host`, and verifies its certificate.
    ///
    /// # Errors
    /// If the handshake fails, or there are no authorities.
    pub(super) async fn greet(
        &self,
        host: &str,
        stream: ServerStream,
    ) -> Result<TlsStream<ServerStream>> {
        let roots = tls::authorities(self.ca.as_deref()).context("--ca")?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.with_context(|| format!("`{host}` is not a valid server name"))?;
        let greeted = TlsConnector::from(tls::client(roots)).connect(name, stream).await;
        greeted.map_err(|error| {
            if error.to_string().contains("InvalidContentType") {
                return anyhow!("{host} does not speak TLS; use http://");
            }
            let problem = tls::handshake_problem(&error);
            anyhow!(
                "TLS handshake with {host} failed (http:// for a server without TLS): {problem}"
            )
        })
    }
}
