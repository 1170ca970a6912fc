//! Requests that two servers may read as different ones: refused, or read in one way only.

use serde_json::json;

use super::Server;

const CHECK: &str = r#"{"policy":"login","key":"smuggled"}"#;

/// The answer to `bytes`, and the permits of the key that are left after it.
fn says(server: &Server, bytes: &str) -> (String, u64) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(super::PATIENCE)).expect("it is not zero");
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut said = Vec::new();
    // A server that closes before it has read all resets the connection.
    stream.read_to_end(&mut said).ok();
    let key = json!({"policy": "login", "key": "smuggled"});
    let left = server.post("/v1/peek", &key).1["remaining"].as_u64().expect("it is a number");
    (String::from_utf8(said).expect("it says text"), left)
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_and_takes_nothing() {
    let server = Server::start();
    let length = CHECK.len();
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let chunk = format!("{length:x}\r\n{CHECK}\r\n0\r\n\r\n");
    for (what, rest) in [
        ("two lengths", format!("content-length: {length}\r\ncontent-length: 3\r\n\r\n{CHECK}")),
        ("a list of lengths", format!("content-length: {length}, 3\r\n\r\n{CHECK}")),
        ("a signed length", format!("content-length: +{length}\r\n\r\n{CHECK}")),
        ("a negative length", format!("content-length: -{length}\r\n\r\n{CHECK}")),
        ("a length in hexadecimal", format!("content-length: 0x{length:x}\r\n\r\n{CHECK}")),
        ("a length beyond 64 bits", format!("content-length: 18446744073709551652\r\n\r\n{CHECK}")),
        (
            "chunks that are not the last coding",
            format!("transfer-encoding: chunked, gzip\r\n\r\n{chunk}"),
        ),
        ("an unknown coding", format!("transfer-encoding: xchunked\r\n\r\n{chunk}")),
        ("a space before the colon", format!("content-length : {length}\r\n\r\n{CHECK}")),
        ("a folded field", format!("x: a\r\n b\r\ncontent-length: {length}\r\n\r\n{CHECK}")),
        ("a NUL in a field", format!("x: a\0b\r\ncontent-length: {length}\r\n\r\n{CHECK}")),
        ("a bare CR in a field", format!("x: a\rb\r\ncontent-length: {length}\r\n\r\n{CHECK}")),
        ("a chunk of a signed size", format!("transfer-encoding: chunked\r\n\r\n+{chunk}")),
        (
            "a chunk of an endless size",
            format!("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{CHECK}"),
        ),
    ] {
        let (said, left) = says(&server, &format!("{head}{rest}"));
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{what}: {said}");
        assert_eq!(left, 5, "{what}: {said}");
    }
}

#[test]
fn length_and_chunks_together_are_one_request_and_the_connection_ends() {
    let server = Server::start();
    let chunk = format!("{:x}\r\n{CHECK}\r\n0\r\n\r\n", CHECK.len());
    let hidden = "POST /v1/reset HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (said, left) = says(
        &server,
        &format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{hidden}"
        ),
    );
    // Chunks take precedence (RFC 9112, section 6.3), or it is refused: the length is never used.
    let answers = said.matches("HTTP/1.1 ").count();
    let is_refused = said.starts_with("HTTP/1.1 400 ");
    assert!(is_refused && answers == 1 && left == 5 || !is_refused && left == 4, "{left}: {said}");
}

#[test]
fn lines_that_end_without_a_carriage_return_hide_nothing() {
    let server = Server::start();
    let length = CHECK.len();
    let (said, left) = says(
        &server,
        &format!(
            "POST /v1/check HTTP/1.1\nhost: localhost\ncontent-type: application/json\n\
             content-length: {length}\n\n{CHECK}"
        ),
    );
    // RFC 9112, section 2.2, lets a server accept it; then it is this one request.
    let is_taken = said.starts_with("HTTP/1.1 200 ") && left == 4;
    let is_refused = (said.is_empty() || said.starts_with("HTTP/1.1 400 ")) && left == 5;
    assert!(is_taken || is_refused, "{left}: {said}");
    assert_eq!(said.matches("HTTP/1.1 ").count(), usize::from(!said.is_empty()));
}
