//! The protocol of Redis: commands written together, replies as they come.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::super::plan::{BenchPlan, BenchRequest};
use super::super::tally::BenchOutcome;
use super::KEY;
use crate::client::reply;
use crate::client::target::ServerStream;

/// Largest reply: a decision is some hundred bytes, and the body that a policy may serve instead fits
/// into 64 KiB.
const REPLY_BYTES_MAX: usize = 256 * 1024;

/// Bytes read at a time: usually all replies to a pipeline.
const READ_BYTES: usize = 16 * 1024;

/// Most parts of a reply: ten at present.
const PARTS_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub(crate) struct RespConnection {
    stream: ServerStream,
    /// Bytes that are the same in all commands: `before` the key, and `after` it.
    before: Vec<u8>,
    after: Vec<u8>,
    commands: Vec<u8>,
    replies: Vec<u8>,
}

impl RespConnection {
    /// A connection on `stream`, after authentication with the password, if there is one.
    pub(super) async fn new(stream: ServerStream, plan: &BenchPlan) -> Result<Self> {
        let BenchRequest { policy, app, cost } = &plan.question;
        let permits = cost.to_string();
        let cost = (*cost > 1).then_some(["COST", &permits]);
        let app = app.as_deref().map(|app| ["APP", app]);
        let options: Vec<_> = [cost, app].into_iter().flatten().flatten().collect();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        array(&mut before, 3 + options.len());
        texts(&mut before, &["SG.CHECK", policy]);
        texts(&mut after, &options);
        let (commands, replies) = (Vec::new(), Vec::new());
        let mut line = Self { stream, before, after, commands, replies };
        let password = plan.password.as_ref().map(|password| ("password", password.expose()));
        let token = plan.bearer.as_ref().and_then(|bearer| bearer.to_str().ok());
        let token = token.and_then(|bearer| Some(("token", bearer.strip_prefix("Bearer ")?)));
        if let Some((kind, secret)) = password.or(token) {
            array(&mut line.commands, 2);
            texts(&mut line.commands, &["AUTH", secret]);
            let mut said = None;
            line.exchange(1, |_, _, reply| said = Some(reply)).await?;
            ensure!(said == Some(RespReply::Other), "the server rejected the {kind}: {said:?}");
        }
        Ok(line)
    }

    /// See [`BenchConnection::ask`](super::BenchConnection::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Instant, BenchOutcome),
    ) -> Result<()> {
        for number in keys {
            self.commands.extend_from_slice(&self.before);
            let (mut digits, mut key) = (itoa::Buffer::new(), KEY.to_owned());
            key.push_str(digits.format(*number));
            texts(&mut self.commands, &[&key]);
            self.commands.extend_from_slice(&self.after);
        }
        let on_reply = |place, now, reply| answered(place, now, outcome(reply));
        self.exchange(keys.len(), on_reply).await
    }

    /// Sends the commands, and reads as many replies.
    async fn exchange(
        &mut self,
        count: usize,
        mut on_reply: impl FnMut(usize, Instant, RespReply),
    ) -> Result<()> {
        let Self { stream, commands, replies, .. } = self;
        stream.write_all(commands).await?;
        commands.clear();
        let mut place = 0;
        while place < count {
            ensure!(
                replies.len() < REPLY_BYTES_MAX,
                "a reply of more than {REPLY_BYTES_MAX} bytes"
            );
            replies.reserve(READ_BYTES);
            ensure!(stream.read_buf(replies).await? > 0, "the server closed the connection");
            let (now, mut read) = (Instant::now(), 0);
            while place < count
                && let Some((reply, length)) = reply(&replies[read..])?
            {
                on_reply(place, now, reply);
                (place, read) = (place + 1, read + length);
            }
            replies.drain(..read);
        }
        ensure!(replies.is_empty(), "unexpected extra reply from the server");
        Ok(())
    }
}

/// The part of a reply that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RespReply {
    /// A decision: its first element.
    Decision(i64),
    /// An error, in its words.
    Error(String),
    /// A line, a number, a text.
    Other,
}

fn outcome(reply: RespReply) -> BenchOutcome {
    match reply {
        RespReply::Decision(1) => BenchOutcome::Passed,
        RespReply::Decision(-1) => BenchOutcome::Refused,
        RespReply::Decision(_) => {
            BenchOutcome::Failed("unknown policy, or not available to this app".to_owned())
        }
        RespReply::Error(problem) => BenchOutcome::Failed(problem),
        RespReply::Other => {
            BenchOutcome::Failed("the server did not answer with a decision".to_owned())
        }
    }
}

/// Appends the beginning of a command of `words` words.
fn array(bytes: &mut Vec<u8>, words: usize) {
    line(bytes, b'*', words);
}

/// Appends words.
fn texts(bytes: &mut Vec<u8>, words: &[&str]) {
    for word in words {
        line(bytes, b'$', word.len());
        bytes.extend_from_slice(word.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
}

fn line(bytes: &mut Vec<u8>, kind: u8, number: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

/// Returns the first reply in `bytes` and its length, or none if it is incomplete.
fn reply(bytes: &[u8]) -> Result<Option<(RespReply, usize)>> {
    let Some((kind, text, mut end)) = part(bytes)? else { return Ok(None) };
    match kind {
        b'-' | b'!' => return Ok(Some((RespReply::Error(reply::shortened(text)), end))),
        b'*' => {}
        _ => return Ok(Some((RespReply::Other, end))),
    }
    let parts: usize = text.parse().ok().filter(|parts| *parts <= PARTS_MAX).context(NO_REPLY)?;
    let mut first = None;
    for place in 0..parts {
        let Some((kind, text, length)) = part(&bytes[end..])? else { return Ok(None) };
        ensure!(kind != b'*', NO_REPLY);
        if place == 0 && kind == b':' {
            first = text.parse().ok();
        }
        end += length;
    }
    Ok(Some((first.map_or(RespReply::Other, RespReply::Decision), end)))
}

/// Returns one part: its type, its line (for a text: its length), and where it ends. `None` if it is incomplete.
fn part(bytes: &[u8]) -> Result<Option<(u8, &str, usize)>> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").context(NO_REPLY)?;
    let (kind, text) = line.split_first().context(NO_REPLY)?;
    let (kind, text, end) = (*kind, str::from_utf8(text).context(NO_REPLY)?, end + 1);
    match kind {
        b'$' if text == "-1" => Ok(Some((kind, text, end))),
        b'$' => {
            let length: usize = text.parse().context(NO_REPLY)?;
            ensure!(length <= REPLY_BYTES_MAX, NO_REPLY);
            let end = end + length + 2;
            Ok((bytes.len() >= end).then_some((kind, text, end)))
        }
        b'*' | b':' | b'+' | b'-' | b'_' | b',' | b'#' => Ok(Some((kind, text, end))),
        _ => bail!(NO_REPLY),
    }
}

/// The error for a server that uses another protocol.
const NO_REPLY: &str = "the server did not answer like a RESP server";

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &[u8] =
        b"*8\r\n:1\r\n:5\r\n:4\r\n:0\r\n:600000\r\n:0\r\n$5\r\ntries\r\n$5\r\nstore\r\n";

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut bytes = Vec::new();
        array(&mut bytes, 2);
        texts(&mut bytes, &["SG.CHECK", "é"]);
        assert_eq!(bytes, "*2\r\n$8\r\nSG.CHECK\r\n$2\r\né\r\n".as_bytes());
    }

    #[test]
    fn a_reply_is_understood_only_when_all_of_it_is_there() {
        for end in 0..PASS.len() {
            assert_eq!(reply(&PASS[..end]).unwrap(), None, "{end}");
        }
        let more = [PASS, b":7\r\n"].concat();
        assert_eq!(reply(&more).unwrap(), Some((RespReply::Decision(1), PASS.len())));
    }

    #[test]
    fn what_is_no_decision_is_a_failure_with_its_reason() {
        for (bytes, expected) in [
            (&b"*1\r\n:-1\r\n"[..], BenchOutcome::Refused),
            (
                b"*2\r\n:0\r\n$-1\r\n",
                BenchOutcome::Failed("unknown policy, or not available to this app".to_owned()),
            ),
            (b"-NOAUTH first\r\n", BenchOutcome::Failed("NOAUTH first".to_owned())),
            (
                b"+OK\r\n",
                BenchOutcome::Failed("the server did not answer with a decision".to_owned()),
            ),
        ] {
            let (reply, length) = reply(bytes).unwrap().unwrap();
            assert_eq!((outcome(reply), length), (expected, bytes.len()));
        }
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"*65\r\n", b"*1\r\n*0\r\n", b"$x\r\n", b"\r\n"]
        {
            assert_eq!(reply(bytes).unwrap_err().to_string(), NO_REPLY);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(0_u8..=255, 0..100)) {
            reply(&bytes).ok();
            reply(&[b"*2\r\n$", &*bytes].concat()).ok();
        }
    }
}
