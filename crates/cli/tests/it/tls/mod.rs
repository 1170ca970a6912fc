//! TLS for clients: those of other projects, and one that does what they do not.

mod clients;
mod greeting;
mod renewal;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::server::Server;
use sluicegate_testkit::TlsFiles;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

/// Certificates and keys of one authority.
struct Files {
    folder: TempDir,
    tls: TlsFiles,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let tls = TlsFiles::write(folder.path()).expect("they can be written");
        Self { folder, tls }
    }

    /// A configuration in which every wire has these files, and requires certificates of clients if
    /// `asks`.
    fn config(&self, asks: bool) -> String {
        let mut config = String::new();
        let TlsFiles { ca, server_cert, server_key, .. } = &self.tls;
        for wire in ["http", "resp", "rls", "admin"] {
            write!(config, "[{wire}.tls]\ncert = {server_cert:?}\nkey = {server_key:?}\n")
                .expect("texts grow");
            if asks {
                writeln!(config, "client_ca = {ca:?}").expect("texts grow");
            }
        }
        config
    }

    /// Replaces the server's files by those of another authority.
    fn replace(&self, by: &TlsFiles) {
        for (old, new) in
            [(&self.tls.server_cert, &by.server_cert), (&self.tls.server_key, &by.server_key)]
        {
            std::fs::copy(new, old).expect("it can be written");
        }
    }
}

/// A client that trusts the authority `ca`.
#[derive(Default)]
struct Client<'a> {
    ca: Option<&'a Path>,
    /// Its certificate and key.
    own: Option<(&'a Path, &'a Path)>,
    /// The protocols that it offers (ALPN).
    protocols: &'a [&'a str],
    versions: Option<&'static SupportedProtocolVersion>,
}

impl<'a> Client<'a> {
    fn knowing(files: &'a Files) -> Self {
        Self { ca: Some(&files.tls.ca), ..Self::default() }
    }

    fn showing(mut self, files: &'a Files) -> Self {
        self.own = Some((&files.tls.client_cert, &files.tls.client_key));
        self
    }

    /// Makes the handshake with the server at `address`.
    async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = self.ca {
            roots
                .add(CertificateDer::from_pem_file(ca).expect("a certificate"))
                .expect("it is sound");
        }
        let builder = match self.versions {
            Some(version) => ClientConfig::builder_with_protocol_versions(&[version]),
            None => ClientConfig::builder(),
        };
        let builder = builder.with_root_certificates(roots);
        let mut config = match self.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_file(cert).expect("a certificate");
                let key = PrivateKeyDer::from_pem_file(key).expect("a key");
                builder.with_client_auth_cert(vec![cert], key).expect("they fit")
            }
        };
        config.alpn_protocols =
            self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Returns whether the wire for Redis clients answers it.
    async fn is_answered(&self, server: &Server) -> bool {
        match self.connect(server.address("rediss")).await {
            Ok(mut stream) => ping(&mut stream).await,
            Err(_) => false,
        }
    }
}

/// Returns whether a `PING` on this connection is answered.
async fn ping(stream: &mut TlsStream<TcpStream>) -> bool {
    let mut said = [0; 7];
    let asked = stream.write_all(b"PING\r\n").await.is_ok();
    asked && stream.read_exact(&mut said).await.is_ok() && said == *b"+PONG\r\n"
}
