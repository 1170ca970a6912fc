//! The protocol of a server at an address, for an error about the wrong one.

use std::time::Duration;

use sluicegate_server::config::Listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::target::connect;

/// Longest wait for an answer: a user waits for the error.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);

/// A command of Redis. Servers of other protocols do not know it, and each refuses it in its own way.
const PING: &[u8] = b"PING\r\n";

/// A protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    Http,
    Resp,
    Rls,
    Tls,
}

impl Spoken {
    /// Its name, and its default port.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Resp => "the Redis protocol (port 6380 by default)",
            Self::Rls => "gRPC, for Envoy (port 8081 by default)",
            Self::Tls => "TLS",
        }
    }

    /// The protocol whose servers begin an answer like this.
    fn of_answer(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'H', b'T', b'T', b'P', ..] => Some(Self::Http),
            [b'-' | b'+', ..] => Some(Self::Resp),
            // The length of a frame, and the type of settings.
            [0, 0, _, 4, ..] => Some(Self::Rls),
            // An alert, and the version of TLS.
            [0x15, 3, ..] => Some(Self::Tls),
            _ => None,
        }
    }
}

/// Returns the protocol of the server at `addresses`, if it can be recognised.
pub(crate) async fn spoken_at(addresses: &[Listen]) -> Option<Spoken> {
    let request = async {
        let mut stream = connect(addresses).await.ok()?;
        stream.write_all(PING).await.ok()?;
        let mut answer = [0; 16];
        let mut length = 0;
        while length < 4 {
            let count = stream.read(&mut answer[length..]).await.ok()?;
            if count == 0 {
                break;
            }
            length += count;
        }
        Spoken::of_answer(&answer[..length])
    };
    timeout(ANSWER_WAIT_MAX, request).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_known_by_the_beginning_of_an_answer() {
        for (answer, spoken) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], Some(Spoken::Http)),
            (b"+PONG\r\n", Some(Spoken::Resp)),
            (b"\0\0\x12\x04\0\0\0\0\0", Some(Spoken::Rls)),
            (b"\x15\x03\x03\0\x02", Some(Spoken::Tls)),
            (b"220 mail", None),
            (b"", None),
        ] {
            assert_eq!(Spoken::of_answer(answer), spoken, "{answer:?}");
        }
    }
}
