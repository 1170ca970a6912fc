//! Counts the commands of Redis in a stream of bytes, in pieces of any size.

/// The position in a stream.
#[derive(Debug, Default)]
pub(super) struct RequestCounter {
    /// The line so far, without its end.
    line: Vec<u8>,
    /// The number of strings that the command still has, after the one that is being skipped.
    parts: u64,
    /// The number of bytes to skip.
    skip: usize,
    /// Bytes other than RESP were seen, such as TLS: nothing is counted any more.
    foreign: bool,
}

impl RequestCounter {
    /// Returns the number of commands that end in `bytes`, which follow those before.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ended = 0;
        while !bytes.is_empty() && !self.foreign {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                ended += u64::from(self.skip == 0 && self.parts == 0);
                continue;
            }
            let (&byte, rest) = bytes.split_first().expect("the loop ends with the last byte");
            bytes = rest;
            match byte {
                b'\n' => self.line_ended(),
                _ if self.line.len() == LINE_MAX => self.foreign = true,
                _ => self.line.push(byte),
            }
        }
        ended
    }

    fn line_ended(&mut self) {
        let line = std::mem::take(&mut self.line);
        let number = |mark: u8| {
            let digits = line.strip_prefix(&[mark])?.strip_suffix(b"\r")?;
            std::str::from_utf8(digits).ok()?.parse::<u32>().ok()
        };
        if self.parts == 0 {
            match number(b'*') {
                Some(parts) => self.parts = parts.into(),
                None => self.foreign = true,
            }
        } else {
            match number(b'$') {
                Some(length) => {
                    self.parts -= 1;
                    self.skip = length as usize + b"\r\n".len();
                }
                None => self.foreign = true,
            }
        }
    }
}

/// `*` or `$` with any 32-bit number.
const LINE_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_when_they_end_wherever_the_stream_is_cut() {
        let stream =
            b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n";
        for cut in 0..stream.len() {
            let mut requests = RequestCounter::default();
            let count = requests.feed(&stream[..cut]) + requests.feed(&stream[cut..]);
            assert_eq!(count, 2, "cut at {cut}");
            assert_eq!(requests.feed(b"$1\r\nk\r\n"), 1);
        }
    }

    #[test]
    fn what_is_no_resp_counts_nothing() {
        for stream in [&b"\x16\x03\x01\x02\n*1\r\n$1\r\nx\r\n"[..], b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(RequestCounter::default().feed(stream), 0);
        }
    }
}
