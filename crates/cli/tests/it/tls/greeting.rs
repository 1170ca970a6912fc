//! What is refused before the first request.

use std::io::{Read, Write};
use std::net::TcpStream;

use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::{Client, Files};
use crate::program::{PATIENCE, serve};
use crate::server::Server;

/// What the server says to `bytes` until it closes the connection.
fn answer(server: &Server, scheme: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address(scheme)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    stream.write_all(bytes).expect("it reads");
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it goes on"),
        // It may be let go before all of it was read.
        _ => said,
    }
}

/// Whether that is nothing, or an alert of TLS.
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

/// The greeting of a client that speaks no newer version than 3.`minor`: TLS 1.0 is 3.1, 1.1 is 3.2.
fn hello(minor: u8) -> Vec<u8> {
    let ciphers = [0xc0, 0x13, 0xc0, 0x14, 0x00, 0x2f, 0x00, 0x35];
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    body.extend([0, 0, length(&ciphers)]);
    body.extend(ciphers);
    // Compression: none. Extensions: the curve P-256, points as they are, and signatures by it.
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

/// What the program says that is to serve with this configuration and does not.
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
        (&empty, key, None, format!("rls.tls.cert: {}: expected certificates", empty.display())),
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
        (cert, key, Some(&empty), format!("rls.tls.client_ca: {}: expected", empty.display())),
    ] {
        let ca = client_ca.map_or_else(String::new, |ca| format!("client_ca = {ca:?}"));
        let told = refusal(&format!("[rls.tls]\ncert = {cert:?}\nkey = {key:?}\n{ca}"));
        assert!(told.contains(&problem), "{problem}: {told}");
    }
    let told = refusal("[resp]\ntls = { cert = '/none', key = '/none' }");
    assert!(told.contains("resp.tls.cert: cannot read /none: "), "{told}");
}
