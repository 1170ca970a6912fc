//! TLS: the certificate of a wire, and those that clients have to show.
//!
//! ```text
//! SIGHUP, or every 30 s: other bytes? ─▶ read all ─▶ check all ─▶ new connections have it
//!                                                        └▶ wrong: logged, and the last good one stays
//! ```
//!
//! Open connections go on with what they began with; so do the sessions they may resume, which are forgotten with it.

mod validity;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use sluicegate::Clock;
use sluicegate::internals::WallClock;
use sluicegate_net::tls::authorities_in;
use sluicegate_net::tls::form::{self, Expected};
use sluicegate_text::private;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, CertificateError, ServerConfig};
use tokio_util::sync::CancellationToken;
use x509_cert::certificate::{CertificateInner, Raw, Version};
use x509_cert::der::Decode;

use crate::config::TlsConfig;
use crate::protocol::Wire;
use crate::service_manager::ServiceManager;
use crate::token_file::TokenFile;
use validity::Validity;

/// Interval between readings of the files: certificates are renewed days before they expire, and
/// SIGHUP has them read at once.
const EVERY: Duration = Duration::from_secs(30);

/// Largest file of certificates or a key, bytes: a chain is some KiB, a bundle of all public
/// authorities a quarter of a MiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The TLS of one wire.
#[derive(Debug)]
pub(crate) struct WireTls {
    wire: Wire,
    files: TlsConfig,
    in_force: Mutex<(Arc<ServerConfig>, Option<Validity>)>,
    /// The hash of the files when they were last read, valid or not.
    seen: Mutex<FilesHash>,
    /// The reason why clients refuse the certificate, if it was logged.
    logged: Mutex<Option<String>>,
}

/// SHA-256 of all files.
type FilesHash = [u8; 32];

impl WireTls {
    /// Loads the TLS of `wire` from `files`.
    ///
    /// # Errors
    /// What is wrong, with its field and file.
    pub(crate) fn load(wire: Wire, files: &TlsConfig) -> Result<Self> {
        let (hash, config) = read(wire, files);
        let (config, validity) = config?;
        let in_force = Mutex::new((Arc::new(config), validity));
        let (seen, logged) = (Mutex::new(hash), Mutex::default());
        Ok(Self { wire, files: files.clone(), in_force, seen, logged })
    }

    /// The acceptor of a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&in_force.0))
    }

    /// The wire, with the time when the first certificate of its chain expires, in seconds since 1970; 0: unknown.
    pub(crate) fn expiry(&self) -> (Wire, i64) {
        (self.wire, self.validity().map_or(0, Validity::end))
    }

    fn validity(&self) -> Option<Validity> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// The reason why clients refuse the certificate now, with its field and file, if they do.
    pub(crate) fn validity_problem(&self) -> Option<String> {
        let now = i64::try_from(WallClock.now().get() / 1_000_000).unwrap_or(i64::MAX);
        let problem = self.validity()?.problem(now)?;
        let (wire, cert) = (self.wire, self.files.cert.display());
        Some(format!("{wire}.tls.cert: {cert}: {problem}"))
    }

    /// Logs the reason why clients refuse the certificate, once.
    pub(crate) fn log_validity(&self) {
        let problem = self.validity_problem();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if *logged != problem {
            problem.iter().for_each(|problem| tracing::warn!("{problem}"));
            *logged = problem;
        }
    }

    /// Returns whether clients have to show a certificate.
    pub(crate) const fn asks_for_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Puts the present files in force, if they are valid. Returns whether they are new.
    ///
    /// # Errors
    /// What is wrong with the files, unless they are still the same.
    fn renew(&self) -> Result<bool> {
        let (hash, config) = read(self.wire, &self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == hash {
            return Ok(false);
        }
        *seen = hash;
        let (config, validity) = config?;
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        *in_force = (Arc::new(config), validity);
        Ok(true)
    }
}

/// The TLS of all wires and the tokens in files, to be renewed.
#[derive(Debug)]
pub(crate) struct Renewal {
    all: Vec<Arc<WireTls>>,
    tokens: Vec<Arc<TokenFile>>,
    hangup: Signal,
}

impl Renewal {
    /// Creates the renewal of `all`. From now on SIGHUP no longer ends the process, even if there is
    /// nothing to renew: operators may send it to all servers alike.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn new(all: Vec<Arc<WireTls>>) -> io::Result<Self> {
        Ok(Self { all, tokens: Vec::new(), hangup: signal(SignalKind::hangup())? })
    }

    /// The TLS of all wires.
    pub(crate) fn certificates(&self) -> Arc<[Arc<WireTls>]> {
        self.all.clone().into()
    }

    /// Adds `tokens` to what is renewed.
    pub(crate) fn and_tokens(self, tokens: Vec<Arc<TokenFile>>) -> Self {
        Self { tokens, ..self }
    }

    /// Renews at intervals, and on SIGHUP, until `stop`.
    pub(crate) async fn run(self, manager: &ServiceManager, stop: &CancellationToken) {
        let Self { all, tokens, mut hangup } = self;
        if all.is_empty() && tokens.is_empty() {
            return;
        }
        let all = Arc::new((all, tokens));
        let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_told = tokio::select! {
                () = stop.cancelled() => return,
                _ = hangup.recv() => true,
                _ = ticks.tick() => false,
            };
            if is_told {
                manager.reloading();
            }
            let all = Arc::clone(&all);
            let renewed = spawn_blocking(move || {
                let (tls, tokens) = &*all;
                tls.iter().for_each(|tls| log_certificate(tls));
                tokens.iter().for_each(|tokens| tokens.renew());
            });
            if let Err(error) = renewed.await {
                tracing::warn!("reload of certificates and tokens: {error}");
            }
            if is_told {
                manager.ready();
            }
        }
    }
}

/// Renews `tls`, and logs the result.
fn log_certificate(tls: &WireTls) {
    match tls.renew() {
        Ok(false) => {}
        Ok(true) => tracing::info!("{}.tls: new certificate loaded", tls.wire),
        Err(error) => {
            tracing::warn!("tls: reload failed, keeping the current certificate: {error:#}");
        }
    }
    tls.log_validity();
}

/// Reads `files`. Returns their hash, and the configuration of `wire` or the problem. Files that
/// cannot be read have a hash of zeros.
fn read(wire: Wire, files: &TlsConfig) -> (FilesHash, Result<(ServerConfig, Option<Validity>)>) {
    match Contents::read(wire, files) {
        Ok(contents) => (contents.hash(), contents.config(wire, files)),
        Err(error) => (FilesHash::default(), Err(error)),
    }
}

/// The contents of the files.
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl Contents {
    /// # Errors
    /// If one of `files` cannot be read.
    fn read(wire: Wire, files: &TlsConfig) -> Result<Self> {
        let named = |field: &str, path: &Path, read: io::Result<Vec<u8>>| {
            read.with_context(|| format!("{wire}.tls.{field}: cannot read {}", path.display()))
        };
        let TlsConfig { cert, key, client_ca } = files;
        let chain = named("cert", cert, contents(cert))?;
        if contains(&chain, "PRIVATE KEY-----") && !contains(&chain, "BEGIN CERTIFICATE-----") {
            let cert = cert.display();
            bail!("{wire}.tls.cert: {cert}: is a private key; are `cert` and `key` swapped?");
        }
        let ca = client_ca.as_deref().map(|path| named("client_ca", path, contents(path)));
        Ok(Self {
            client_ca: ca.transpose()?,
            cert: chain,
            key: named("key", key, private::read(key, FILE_BYTES_MAX))?,
        })
    }

    fn hash(&self) -> FilesHash {
        let Self { cert, key, client_ca } = self;
        let mut hash = Sha256::new();
        for file in [cert, key].into_iter().chain(client_ca) {
            hash.update((file.len() as u64).to_le_bytes());
            hash.update(file);
        }
        hash.finalize().into()
    }

    /// # Errors
    /// What is wrong, with its field and file. Nothing of a key is ever repeated.
    fn config(&self, wire: Wire, files: &TlsConfig) -> Result<(ServerConfig, Option<Validity>)> {
        let TlsConfig { cert: cert_path, key: key_path, client_ca: ca_path } = files;
        let wrong = |field: &str, path: &Path, problem: &str| {
            anyhow!("{wire}.tls.{field}: {}: {problem}", path.display())
        };
        let chain = certificates(&self.cert).map_err(|error| wrong("cert", cert_path, &error))?;
        let validity = Validity::of(&chain);
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| wrong("key", key_path, &key_problem(&self.key)))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        if provider.key_provider.load_private_key(key.clone_key()).is_err() {
            return Err(wrong("key", key_path, KEY_KINDS));
        }
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the ciphers of TLS 1.2 and 1.3");
        let builder = match (&self.client_ca, ca_path) {
            (Some(authorities), Some(path)) => {
                let roots = authorities_in(authorities)
                    .map(Arc::new)
                    .map_err(|error| wrong("client_ca", path, &error))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let verifier =
                    verifier.map_err(|error| wrong("client_ca", path, &error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = match builder.with_single_cert(chain, key) {
            Ok(config) => config,
            Err(rustls::Error::InconsistentKeys(_)) => {
                let problem = format!("does not match the certificate {}", cert_path.display());
                return Err(wrong("key", key_path, &problem));
            }
            Err(rustls::Error::InvalidCertificate(CertificateError::BadEncoding)) => {
                let problem = form::damaged(&self.cert, Expected::Certificate, 1);
                return Err(wrong("cert", cert_path, &problem));
            }
            Err(error) => return Err(wrong("cert", cert_path, &error.to_string())),
        };
        config.alpn_protocols = vec![protocol(wire).to_vec()];
        Ok((config, validity))
    }
}

/// The problem of a key of another kind, such as one of the curve secp256k1.
const KEY_KINDS: &str = "cannot be used: expected a key of RSA (2048 to 8192 bits), P-256, P-384, P-521 or Ed25519, such \
                         as by `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out KEY.pem`";

/// The reason why a file is not a private key that can be used.
fn key_problem(pem: &[u8]) -> String {
    let problem = match pem {
        pem if contains(pem, "ENCRYPTED") => {
            "is encrypted; write it in plain text with `openssl pkey -in KEY -out PLAIN`"
        }
        pem if contains(pem, "BEGIN CERTIFICATE-----") => {
            "is a certificate, expected a private key in PEM"
        }
        _ => match form::problem(pem, Expected::Key) {
            Some(problem) => return problem,
            None => "expected a private key in PEM",
        },
    };
    problem.to_owned()
}

fn contains(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The protocol of a wire (ALPN). A client that asks for another one, such as a browser that was
/// led to the port of Redis clients, fails the handshake; a client that names none does not.
const fn protocol(wire: Wire) -> &'static [u8] {
    match wire {
        Wire::Http | Wire::Admin | Wire::Catalog | Wire::Metrics => b"http/1.1",
        Wire::Resp => b"redis",
        Wire::Rls => b"h2",
    }
}

/// The certificates in `pem`, of which the first is the server's.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut all = Vec::new();
    for (place, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let damaged = |_| form::damaged(pem, Expected::Certificate, place + 1);
        all.push(certificate.map_err(damaged)?);
    }
    let Some(own) = all.first() else {
        let problem = form::problem(pem, Expected::Certificate);
        return Err(problem.unwrap_or_else(|| "expected certificates in PEM".to_owned()));
    };
    match CertificateInner::<Raw>::from_der(own).map(|own| own.tbs_certificate().version()) {
        Ok(version) if version != Version::V3 => Err(format!(
            "is a certificate of X.509 version {}, expected version 3; issue it with extensions, such as by `openssl \
             x509 -req -extfile EXTENSIONS`",
            // V1 is 0.
            version as u8 + 1
        )),
        _ => Ok(all),
    }
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    private::read_at_most(File::open(path)?, FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sluicegate_testkit::TlsFiles;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_that_change_are_noticed_unasked() {
        let (folder, next) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let TlsFiles { server_cert: cert, server_key: key, .. } =
            TlsFiles::write(folder.path()).unwrap();
        let next = TlsFiles::write(next.path()).unwrap();
        let files = TlsConfig { cert, key, client_ca: None };
        let tls = Arc::new(WireTls::load(Wire::Http, &files).unwrap());
        let in_force = || Arc::clone(&tls.in_force.lock().unwrap().0);
        let (first, stop) = (in_force(), CancellationToken::new());
        let renewal = Renewal::new(vec![Arc::clone(&tls)]).unwrap();
        let stopping = stop.clone();
        let keeping =
            tokio::spawn(async move { renewal.run(&ServiceManager::default(), &stopping).await });

        tokio::time::sleep(EVERY * 2).await;
        assert!(Arc::ptr_eq(&first, &in_force()), "nothing has changed");
        fs::copy(&next.server_cert, &files.cert).unwrap();
        tokio::time::sleep(EVERY * 2).await;
        assert!(Arc::ptr_eq(&first, &in_force()), "the key is another's");
        fs::copy(&next.server_key, &files.key).unwrap();
        tokio::time::sleep(EVERY * 2).await;
        assert!(!Arc::ptr_eq(&first, &in_force()));
        stop.cancel();
        keeping.await.unwrap();
    }
}
