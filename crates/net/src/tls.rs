//! TLS as a client: the authorities that may have signed a server's certificate.

pub mod form;

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig, RootCertStore};

use form::Expected;

/// Largest file of authorities: a bundle of all public ones is a quarter of a MiB.
pub const AUTHORITIES_BYTES_MAX: u64 = 1 << 20;

/// The reason why authorities cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The system's store is empty or cannot be read.
    #[error("the system has no trusted certificate authorities")]
    NoneInSystem,
    /// The file cannot be used.
    #[error("{path}: {reason}")]
    File {
        /// Its path.
        path: String,
        /// The problem with the file.
        reason: String,
    },
}

/// The authorities in the PEM file `ca`, or those that the system trusts.
///
/// # Errors
/// If the file cannot be read, has more than [`AUTHORITIES_BYTES_MAX`] bytes, or contains something
/// else than certificates; if there are none.
pub fn authorities(ca: Option<&Path>) -> Result<RootCertStore, AuthoritiesError> {
    let Some(path) = ca else {
        let mut roots = RootCertStore::empty();
        // Some of the system's certificates may be unreadable; the others suffice.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(AuthoritiesError::NoneInSystem) } else { Ok(roots) };
    };
    read(path)
        .and_then(|pem| authorities_in(&pem))
        .map_err(|reason| AuthoritiesError::File { path: path.display().to_string(), reason })
}

/// The authorities in `pem`.
///
/// # Errors
/// If `pem` is damaged, or has no certificates; the problem in words.
pub fn authorities_in(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (place, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let certificate =
            certificate.map_err(|_| form::damaged(pem, Expected::Authorities, place + 1))?;
        roots.add(certificate).map_err(|error| match error {
            rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
                form::damaged(pem, Expected::Authorities, place + 1)
            }
            error => error.to_string(),
        })?;
    }
    if roots.is_empty() {
        let problem = form::problem(pem, Expected::Authorities);
        return Err(problem.unwrap_or_else(|| "expected certificates in PEM".to_owned()));
    }
    Ok(roots)
}

/// The reason why a handshake of a client failed, in words: rustls names some causes by its own terms.
#[must_use]
pub fn handshake_problem(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        // A signature is bad where another authority has the same name.
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => {
            "no authority that is trusted has signed the certificate".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            "the certificate is an authority's own; make one that is not, such as by `openssl req -x509 -addext \
             basicConstraints=critical,CA:FALSE`"
                .to_owned()
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            time,
            not_after,
        })) => {
            let ago = in_words(time.as_secs().saturating_sub(not_after.as_secs()));
            format!("the certificate expired {ago} ago: renew it")
        }
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
            time,
            not_before,
        })) => {
            let until = in_words(not_before.as_secs().saturating_sub(time.as_secs()));
            format!("the certificate is not valid yet, for another {until}: compare the clocks")
        }
        _ => error.to_string(),
    }
}

/// A number of seconds in words, in the largest unit of which there are at least two.
fn in_words(seconds: u64) -> String {
    match seconds {
        172_800.. => format!("{} days", seconds / 86_400),
        7_200.. => format!("{} hours", seconds / 3_600),
        120.. => format!("{} minutes", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// Returns whether `error` says that the server ended the connection because the client sent no certificate. With TLS
/// 1.3 it comes instead of the first answer, since the client has completed the handshake by then.
#[must_use]
pub fn wants_certificate(error: &(dyn Error + 'static)) -> bool {
    let is_alert = |error: &rustls::Error| {
        matches!(error, rustls::Error::AlertReceived(AlertDescription::CertificateRequired))
    };
    std::iter::successors(Some(error), |error| (*error).source()).any(|error| {
        let of_io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = of_io.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        inner.or_else(|| error.downcast_ref()).is_some_and(is_alert)
    })
}

/// The TLS configuration of a client that trusts `roots`.
#[must_use]
pub fn client(roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("aws-lc-rs supports the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut pem = Vec::new();
    let read = file.take(AUTHORITIES_BYTES_MAX + 1).read_to_end(&mut pem);
    read.map_err(|error| error.to_string())?;
    if pem.len() as u64 > AUTHORITIES_BYTES_MAX {
        return Err(format!("more than {AUTHORITIES_BYTES_MAX} bytes"));
    }
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tokio_rustls::rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn dates_of_a_certificate_are_refused_in_words() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (time, not_after, not_before) = (at(1_000_000), at(740_000), at(1_000_060));
        for (error, says) in [
            (
                CertificateError::ExpiredContext { time, not_after },
                "the certificate expired 3 days ago: renew it",
            ),
            (
                CertificateError::NotValidYetContext { time, not_before },
                "the certificate is not valid yet, for another 60 s: compare the clocks",
            ),
        ] {
            let error = io::Error::other(rustls::Error::InvalidCertificate(error));
            assert_eq!(handshake_problem(&error), says);
        }
    }

    #[test]
    fn a_certificate_that_is_damaged_is_named_by_its_number() {
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        for pem in [bad, cut, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let problem = authorities_in(pem.as_bytes()).expect_err("it is no certificate");
            assert!(problem.starts_with("certificate 1 of the file is damaged"), "{problem}");
        }
    }

    #[test]
    fn a_file_that_holds_no_authority_is_refused_with_its_path() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"-----BEGIN PRIVATE KEY-----\n").expect("it can be written");
        let error = authorities(Some(file.path())).expect_err("there is none").to_string();
        assert!(error.starts_with(&file.path().display().to_string()), "{error}");
        let missing = Path::new("/nonexistent/ca.pem");
        let error = authorities(Some(missing)).expect_err("it is not there").to_string();
        assert!(error.starts_with("/nonexistent/ca.pem: No such file"), "{error}");
    }
}
