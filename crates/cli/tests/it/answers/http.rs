//! HTTP: a request is a line with method and path, lines with header fields, and the body.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::{compare, server, without_times};
use crate::program::PATIENCE;

/// Header fields that are not compared: they depend on the time, or on the length of other parts.
const LEFT_OUT: &[&str] = &["date", "content-length", "connection"];

/// Texts before numbers that depend on the time.
const TIMES: &[&str] = &[
    "_us\":",
    ";t=",
    "retry-after: ",
    "retry in ",
    "UntilReset\":\"",
    "retry-after\",\"value\":\"",
];

#[test]
fn http_answers_as_it_is_written() {
    let server = server();
    compare("http.txt", |asked| answer(server.address("http"), asked));
}

fn answer(server: SocketAddr, asked: &str) -> String {
    let mut lines = asked.lines();
    let line = lines.next().expect("it has a first line");
    let (mut fields, mut body) = (String::new(), String::new());
    for line in lines {
        match line.split_once(": ") {
            Some((name, value)) if body.is_empty() && !name.contains('"') => {
                fields += &format!("{name}: {value}\r\n");
            }
            _ => body += line,
        }
    }
    if !fields.contains("content-type") && !body.is_empty() {
        fields += "content-type: application/json\r\n";
    }
    let mut stream = TcpStream::connect(server).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}content-length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it answers in text");
    let (head, body) = said.split_once("\r\n\r\n").expect("it has a head");
    let (status, fields) = head.split_once("\r\n").expect("it has a first line");
    let is_left_out = |line: &&str| LEFT_OUT.iter().any(|name| line.starts_with(name));
    let fields: Vec<_> = fields.split("\r\n").filter(|line| !is_left_out(line)).collect();
    without_times(&format!("{status}\n{}\n\n{body}", fields.join("\n")), TIMES)
}
