//! Malicious clients: their input is bounded, and honest clients are answered meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code as Verdict;
use tonic::Code;
use tonic::metadata::MetadataValue;

use super::{Server, YEARLY, ask, request};
use crate::program::PATIENCE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames.
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// A connection with hand-made HTTP/2 frames.
struct Frames(TcpStream);

impl Frames {
    /// Connects and sends the preface.
    fn connect(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.rls).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream.write_all(PREFACE).expect("it reads");
        let mut frames = Self(stream);
        frames.send(SETTINGS, 0, 0, &[]).expect("it reads");
        frames
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(payload.len()).expect("frames of tests are short").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat())
    }

    /// The next frame: its type and its payload; `None` at the end.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing comes"),
            Err(_) => return None,
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).expect("24 bits")];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[3], payload))
    }

    /// The error with which the server ends the connection; `None`: it ends without one.
    fn ended_with(&mut self) -> Option<u32> {
        let mut error = None;
        while let Some((kind, payload)) = self.next() {
            if kind == GOAWAY {
                let code: [u8; 4] = payload[4..8].try_into().expect("four bytes");
                error = Some(u32::from_be_bytes(code));
            }
        }
        error
    }
}

/// The head of a call, without compression.
fn call() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    for (name, value) in [(0x04, &path[..]), (0x01, b"t"), (0x0f, b"application/grpc")] {
        block.push(name);
        if name == 0x0f {
            block.push(0x10);
        }
        block.push(u8::try_from(value.len()).expect("short values"));
        block.extend(value);
    }
    block
}

async fn is_answered(server: &Server) {
    let response = ask(&mut server.client().await, request("shop", &[("user", "ann")])).await;
    assert_eq!(response.overall_code(), Verdict::Ok);
}

#[test]
fn the_limits_of_a_connection_are_told() {
    let server = Server::serving(YEARLY);
    let (kind, settings) = Frames::connect(&server).next().expect("it greets");
    assert_eq!(kind, SETTINGS);
    let setting = |id: u16| {
        let mut settings = settings.chunks_exact(6);
        let setting = settings.find(|setting| setting[..2] == id.to_be_bytes())?;
        Some(u32::from_be_bytes(setting[2..].try_into().ok()?))
    };
    let (streams, window, list) = (setting(3), setting(4), setting(6));
    assert_eq!((streams, window, list), (Some(128), Some(65_536), Some(16_384)));
}

#[tokio::test]
async fn a_message_of_more_than_64_kib_is_refused_and_the_connection_goes_on() {
    let server = Server::serving(YEARLY);
    let mut client = server.client().await;
    let of = |bytes| request("shop", &[("user", &"x".repeat(bytes))]);
    let refused = client.should_rate_limit(of(65 * 1024)).await.expect_err("it is too long");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let long = ask(&mut client, of(63 * 1024)).await;
    assert_eq!(long.statuses[0].limit_remaining, 499);
    let another = ask(&mut client, of(63 * 1024 + 1)).await;
    assert_eq!(another.statuses[0].limit_remaining, 499, "another key, another budget");
}

#[tokio::test]
async fn a_list_of_header_fields_of_more_than_16_kib_is_refused() {
    let server = Server::serving(YEARLY);
    let mut client = server.client().await;
    let mut long = tonic::Request::new(request("shop", &[("user", "ann")]));
    let value = MetadataValue::try_from("x".repeat(17 * 1024)).expect("it is text");
    long.metadata_mut().insert("x-long", value);
    client.should_rate_limit(long).await.expect_err("it is too long");
    is_answered(&server).await;
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let server = Server::serving(YEARLY);
    let mut frames = Frames::connect(&server);
    let mut flood = Vec::new();
    for stream in (1..4_000_u32).step_by(2) {
        for (kind, flags, payload) in [(HEADERS, 4, call()), (RST_STREAM, 0, vec![0, 0, 0, 8])] {
            let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
            flood.extend(&length[1..]);
            flood.extend([kind, flags]);
            flood.extend(stream.to_be_bytes());
            flood.extend(payload);
        }
    }
    // The connection may end during the write.
    frames.0.write_all(&flood).ok();
    const ENHANCE_YOUR_CALM: u32 = 11;
    assert!(matches!(frames.ended_with(), Some(ENHANCE_YOUR_CALM) | None));
    is_answered(&server).await;
}

#[tokio::test]
async fn a_head_that_goes_on_and_on_ends_the_connection() {
    let server = Server::serving(YEARLY);
    let mut frames = Frames::connect(&server);
    frames.send(HEADERS, 0, 1, &call()).expect("it reads");
    // A field of 100 bytes, repeated until the server stops reading.
    let field = [&[0x00, 0x01, b'a', 98][..], &[b'x'; 98]].concat();
    let mut sent = 0_usize;
    while sent < 10 << 20 && frames.send(CONTINUATION, 0, 1, &field).is_ok() {
        sent += field.len();
    }
    assert!(sent < 10 << 20, "10 MiB are taken");
    is_answered(&server).await;
}

#[tokio::test]
async fn whoever_speaks_something_else_is_not_answered() {
    let server = Server::serving(YEARLY);
    for words in [
        &b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"[..],
        b"PING\r\n",
        &[0; 64],
    ] {
        let mut stream = TcpStream::connect(server.rls).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream.write_all(words).expect("it reads");
        // The connection may be closed already.
        stream.shutdown(std::net::Shutdown::Write).ok();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).ok();
        let decision = said.windows(4).any(|text| text == b"grpc");
        assert!(!decision, "{}", String::from_utf8_lossy(&said));
    }
    is_answered(&server).await;
}
