//! HTTP/2 frames that no library sends. The tests of the rls wire check that a flood ends its
//! connection; these check the cost of floods on many connections.

use std::io::Write;
use std::net::TcpStream;

use super::{Attacked, rest};

/// The greeting of a client, with an empty frame of settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Streams that one connection may have open.
const STREAMS: u32 = 128;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames of tests are short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a call, without compression.
fn call() -> Vec<u8> {
    let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).expect("it is short")];
    block.extend(path);
    block.extend(b"\x01\x01t\x0f\x10\x10application/grpc");
    block
}

/// A connection with a preface that sends as much of `flood` as the server takes.
fn flood(attacked: &Attacked, flood: &[u8]) -> TcpStream {
    let mut stream = attacked.connect("rls");
    stream.write_all(PREFACE).expect("it reads");
    stream.write_all(flood).ok();
    stream
}

#[test]
fn floods_of_resets_continuations_settings_and_pings_cost_little() {
    let attacked = Attacked::start();
    let resets = (1..4_000).step_by(2).flat_map(|stream| {
        [frame(HEADERS, END_HEADERS, stream, &call()), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])]
    });
    // A field of 100 bytes, repeated.
    let field = [&[0x00, 0x01, b'a', 98][..], &[b'x'; 98]].concat();
    let continuations =
        [frame(HEADERS, 0, 1, &call()), frame(CONTINUATION, 0, 1, &field).repeat(20_000)].concat();
    let empty =
        [frame(HEADERS, 0, 1, &call()), frame(CONTINUATION, 0, 1, &[]).repeat(200_000)].concat();
    for bytes in [
        resets.flatten().collect::<Vec<_>>(),
        continuations,
        empty,
        frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0]).repeat(100_000),
        frame(PING, 0, 0, &[7; 8]).repeat(100_000),
    ] {
        // Attackers do not read.
        let unread: Vec<_> = (0..20)
            .map(|_| {
                let mut stream = attacked.connect("rls");
                stream
                    .set_write_timeout(Some(std::time::Duration::from_millis(200)))
                    .expect("not zero");
                stream.write_all(PREFACE).expect("it reads");
                stream.write_all(&bytes).ok();
                stream
            })
            .collect();
        attacked.answers();
        drop(unread);
    }
    attacked.is_well();
}

#[test]
fn heads_without_their_messages_cost_little() {
    let attacked = Attacked::start();
    // Fields of two bytes each: the first is indexed, and each of the others refers to it by one
    // byte. Some heads have too many of them, others do not.
    let remembered = [call(), b"\x40\x01a\x01b".to_vec()].concat();
    let mut heads = frame(HEADERS, END_HEADERS, 1, &remembered);
    for stream in 1..STREAMS {
        let again = [call(), vec![0xbe; if stream % 2 == 0 { 400 } else { 55 }]].concat();
        heads.extend(frame(HEADERS, END_HEADERS, 2 * stream + 1, &again));
    }
    let open: Vec<_> = (0..50).map(|_| flood(&attacked, &heads)).collect();
    attacked.answers();
    attacked.is_well();
    drop(open);
}

#[test]
fn messages_that_do_not_end_cost_little() {
    let attacked = Attacked::start();
    let mut ahead = frame(HEADERS, END_HEADERS, 1, &call());
    // A message of 64 KiB is announced, and nearly all of it is sent.
    ahead.extend(frame(DATA, 0, 1, &[&[0, 0, 1, 0, 0][..], &[0; 16_000]].concat()));
    for _ in 0..3 {
        ahead.extend(frame(DATA, 0, 1, &[0; 16_000]));
    }
    let open: Vec<_> = (0..500).map(|_| flood(&attacked, &ahead)).collect();
    attacked.answers();
    attacked.is_well();
    drop(open);
}

#[test]
fn a_stream_that_was_never_opened_ends_the_connection() {
    let attacked = Attacked::start();
    for bytes in [
        frame(DATA, 0, 1, b"x"),
        frame(HEADERS, END_HEADERS, 2, &call()),
        frame(HEADERS, END_HEADERS, 0, &call()),
        frame(CONTINUATION, END_HEADERS, 1, &call()),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(PING, 0, 0, &[0; 7]),
        frame(RST_STREAM, 0, 9, &[0; 4]),
        vec![0xff; 64],
    ] {
        rest(&mut flood(&attacked, &bytes));
    }
    attacked.is_well();
}
