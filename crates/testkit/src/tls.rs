//! An authority for one test, and the certificates that it signs for a server and its clients.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

use crate::Error;

/// Years in which certificates are valid, except in tests about validity.
const YEARS: Range<i32> = 1975..4096;

/// The files, in PEM, of one server's TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The authority that clients trust.
    pub ca: PathBuf,
    /// The server's certificate, for `127.0.0.1` and `localhost`.
    pub server_cert: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// A certificate for clients, signed by the same authority.
    pub client_cert: PathBuf,
    /// The client's key.
    pub client_key: PathBuf,
}

impl TlsFiles {
    /// Writes new files in `dir`, signed by their own authority.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(dir: &Path) -> Result<Self, Error> {
        Self::write_valid(dir, YEARS)
    }

    /// Writes new files in `dir`, valid from the first day of the first of `years` to the first day of their end.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_valid(dir: &Path, years: Range<i32>) -> Result<Self, Error> {
        let files = Self {
            ca: dir.join("ca.crt"),
            server_cert: dir.join("server.crt"),
            server_key: dir.join("server.key"),
            client_cert: dir.join("client.crt"),
            client_key: dir.join("client.key"),
        };
        let authority = authority().map_err(io::Error::other)?;
        fs::write(&files.ca, authority.pem())?;
        for (cert, key, purpose) in [
            (&files.server_cert, &files.server_key, ExtendedKeyUsagePurpose::ServerAuth),
            (&files.client_cert, &files.client_key, ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let signed = signed(&authority, purpose, &years);
            let (cert_pem, key_pem) = signed.map_err(io::Error::other)?;
            write_private(cert, &cert_pem)?;
            write_private(key, &key_pem)?;
        }
        Ok(files)
    }

    /// Writes new files in `dir`, where the server's certificate is the authority's own, as `openssl req -x509` makes
    /// it.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_authority_as_server(dir: &Path) -> Result<Self, Error> {
        let files = Self::write(dir)?;
        let authority = authority().map_err(io::Error::other)?;
        for (path, pem) in [
            (&files.ca, authority.pem()),
            (&files.server_cert, authority.pem()),
            (&files.server_key, authority.key().serialize_pem()),
        ] {
            fs::remove_file(path)?;
            write_private(path, &pem)?;
        }
        Ok(files)
    }
}

/// Writes a file that no other user can read, such as a key.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "sluicegate tests");
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// A certificate and its key.
fn signed(
    authority: &CertifiedIssuer<'static, KeyPair>,
    purpose: ExtendedKeyUsagePurpose,
    years: &Range<i32>,
) -> Result<(String, String), rcgen::Error> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names)?;
    params.extended_key_usages.push(purpose);
    params.not_before = date_time_ymd(years.start, 1, 1);
    params.not_after = date_time_ymd(years.end, 1, 1);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
