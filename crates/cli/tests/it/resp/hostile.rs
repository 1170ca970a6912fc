//! Bytes that no honest client sends.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::Server;

/// Checks that an honest client is answered.
fn is_well(server: &Server) {
    assert_eq!(server.lines("PING"), "+PONG\r\n+OK\r\n");
}

#[test]
fn input_that_is_cut_off_anywhere_is_no_harm() {
    let server = Server::start();
    let whole = b"*3\r\n$8\r\nSG.CHECK\r\n$5\r\nlogin\r\n$1\r\nk\r\n";
    for end in 0..whole.len() {
        let mut stream = server.connect();
        stream.write_all(&whole[..end]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        let problem = "-ERR Protocol error: the connection ended within a command\r\n";
        let expected = if end == 0 { "" } else { problem };
        assert_eq!(str::from_utf8(&said).unwrap(), expected);
    }
    assert!(server.lines("SG.PEEK login k").starts_with("*8\r\n:1\r\n:5\r\n:5\r\n"));
}

#[test]
fn what_is_too_much_gets_an_error_and_an_end() {
    let server = Server::start();
    let long = [b'x'; 100_000];
    for (input, problem) in [
        (b"*1\r\n$536870912\r\n".to_vec(), "invalid bulk length"),
        (b"*1048576\r\n".to_vec(), "invalid multibulk length"),
        (b"*3\r\n".repeat(10_000), "expected '$', got '*'"),
        (b"*1\r\n$4\r\nPINGPING\r\n".to_vec(), "expected CR LF after a bulk string"),
        (long.to_vec(), "too big inline request"),
        (
            [&b"*5\r\n"[..], &[&b"$4096\r\n"[..], &long[..4096], b"\r\n"].concat().repeat(5)]
                .concat(),
            "too big request",
        ),
    ] {
        let said = String::from_utf8(server.answer(&input)).unwrap();
        assert!(said.starts_with(&format!("-ERR Protocol error: {problem}")), "{said}");
        assert!(said.ends_with("\r\n") && said.matches("\r\n").count() == 1, "{said}");
    }
    is_well(&server);
}

#[test]
fn other_protocols_are_let_go_without_an_answer() {
    let server = Server::start();
    let body = "SG.RESET login k\r\n";
    assert!(server.lines("SG.CHECK login k").contains(":4\r\n"));
    for head in [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "Host: localhost\r\n\r\n",
    ] {
        let said = server.answer(format!("{head}{body}").as_bytes());
        assert!(said.is_empty(), "{}", said.escape_ascii());
    }
    assert!(server.lines("SG.PEEK login k").contains(":4\r\n"), "the body was not read");
}

#[test]
fn a_tls_greeting_gets_an_error() {
    let server = Server::start();
    let said = server.answer(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert!(said.starts_with(b"-ERR Protocol error: "), "{}", said.escape_ascii());
}

#[test]
fn any_bytes_end_in_an_answer_or_an_end() {
    let server = Server::start();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let mut bytes: Vec<u8> = (0..random.usize(..2_000)).map(|_| random.u8(..)).collect();
        for byte in &mut bytes {
            if random.u8(..4) == 0 {
                *byte = b"*$\r\n0123456789 "[random.usize(..15)];
            }
        }
        let mut stream = server.connect();
        stream.write_all(&bytes).ok();
        stream.shutdown(Shutdown::Write).ok();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    is_well(&server);
}

#[test]
fn keys_of_nuls_and_braces_are_keys() {
    let server = Server::start();
    for key in [[0; 1024], [b'{'; 1024]] {
        let check =
            [&b"*3\r\n$8\r\nSG.CHECK\r\n$5\r\nlogin\r\n$1024\r\n"[..], &key, b"\r\n"].concat();
        let said = server.answer(&[&check.repeat(6)[..], b"QUIT\r\n"].concat());
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.matches("*8\r\n:1\r\n").count(), 5, "{said}");
        assert_eq!(said.matches("*8\r\n:-1\r\n").count(), 1, "{said}");
    }
}

#[test]
fn connections_that_say_half_a_command_do_not_keep_others_waiting() {
    let server = Server::start();
    let half: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(b"*3\r\n$8\r\nSG.CHECK\r\n$5\r\nlo").unwrap();
            stream
        })
        .collect();
    is_well(&server);
    drop(half);
    is_well(&server);
}
