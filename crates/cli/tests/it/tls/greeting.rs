//! Connections that are refused before the first request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use sluicegate_testkit::TlsFiles;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::{Client, Files};
use crate::program::{PATIENCE, program, serve};
use crate::server::Server;

/// Sends `bytes`, and returns all bytes until the server closes the connection.
fn answer(server: &Server, scheme: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address(scheme)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    stream.write_all(bytes).expect("it reads");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it goes on"),
        // The connection may be reset before all bytes were read.
        _ => said,
    }
}

/// Returns whether `said` is empty, or an alert of TLS.
fn is_a_refusal(said: &[u8]) -> bool {
    const ALERT: u8 = 21;
    said.is_empty() || (said.len() == 7 && said[0] == ALERT)
}

#[test]
fn who_speaks_without_tls_is_let_go() {
    let files = Files::new();
    let server = Server::start(&files.config(false));
    for scheme in ["https", "rediss", "grpcs", "admin+https"] {
        for words in [
            &b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"[..],
            b"*1\r\n$4\r\nPING\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            &[0; 64],
        ] {
            let said = answer(&server, scheme, words);
            assert!(is_a_refusal(&said), "{scheme}: {}", said.escape_ascii());
        }
    }
    assert_eq!(server.warnings(), "");
}

fn length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).expect("it is short")
}

/// The greeting of a client whose newest version is 3.`minor`: TLS 1.0 is 3.1, 1.1 is 3.2.
fn hello(minor: u8) -> Vec<u8> {
    let ciphers = [0xc0, 0x13, 0xc0, 0x14, 0x00, 0x2f, 0x00, 0x35];
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    body.extend([0, 0, length(&ciphers)]);
    body.extend(ciphers);
    // Compression: none. Extensions: the curve P-256, uncompressed points, and signatures with it.
    body.extend([1, 0, 0, 22, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
    body.extend([0, 13, 0, 4, 0, 2, 4, 3]);
    let message = [&[1, 0, 0, length(&body)][..], &body].concat();
    [&[22, 3, 1, 0, length(&message)][..], &message].concat()
}

#[test]
fn versions_before_1_2_are_refused() {
    let files = Files::new();
    let server = Server::start(&files.config(false));
    for minor in [1, 2] {
        let said = answer(&server, "https", &hello(minor));
        const FATAL: u8 = 2;
        const PROTOCOL_VERSION: u8 = 70;
        assert_eq!(said[5..], [FATAL, PROTOCOL_VERSION], "3.{minor}: {said:?}");
    }
}

#[tokio::test]
async fn versions_1_2_and_1_3_are_spoken() {
    let files = Files::new();
    let server = Server::start(&files.config(false));
    for version in [&TLS12, &TLS13] {
        let client = Client { versions: Some(version), ..Client::knowing(&files) };
        assert!(client.is_answered(&server).await, "{version:?}");
    }
}

#[tokio::test]
async fn a_client_that_wants_to_speak_something_else_does_not_get_in() {
    let files = Files::new();
    let server = Server::start(&files.config(false));
    for (scheme, protocols, gets_in) in [
        ("https", &["h2", "http/1.1"][..], true),
        ("https", &["h2"], false),
        ("grpcs", &["h2"], true),
        ("grpcs", &["http/1.1"], false),
        ("rediss", &["redis"], true),
        ("rediss", &["h2", "http/1.1"], false),
        ("rediss", &[], true),
    ] {
        let client = Client { protocols, ..Client::knowing(&files) };
        let greeted = client.connect(server.address(scheme)).await.is_ok();
        assert_eq!(greeted, gets_in, "{scheme} {protocols:?}");
    }
}

/// The error of a server that does not start with this configuration.
fn refusal(config: &str) -> String {
    let folder = tempfile::tempdir().expect("there is room for files");
    let output = serve(&folder, config).output().expect("it is built");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("it says text")
}

#[test]
fn files_that_are_not_sound_are_errors_that_name_the_field_and_the_file() {
    let (files, other) = (Files::new(), Files::new());
    let empty = files.folder.path().join("empty");
    std::fs::write(&empty, "").expect("it can be written");
    let (cert, key) = (&files.tls.server_cert, &files.tls.server_key);
    for (cert, key, client_ca, problem) in [
        (&empty, key, None, format!("rls.tls.cert: {}: is empty, expected", empty.display())),
        (
            key,
            key,
            None,
            format!(
                "rls.tls.cert: {}: is a private key; are `cert` and `key` swapped?",
                key.display()
            ),
        ),
        (
            cert,
            cert,
            None,
            format!(
                "rls.tls.key: {}: is a certificate, expected a private key in PEM",
                cert.display()
            ),
        ),
        (
            cert,
            &other.tls.server_key,
            None,
            format!(
                "rls.tls.key: {}: does not match the certificate",
                other.tls.server_key.display()
            ),
        ),
        (
            cert,
            key,
            Some(&empty),
            format!("rls.tls.client_ca: {}: is empty, expected", empty.display()),
        ),
    ] {
        let ca = client_ca.map_or_else(String::new, |ca| format!("client_ca = {ca:?}"));
        let told = refusal(&format!("[rls.tls]\ncert = {cert:?}\nkey = {key:?}\n{ca}"));
        assert!(told.contains(&problem), "{problem}: {told}");
    }
    let told = refusal("[resp]\ntls = { cert = '/none', key = '/none' }");
    assert!(told.contains("resp.tls.cert: cannot read /none: "), "{told}");
}

/// A self-signed certificate of X.509 version 1, as `openssl x509 -req -signkey` makes it without extensions.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBJTCBywIUd0tbtvjKgcntUVCO3kCe/WLm1f0wCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyODA4NTAxMFoYDzIxMjYxMTA0MDg1MDEw
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AARCoxMLBQ/t2AsEW5uBtDhCLMbxzeuHz4Y+pIWJeVLd2/t/5DMSARFG77nb5j0+
vNoB7CX/SrttQ9L38i0eTcGFMAoGCCqGSM49BAMCA0kAMEYCIQCJc18JfmnCZMvJ
ZJ/Eu7O8w+SR60fDDUqW11pAmYyDGwIhANM5UYBOV/R227R6aFPpcO7GIio3i0fl
oCyH/dp45Ffy
-----END CERTIFICATE-----
";

/// A key of the curve secp256k1, which TLS does not use.
const SECP256K1: &str = "-----BEGIN PRIVATE KEY-----
MIGEAgEAMBAGByqGSM49AgEGBSuBBAAKBG0wawIBAQQgISbFGwA8Mw5UBrZ68Jsk
aVRvNb2Bh/wyJHBobCJ/JMKhRANCAARyb+gz85zhJb/pd0yUgzIQ8TpjUEe1mKdi
gGhEpasGvc5DWCIcVTkS7SSyvRPZCP2QJGrUBccTb9Rvwwnva8lM
-----END PRIVATE KEY-----
";

#[test]
fn files_of_another_kind_are_named_with_what_is_permitted_and_how_to_convert_them() {
    let files = Files::new();
    let odd = files.folder.path().join("odd");
    let (cert, key) = (&files.tls.server_cert, &files.tls.server_key);
    let request = "-----BEGIN CERTIFICATE REQUEST-----\nMIHPMHYCAQAwFDES\n";
    for (content, field, problem) in [
        (VERSION_1.as_bytes(), "cert", "is a certificate of X.509 version 1, expected version 3"),
        (request.as_bytes(), "cert", "is a certificate request, expected certificates in PEM"),
        (
            b"\x30\x82\x03\xbc\x02\x01\x03",
            "cert",
            "is PKCS#12, expected certificates in PEM; convert",
        ),
        (b"\x30\x82\x03\xbc\x02\x01\x03", "client_ca", "is PKCS#12, expected certificates in PEM"),
        (b"\x30\x77\x02\x01\x01", "key", "is a private key in DER, expected a private key in PEM"),
        (
            SECP256K1.as_bytes(),
            "key",
            "cannot be used: expected a key of RSA (2048 to 8192 bits), P-256",
        ),
    ] {
        std::fs::write(&odd, content).expect("it can be written");
        let of_key = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&odd, of_key).expect("it is ours");
        let cert = if field == "cert" { &odd } else { cert };
        let key = if field == "key" { &odd } else { key };
        let ca = if field == "client_ca" { format!("client_ca = {odd:?}") } else { String::new() };
        let told = refusal(&format!("[rls.tls]\ncert = {cert:?}\nkey = {key:?}\n{ca}"));
        let problem = format!("rls.tls.{field}: {}: {problem}", odd.display());
        assert!(told.contains(&problem), "{problem}: {told}");
    }
}

#[test]
fn a_certificate_that_clients_refuse_is_warned_of_at_the_start_and_by_a_check() {
    for (years, problem) in [
        (1990..1991, "a certificate expired at 1991-01-01T00:00:00Z, and clients refuse it"),
        (
            4000..4001,
            "a certificate is not valid before 4000-01-01T00:00:00Z, and clients refuse it",
        ),
    ] {
        let folder = tempfile::tempdir().expect("there is room for files");
        let tls = TlsFiles::write_valid(folder.path(), years).expect("they can be written");
        let files = Files { folder, tls };
        let config = files.config(false);
        let server = Server::start(&config);
        let problem = format!("resp.tls.cert: {}: {problem}", files.tls.server_cert.display());
        let warnings = server.warnings();
        assert_eq!(warnings.matches(&problem).count(), 1, "{problem}: {warnings}");
        let file = files.folder.path().join("sluicegate.toml");
        std::fs::write(&file, &config).expect("it can be written");
        let checked = program().args(["config", "check", "--config"]).arg(&file).output();
        let checked = checked.expect("the program is built");
        let told = String::from_utf8(checked.stderr).expect("it says text");
        assert!(
            checked.status.success() && told.contains(&format!("warning: {problem}")),
            "{told}"
        );
    }
}
