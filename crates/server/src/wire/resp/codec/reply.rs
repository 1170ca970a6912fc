//! Writes answers as bytes.

use super::error_reply::ErrorReply;
use super::frame::ProtocolError;

/// Replies that wait to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
    protocol: Protocol,
}

/// The version of the protocol that a client has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Protocol {
    /// The version that every client supports.
    #[default]
    Resp2,
    /// The version with maps and a null of its own.
    Resp3,
}

impl Replies {
    /// The bytes to send.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the replies, once they are sent.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The version in which replies are written.
    pub(super) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Writes replies in `protocol` from now on.
    pub(super) const fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// `OK`.
    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// A line.
    pub(super) fn simple(&mut self, line: &'static str) {
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(line.as_bytes());
        self.end();
    }

    /// An error.
    pub(crate) fn refusal(&mut self, refusal: &ErrorReply) {
        self.bytes.push(b'-');
        self.bytes.extend_from_slice(refusal.line().as_bytes());
        self.end();
    }

    /// Writes the error that closes the connection; for another protocol, nothing.
    pub(crate) fn protocol_error(&mut self, error: ProtocolError) {
        if error != ProtocolError::Foreign {
            self.refusal(&ErrorReply::err(format_args!("Protocol error: {error}")));
        }
    }

    /// A whole number.
    #[inline]
    pub(super) fn integer(&mut self, number: u64) {
        self.head(b':', number);
    }

    /// Writes a whole number below zero: so far below.
    pub(super) fn negative(&mut self, number: u64) {
        self.digits(b":-", number);
    }

    /// A string of bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.head(b'$', bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// Writes null in place of a string.
    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Writes null in place of an array.
    pub(super) fn null_array(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array of so many of the following replies.
    pub(super) fn array(&mut self, count: usize) {
        self.head(b'*', count as u64);
    }

    /// A map of so many of the following pairs.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', pairs as u64 * 2),
            Protocol::Resp3 => self.head(b'%', pairs as u64),
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, number: u64) {
        self.digits(&[kind], number);
    }

    /// Writes a line of `head` and `number`. Digits are few: they are written from the last one on,
    /// and the line at once.
    #[inline]
    fn digits(&mut self, head: &[u8], number: u64) {
        let mut line = *b"????????????????????????\r\n";
        let (mut at, mut rest) = (line.len() - 2, number);
        loop {
            at -= 1;
            line[at] = b"0123456789"[usize::try_from(rest % 10).expect("a digit")];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let begin = at - head.len();
        line[begin..at].copy_from_slice(head);
        self.bytes.extend_from_slice(&line[begin..]);
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}
