//! Bodies that are larger than any request.

use std::io::Write;

use super::{Attacked, rest};

const BODY_BYTES: usize = 64 << 20;

/// Most bytes of a connection that the system buffers itself, at both ends.
const BUFFERED_BYTES_MAX: usize = 16 << 20;

#[test]
fn a_body_of_64_mib_is_refused_before_it_is_read() {
    let attacked = Attacked::start();
    let head = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let piece = [b' '; 1 << 16];
    let chunk = [&b"10000\r\n"[..], &piece, b"\r\n"].concat();
    for path in ["/v1/check", "/v1/peek", "/json"] {
        for (framing, piece) in [
            (format!("content-length: {BODY_BYTES}"), &piece[..]),
            ("transfer-encoding: chunked".to_owned(), &chunk),
        ] {
            let mut stream = attacked.connect("http");
            let request = format!("POST {path} {head}{framing}\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut sent = 0;
            while sent < BODY_BYTES && stream.write_all(piece).is_ok() {
                sent += piece.len();
            }
            assert!(sent < BUFFERED_BYTES_MAX, "{path}: {sent} bytes of {framing} were taken");
        }
    }
    attacked.is_well();
}

#[test]
fn a_client_that_announces_such_a_body_and_waits_hears_that_it_is_too_large() {
    let attacked = Attacked::start();
    for path in ["/v1/check", "/json"] {
        let mut stream = attacked.connect("http");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        let said = String::from_utf8(rest(&mut stream)).expect("it says text");
        assert!(said.starts_with("HTTP/1.1 413 "), "{path}: {said}");
    }
    attacked.is_well();
}

#[test]
fn a_body_that_nobody_asks_for_is_not_read() {
    let attacked = Attacked::start();
    let mut stream = attacked.connect("http");
    let head =
        format!("GET /livez HTTP/1.1\r\nhost: localhost\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut sent = 0;
    while sent < BODY_BYTES && stream.write_all(&[0; 1 << 16]).is_ok() {
        sent += 1 << 16;
    }
    assert!(sent < BUFFERED_BYTES_MAX, "{sent} bytes were taken");
    attacked.is_well();
}
