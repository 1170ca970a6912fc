//! Requests for a decision and their replies: the protocol of Redis, and JSON over HTTP.

use anyhow::{Context as _, bail, ensure};

/// The policy of every scenario.
pub(crate) const POLICY: &str = "exact";

/// Largest reply: a decision is some hundred bytes.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// Index of the mode in a reply to `SG.CHECK`.
const MODE_PLACE: usize = 7;

/// The protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Resp,
    Http,
}

/// The content of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// A decision, and its mode.
    Decided { passes: bool, mode: &'a str },
    /// No decision, with the reason.
    Failed(&'a str),
}

impl Wire {
    /// Appends the request for a permit of `key`.
    pub(crate) fn ask(self, key: u32, bytes: &mut Vec<u8>) {
        let key = format!("k{key}");
        let request = match self {
            Self::Resp => format!(
                "*3\r\n$8\r\nSG.CHECK\r\n${}\r\n{POLICY}\r\n${}\r\n{key}\r\n",
                POLICY.len(),
                key.len()
            ),
            Self::Http => {
                let body = format!("{{\"policy\":\"{POLICY}\",\"key\":\"{key}\"}}");
                format!(
                    "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                     content-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        };
        bytes.extend_from_slice(request.as_bytes());
    }

    /// Returns the first reply in `bytes` and its length; `None` while it is incomplete.
    ///
    /// # Errors
    /// If the bytes are not a reply of this protocol.
    pub(crate) fn reply(self, bytes: &[u8]) -> anyhow::Result<Option<(Reply<'_>, usize)>> {
        ensure!(bytes.len() < REPLY_BYTES_MAX * 1_024, "too much was answered");
        match self {
            Self::Resp => resp(bytes),
            Self::Http => http(bytes),
        }
    }
}

fn resp(bytes: &[u8]) -> anyhow::Result<Option<(Reply<'_>, usize)>> {
    let Some((kind, text, mut end)) = part(bytes)? else { return Ok(None) };
    if kind == b'-' {
        return Ok(Some((Reply::Failed(text), end)));
    }
    ensure!(kind == b'*', "`{text}` is not a decision");
    let (mut code, mut mode) = ("", "none");
    for place in 0..text.parse().context("a list has a length")? {
        let Some((kind, text, length)) = part(&bytes[end..])? else { return Ok(None) };
        ensure!(kind != b'*', "a decision has no list in it");
        match place {
            0 => code = text,
            MODE_PLACE => mode = text,
            _ => {}
        }
        end += length;
    }
    let reply = match code {
        "1" => Reply::Decided { passes: true, mode },
        "-1" => Reply::Decided { passes: false, mode },
        _ => Reply::Failed("not configured"),
    };
    Ok(Some((reply, end)))
}

/// Returns one part of a reply: its type, its text, and where it ends.
fn part(bytes: &[u8]) -> anyhow::Result<Option<(u8, &str, usize)>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").context("a line ends in CRLF")?;
    let (kind, text) = line.split_first().context("a line has a kind")?;
    let (kind, text, end) = (*kind, std::str::from_utf8(text)?, end + 1);
    if kind != b'$' || text == "-1" {
        return Ok(Some((kind, text, end)));
    }
    let length: usize = text.parse().context("a text has a length")?;
    ensure!(length <= REPLY_BYTES_MAX, "a text of {length} bytes");
    let Some(text) = bytes.get(end..end + length) else { return Ok(None) };
    let end = end + length + 2;
    Ok((bytes.len() >= end).then_some((kind, std::str::from_utf8(text)?, end)))
}

fn http(bytes: &[u8]) -> anyhow::Result<Option<(Reply<'_>, usize)>> {
    let Some(head_end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..head_end])?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let begin = head_end + 4;
    let end = begin + length.unwrap_or(0);
    let Some(body) = bytes.get(begin..end) else { return Ok(None) };
    let body = std::str::from_utf8(body)?;
    let status = head.split(' ').nth(1).context("a reply has a status")?;
    let passes = match () {
        () if body.contains("\"allowed\":true") => true,
        () if body.contains("\"allowed\":false") => false,
        () if status.len() == 3 => return Ok(Some((Reply::Failed(status), end))),
        () => bail!("`{head}` is not a reply"),
    };
    // The field is left out if the store decided.
    let mode = body.split_once("\"mode\":\"").and_then(|(_, rest)| rest.split('"').next());
    Ok(Some((Reply::Decided { passes, mode: mode.unwrap_or("store") }, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wire: Wire, bytes: &str, expected: &Reply<'_>) {
        for end in 0..bytes.len() {
            assert_eq!(wire.reply(&bytes.as_bytes()[..end]).unwrap(), None, "{end}");
        }
        let more = format!("{bytes}*8\r\n");
        let (reply, length) = wire.reply(more.as_bytes()).unwrap().unwrap();
        assert_eq!((&reply, length), (expected, bytes.len()));
    }

    #[test]
    fn a_reply_is_read_when_all_of_it_is_there() {
        check(
            Wire::Resp,
            "*8\r\n:1\r\n:5\r\n:4\r\n:0\r\n:60\r\n:0\r\n$5\r\ntries\r\n$5\r\nlocal\r\n",
            &Reply::Decided { passes: true, mode: "local" },
        );
        check(
            Wire::Resp,
            "*8\r\n:-1\r\n:5\r\n:4\r\n:0\r\n:60\r\n:0\r\n$-1\r\n$4\r\ndeny\r\n",
            &Reply::Decided { passes: false, mode: "deny" },
        );
        check(Wire::Resp, "-ERR store: no\r\n", &Reply::Failed("ERR store: no"));
        check(
            Wire::Http,
            "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"allowed\":true}",
            &Reply::Decided { passes: true, mode: "store" },
        );
        check(
            Wire::Http,
            "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{\"allowed\":false,\"mode\":\"local\"}",
            &Reply::Decided { passes: false, mode: "local" },
        );
        check(Wire::Http, "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", &Reply::Failed("503"));
    }
}
