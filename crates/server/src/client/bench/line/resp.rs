//! The protocol of Redis: commands written together, replies as they come.

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::plan::{Plan, Question};
use super::super::tally::Outcome;
use super::key;
use crate::client::told;
use crate::wire::accept::Stream;

/// Largest reply: a decision is some hundred bytes, and the body that a policy may serve instead fits
/// into 64 KiB.
const REPLY_BYTES_MAX: usize = 256 * 1024;

/// How much is read at a time: the replies to a pipeline, mostly at once.
const READ_BYTES: usize = 16 * 1024;

/// Most parts of a reply: ten at present.
const PARTS_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub(crate) struct RespLine {
    stream: Stream,
    /// `SG.CHECK policy`, and behind the key what is the same in all questions.
    before: Vec<String>,
    after: Vec<String>,
    commands: Vec<u8>,
    replies: Vec<u8>,
}

impl RespLine {
    /// A connection on `stream`, past the password.
    pub(super) async fn new(stream: Stream, plan: &Plan) -> Result<Self> {
        let Question { policy, app, cost } = &plan.question;
        let mut after = Vec::new();
        if *cost > 1 {
            after.extend(["COST".to_owned(), cost.to_string()]);
        }
        if let Some(app) = app {
            after.extend(["APP".to_owned(), app.clone()]);
        }
        let before = vec!["SG.CHECK".to_owned(), policy.clone()];
        let (commands, replies) = (Vec::new(), Vec::new());
        let mut line = Self { stream, before, after, commands, replies };
        if let Some(password) = &plan.password {
            command(&mut line.commands, &["AUTH", password.expose()]);
            let mut said = None;
            line.exchange(1, |_, reply| said = Some(reply)).await?;
            ensure!(said == Some(Reply::Other), "the server does not take the password: {said:?}");
        }
        Ok(line)
    }

    /// See [`Line::ask`](super::Line::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Outcome),
    ) -> Result<()> {
        for number in keys {
            let key = key(*number);
            let words = self.before.iter().map(String::as_str).chain([&*key]);
            let words: Vec<_> = words.chain(self.after.iter().map(String::as_str)).collect();
            command(&mut self.commands, &words);
        }
        self.exchange(keys.len(), |place, reply| answered(place, outcome(reply))).await
    }

    /// Sends the commands, and reads as many replies.
    async fn exchange(&mut self, count: usize, mut said: impl FnMut(usize, Reply)) -> Result<()> {
        self.stream.write_all(&self.commands).await?;
        self.commands.clear();
        let mut place = 0;
        loop {
            let mut read = 0;
            while let Some((reply, length)) = reply(&self.replies[read..])? {
                said(place, reply);
                (place, read) = (place + 1, read + length);
            }
            self.replies.drain(..read);
            if place >= count {
                ensure!(place == count && self.replies.is_empty(), "more replies than commands");
                return Ok(());
            }
            ensure!(
                self.replies.len() < REPLY_BYTES_MAX,
                "a reply of more than {REPLY_BYTES_MAX} bytes"
            );
            self.replies.reserve(READ_BYTES);
            ensure!(
                self.stream.read_buf(&mut self.replies).await? > 0,
                "the server closed the connection"
            );
        }
    }
}

/// What a reply says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    /// The first place of a decision.
    Decision(i64),
    /// An error, in its words.
    Error(String),
    /// A line, a number, a text.
    Other,
}

fn outcome(reply: Reply) -> Outcome {
    match reply {
        Reply::Decision(1) => Outcome::Passed,
        Reply::Decision(-1) => Outcome::Refused,
        Reply::Decision(_) => {
            Outcome::Failed("there is no such policy, or not for this app".to_owned())
        }
        Reply::Error(problem) => Outcome::Failed(problem),
        Reply::Other => Outcome::Failed("the server did not answer with a decision".to_owned()),
    }
}

/// Appends a command of these words.
fn command(bytes: &mut Vec<u8>, words: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// The first reply in `bytes` and its length; none if it is not all there.
fn reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>> {
    let Some((kind, text, mut end)) = part(bytes)? else { return Ok(None) };
    match kind {
        b'-' | b'!' => return Ok(Some((Reply::Error(told::shortened(text)), end))),
        b'*' => {}
        _ => return Ok(Some((Reply::Other, end))),
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
    Ok(Some((first.map_or(Reply::Other, Reply::Decision), end)))
}

/// One part: its kind, its line (of a text that is its length), and where it ends.
fn part(bytes: &[u8]) -> Result<Option<(u8, &str, usize)>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n") else { return Ok(None) };
    let line = str::from_utf8(&bytes[..end]).context(NO_REPLY)?;
    let (kind, text) = (bytes[0], line.get(1..).context(NO_REPLY)?);
    let end = end + 2;
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

/// What a server says that speaks something else.
const NO_REPLY: &str = "the server did not answer as one that speaks RESP does";

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: &[u8] =
        b"*8\r\n:1\r\n:5\r\n:4\r\n:0\r\n:600000\r\n:0\r\n$5\r\ntries\r\n$5\r\nstore\r\n";

    #[test]
    fn a_command_is_an_array_of_texts() {
        let mut bytes = Vec::new();
        command(&mut bytes, &["SG.CHECK", "é"]);
        assert_eq!(bytes, "*2\r\n$8\r\nSG.CHECK\r\n$2\r\né\r\n".as_bytes());
    }

    #[test]
    fn a_reply_is_understood_only_when_all_of_it_is_there() {
        for end in 0..PASS.len() {
            assert_eq!(reply(&PASS[..end]).unwrap(), None, "{end}");
        }
        let more = [PASS, b":7\r\n"].concat();
        assert_eq!(reply(&more).unwrap(), Some((Reply::Decision(1), PASS.len())));
    }

    #[test]
    fn what_is_no_decision_is_a_failure_with_its_reason() {
        for (bytes, expected) in [
            (&b"*1\r\n:-1\r\n"[..], Outcome::Refused),
            (
                b"*2\r\n:0\r\n$-1\r\n",
                Outcome::Failed("there is no such policy, or not for this app".to_owned()),
            ),
            (b"-NOAUTH first\r\n", Outcome::Failed("NOAUTH first".to_owned())),
            (b"+OK\r\n", Outcome::Failed("the server did not answer with a decision".to_owned())),
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
