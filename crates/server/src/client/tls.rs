//! TLS as a client speaks it: whom it believes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::target::Stream;
use crate::wire::authorities;

/// Whom a server of `https://` must be signed by.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Trust {
    /// The authorities (PEM) that may have signed the certificate of a server by `https://`; those
    /// that the system trusts unless given.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Trust {
    /// Greets the server called `host`, which shows that it is.
    ///
    /// # Errors
    /// If it does not, or there is nobody to believe.
    pub(super) async fn greet(&self, host: &str, stream: Stream) -> Result<TlsStream<Stream>> {
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned());
        let name = name.with_context(|| format!("`{host}` is no name of a server"))?;
        let greeted = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        greeted.map_err(|error| anyhow!(error).context(format!("{host} is not believed")))
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        if let Some(path) = &self.ca {
            let roots = authorities(path);
            return roots.with_context(|| format!("--ca: {}", path.display()));
        }
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        // A system may have some that nobody can read.
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            bail!("the system trusts no authorities: name them by --ca");
        }
        Ok(Arc::new(roots))
    }
}
