//! Requests that two readers may end at different bytes: a proxy would forward one request, and the server would read
//! two.

use std::io::{Read, Write};
use std::time::Duration;

use super::Attacked;

/// Wait of a client for an answer, and for another one after it.
const ANSWER_WAIT: Duration = Duration::from_millis(200);

/// The answer to `request` within that time, whether the connection ends or not.
fn answer(attacked: &Attacked, request: &str) -> String {
    let mut stream = attacked.connect("http");
    stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the time is not zero");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut said = Vec::new();
    // The bytes before the timeout are kept.
    stream.read_to_end(&mut said).ok();
    String::from_utf8(said).expect("it says text")
}

/// A second request, hidden after the end that one of the readers sees.
const HIDDEN: &str = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
    content-type: application/json\r\ncontent-length: 33\r\n\r\n{\"policy\":\"login\",\"key\":\"hidden\"}";

/// Header fields that give the end of a body twice, or unclearly; and the body before which, or after which, the hidden
/// request begins.
const SHAPES: [(&str, &str); 22] = [
    ("content-length: 5\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
    ("transfer-encoding: chunked\r\ncontent-length: 5", "0\r\n\r\n"),
    ("content-length: 0\r\ncontent-length: 5", ""),
    ("content-length: 5\r\ncontent-length: 0", ""),
    ("content-length: 0, 5", ""),
    ("content-length: +0", ""),
    ("content-length: -0", ""),
    ("content-length: 0x0", ""),
    ("content-length: 18446744073709551616", ""),
    ("content-length : 0", ""),
    ("content-length:\r\n 0", ""),
    ("content-length: 0\r\n\ttransfer-encoding: chunked", ""),
    ("transfer-encoding : chunked", "0\r\n\r\n"),
    ("transfer-encoding: chunked, identity", "0\r\n\r\n"),
    ("transfer-encoding: identity, chunked, identity", "0\r\n\r\n"),
    ("transfer-encoding: xchunked", "0\r\n\r\n"),
    ("transfer-encoding: \u{b}chunked", "0\r\n\r\n"),
    ("transfer-encoding: identity", ""),
    ("transfer-encoding: chunked", "0x0\r\n\r\n"),
    ("transfer-encoding: chunked", "-0\r\n\r\n"),
    ("transfer-encoding: chunked", "10000000000000000\r\n\r\n"),
    ("transfer-encoding: chunked", "0\n\n"),
];

#[test]
fn what_is_hidden_behind_an_unclear_end_is_not_a_request() {
    let attacked = Attacked::start();
    for (fields, body) in SHAPES {
        for path in ["/v1/check", "/livez", "/nope"] {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
            );
            let said = answer(&attacked, &format!("{head}\r\n{fields}\r\n\r\n{body}{HIDDEN}"));
            let answers = said.matches("HTTP/1.1 ").count();
            assert!(answers <= 1, "{path} {fields:?} {body:?}: {said}");
            assert!(!said.contains("HTTP/1.1 200"), "{path} {fields:?} {body:?}: {said}");
        }
    }
    assert_eq!(attacked.remaining("hidden"), 5);
    attacked.is_well();
}

#[test]
fn lines_that_are_no_lines_of_http_are_refused() {
    let attacked = Attacked::start();
    for head in [
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nx\0: a\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n: a\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\n host: localhost\r\n\r\n",
        "POST /v1/check HTTP/1.1\rhost: localhost\r\r",
        "POST /v1/check HTTP/9.9\r\nhost: localhost\r\n\r\n",
        "POST /v1/check\r\n\r\n",
        "PO\0ST /v1/check HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "POST /v1/ch\u{1}eck HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "*1\r\n$4\r\nPING\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let said = answer(&attacked, &format!("{head}{HIDDEN}"));
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{head:?}: {said}");
        assert!(said.matches("HTTP/1.1 ").count() <= 1, "{head:?}: {said}");
    }
    let fields: String = (0..200).map(|number| format!("x{number}: y\r\n")).collect();
    let many = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n{HIDDEN}");
    assert!(answer(&attacked, &many).starts_with("HTTP/1.1 431 "));
    assert_eq!(attacked.remaining("hidden"), 5);
    attacked.is_well();
}
