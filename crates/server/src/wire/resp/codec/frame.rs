//! Framing: splits bytes into commands, and commands into words.
//!
//! ```text
//! *2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n      an array of bulk strings: what clients send
//! ECHO hi\r\n                          an inline command: what people and probes send
//! ```
//!
//! The result depends on the bytes from the beginning of the command alone, not on how they arrive. Words of inline
//! commands are separated by blanks, or stand in quotes, `"a b"` or `'a b'`. Escapes in quotes, which Redis accepts,
//! are refused: words are borrowed from the input.

use std::ops::Deref;

/// Maximum number of words of one command: `COMMAND INFO` names commands, all others have ten words at most.
pub(super) const WORDS_MAX: usize = 64;

/// Longest word in bytes: four times the longest key, so that a key that is too long gets an answer
/// and not a closed connection.
pub(super) const WORD_BYTES_MAX: usize = 4 * 1024;

/// Longest command in bytes: the most that a connection buffers, enough for 200 pipelined checks.
pub(crate) const COMMAND_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of digits of a length: longer ones are above every maximum.
const DIGITS_MAX: usize = 9;

/// The words of one command, borrowed from the input.
#[derive(Debug)]
pub(crate) struct CommandWords<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
}

/// Bytes that are not a command. The connection is closed: the beginning of the next command is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    /// Another protocol, most likely a browser that was led here. It gets no answer.
    #[error("not the RESP protocol")]
    Foreign,
    #[error("invalid multibulk length")]
    ArrayLength,
    #[error("invalid bulk length")]
    WordLength,
    #[error("expected '$', got '{}'", .0.escape_ascii())]
    NoBulk(u8),
    #[error("expected CR LF after a bulk string")]
    Unended,
    #[error("too big request")]
    TooBig,
    #[error("too big inline request")]
    TooBigInline,
    #[error("control characters and escapes are only allowed in bulk strings")]
    NoInline,
    #[error("unbalanced quotes in request")]
    Quotes,
    /// The client has ended its side within a command.
    #[error("the connection ended within a command")]
    Cut,
    /// The rest of a command did not come in time.
    #[error("the rest of a command did not arrive in time")]
    Late,
}

/// Reads the first command of `input`, and returns how many bytes it takes; `None` if it has not
/// ended. An empty command has no words, and callers skip it.
pub(crate) fn read<'a>(
    input: &'a [u8],
    words: &mut CommandWords<'a>,
) -> Result<Option<usize>, ProtocolError> {
    words.count = 0;
    match input {
        [] => Ok(None),
        [b'*', ..] => read_array(input, words),
        _ => read_inline(input, words),
    }
}

fn read_array<'a>(
    input: &'a [u8],
    words: &mut CommandWords<'a>,
) -> Result<Option<usize>, ProtocolError> {
    if input.starts_with(b"*-") {
        return null_array(input);
    }
    let Some((count, mut rest)) = length(&input[1..]).ok_or(ProtocolError::ArrayLength)? else {
        return Ok(None);
    };
    if count > WORDS_MAX {
        return Err(ProtocolError::ArrayLength);
    }
    for _ in 0..count {
        let head = match rest {
            [] => return Ok(None),
            [b'$', head @ ..] => head,
            [other, ..] => return Err(ProtocolError::NoBulk(*other)),
        };
        let Some((bytes, word)) = length(head).ok_or(ProtocolError::WordLength)? else {
            return Ok(None);
        };
        if bytes > WORD_BYTES_MAX {
            return Err(ProtocolError::WordLength);
        }
        if input.len() - word.len() + bytes + 2 > COMMAND_BYTES_MAX {
            return Err(ProtocolError::TooBig);
        }
        let Some((word, end)) = word.split_at_checked(bytes) else { return Ok(None) };
        rest = match end {
            [b'\r', b'\n', rest @ ..] => rest,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(ProtocolError::Unended),
        };
        words.push(word);
    }
    Ok(Some(input.len() - rest.len()))
}

/// An array of fewer than no words, such as `*-1`: not a command, and skipped as in Redis.
fn null_array(input: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some((_, rest)) = length(&input[2..]).ok_or(ProtocolError::ArrayLength)? else {
        return Ok(None);
    };
    Ok(Some(input.len() - rest.len()))
}

/// The number that `input` begins with, and the bytes behind its CR LF. `Some(None)`: it has not
/// ended. `None`: it is not a number.
#[inline]
fn length(input: &[u8]) -> Option<Option<(usize, &[u8])>> {
    match input {
        // Nearly all lengths.
        [digit @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => {
            Some(Some((usize::from(digit - b'0'), rest)))
        }
        [ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => {
            Some(Some((usize::from(ten - b'0') * 10 + usize::from(one - b'0'), rest)))
        }
        _ => long_length(input),
    }
}

fn long_length(input: &[u8]) -> Option<Option<(usize, &[u8])>> {
    let mut number = 0;
    for (place, byte) in input.iter().take(DIGITS_MAX + 1).enumerate() {
        match byte {
            b'0'..=b'9' if place < DIGITS_MAX => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if place > 0 => {
                return match &input[place + 1..] {
                    [b'\n', rest @ ..] => Some(Some((number, rest))),
                    [] => Some(None),
                    _ => None,
                };
            }
            _ => return None,
        }
    }
    Some(None)
}

fn read_inline<'a>(
    input: &'a [u8],
    words: &mut CommandWords<'a>,
) -> Result<Option<usize>, ProtocolError> {
    if input[0].is_ascii_control() && !input[0].is_ascii_whitespace() {
        return Err(ProtocolError::NoInline);
    }
    let start = &input[..input.len().min(WORD_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', start) else {
        let too_big = start.len() == WORD_BYTES_MAX;
        return if too_big { Err(ProtocolError::TooBigInline) } else { Ok(None) };
    };
    let line = start[..end].strip_suffix(b"\r").unwrap_or(&start[..end]);
    let mut rest = line;
    let mut read = Ok(());
    while let Some(begin) = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')) {
        if words.count == WORDS_MAX {
            return Err(ProtocolError::TooBigInline);
        }
        match inline_word(&rest[begin..]) {
            Ok((word, left)) => {
                words.push(word);
                rest = left;
            }
            Err(error) => {
                read = Err(error);
                break;
            }
        }
    }
    if is_foreign(line) {
        return Err(ProtocolError::Foreign);
    }
    if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err(ProtocolError::NoInline);
    }
    read.map(|()| Some(end + 1))
}

/// The first word of `line`, and the rest.
fn inline_word(line: &[u8]) -> Result<(&[u8], &[u8]), ProtocolError> {
    let quote = match line {
        [quote @ (b'"' | b'\''), ..] => *quote,
        _ => {
            let is_end = |byte: &u8| matches!(byte, b' ' | b'\t');
            let (word, rest) = line.split_at(line.iter().position(is_end).unwrap_or(line.len()));
            let has_quotes = word.iter().any(|byte| matches!(byte, b'"' | b'\''));
            return if has_quotes { Err(ProtocolError::Quotes) } else { Ok((word, rest)) };
        }
    };
    let quoted = &line[1..];
    let end = memchr::memchr(quote, quoted).ok_or(ProtocolError::Quotes)?;
    let (word, rest) = (&quoted[..end], &quoted[end + 1..]);
    if word.contains(&b'\\') {
        return Err(ProtocolError::NoInline);
    }
    match rest {
        [] | [b' ' | b'\t', ..] => Ok((word, rest)),
        _ => Err(ProtocolError::Quotes),
    }
}

/// Returns whether `line` is of HTTP. A page in a browser can send such a line to a server on its
/// own machine, and any commands in the body.
fn is_foreign(line: &[u8]) -> bool {
    let is_header =
        |word: &[u8]| word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"Host:");
    let words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let mut words = words.take(3);
    words.next().is_some_and(is_header)
        || words.nth(1).is_some_and(|word| word.starts_with(b"HTTP/"))
}

impl<'a> CommandWords<'a> {
    fn push(&mut self, word: &'a [u8]) {
        self.words[self.count] = word;
        self.count += 1;
    }
}

impl Default for CommandWords<'_> {
    fn default() -> Self {
        Self { words: [&[]; WORDS_MAX], count: 0 }
    }
}

impl<'a> Deref for CommandWords<'a> {
    type Target = [&'a [u8]];

    fn deref(&self) -> &Self::Target {
        &self.words[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The result of reading `input`: the words of every command, and the error that ended it.
    fn all(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut commands, mut at) = (Vec::new(), 0);
        loop {
            let mut words = CommandWords::default();
            match read(&input[at..], &mut words) {
                Ok(Some(length)) => at += length,
                Ok(None) => return (commands, None),
                Err(error) => return (commands, Some(error)),
            }
            commands.push(words.iter().map(|word| word.to_vec()).collect());
        }
    }

    fn check(input: &[u8], commands: &[&[&[u8]]], error: Option<ProtocolError>) {
        let commands: Vec<Vec<Vec<u8>>> =
            commands.iter().map(|words| words.iter().map(|word| word.to_vec()).collect()).collect();
        assert_eq!(all(input), (commands, error), "{}", input.escape_ascii());
    }

    fn array(words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(word);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn arrays_and_lines_are_commands() {
        check(b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]], None);
        check(b"PING\r\nECHO \thi \n", &[&[b"PING"], &[b"ECHO", b"hi"]], None);
        check(b"*2\r\n$4\r\nECHO\r\n$4\r\n\r\n\0\xff\r\n", &[&[b"ECHO", b"\r\n\0\xff"]], None);
        check(b"*1\r\n$0\r\n\r\n", &[&[b""]], None);
        check("SG.CHECK p é\n".as_bytes(), &[&[b"SG.CHECK", b"p", "é".as_bytes()]], None);
        check(b"ECHO \"a b\"  'c\td\"' \"\"\r\n", &[&[b"ECHO", b"a b", b"c\td\"", b""]], None);
    }

    #[test]
    fn empty_commands_have_no_words() {
        check(b"\r\n\n*0\r\n*-1\r\n*-10\r\nPING\n", &[&[], &[], &[], &[], &[], &[b"PING"]], None);
    }

    #[test]
    fn what_has_not_ended_is_waited_for() {
        let whole = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n";
        for end in 0..whole.len() {
            check(&whole[..end], &[], None);
        }
        check(b"*-", &[], None);
        check(b"PING", &[], None);
    }

    #[test]
    fn what_is_no_command_says_what_was_expected() {
        use ProtocolError::*;
        for (input, error) in [
            (&b"*x\r\n"[..], ArrayLength),
            (b"*\r\n", ArrayLength),
            (b"*1x", ArrayLength),
            (b"*1\rx", ArrayLength),
            (b"*--2", ArrayLength),
            (b"*65\r\n", ArrayLength),
            (b"*1000000000", ArrayLength),
            (b"*1\r\n$-1\r\n", WordLength),
            (b"*1\r\n$+1\r\n", WordLength),
            (b"*1\r\n$4097\r\n", WordLength),
            (b"*1\r\n$1000000000", WordLength),
            (b"*1\r\n*1\r\n", NoBulk(b'*')),
            (b"*1\r\n:1\r\n", NoBulk(b':')),
            (b"*1\r\n$4\r\nPINGxx", Unended),
            (b"*1\r\n$4\r\nPING\rx", Unended),
            (b"ECHO \"a b\r\n", Quotes),
            (b"ECHO \"a\"b\r\n", Quotes),
            (b"ECHO a\"b\"\r\n", Quotes),
            (b"ECHO 'a\r\n", Quotes),
            (b"ECHO \"\\x41\"\r\n", NoInline),
            (b"ECHO a\0\r\n", NoInline),
            (b"\x16\x03\x01", NoInline),
        ] {
            check(input, &[], Some(error));
        }
        let long = [b'x'; WORD_BYTES_MAX];
        check(&long[1..], &[], None);
        check(&long, &[], Some(TooBigInline));
        check(&b"x ".repeat(WORDS_MAX + 1), &[], None);
        check(&[&b"x ".repeat(WORDS_MAX + 1)[..], b"\n"].concat(), &[], Some(TooBigInline));
        let four = array(&vec![long.to_vec(); 4]);
        check(&four, &[], Some(TooBig));
        check(b"*4\r\n$4096", &[], None);
    }

    #[test]
    fn the_message_names_what_was_found_on_one_line() {
        assert_eq!(ProtocolError::NoBulk(b'\n').to_string(), r"expected '$', got '\n'");
    }

    #[test]
    fn lines_of_http_are_another_protocol() {
        for line in [
            &b"POST / HTTP/1.1\r\n"[..],
            b"post x\r\n",
            b"Host: localhost:6379\r\n",
            b"GET /?q='x' HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            check(line, &[], Some(ProtocolError::Foreign));
        }
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..40)
    }

    /// Bytes of commands, or nearly so.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let command = proptest::collection::vec(word(), 0..6).prop_map(|words| array(&words));
        let line = "[a-z .:\"]{0,20}\r?\n".prop_map(String::into_bytes);
        let bytes = proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(&b"*$\r\n-0123456789"[..])],
            0..20,
        );
        proptest::collection::vec(prop_oneof![4 => command, 2 => line, 1 => bytes], 0..5)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(commands in proptest::collection::vec(
            proptest::collection::vec(word(), 0..WORDS_MAX), 0..4,
        )) {
            let bytes: Vec<u8> = commands.iter().flat_map(|words| array(words)).collect();
            prop_assert_eq!(all(&bytes), (commands, None));
        }

        #[test]
        fn however_the_input_is_split_the_same_commands_come_out(
            input in input(),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
            cuts.push(input.len());
            cuts.sort_unstable();
            let (mut commands, mut error, mut begin) = (Vec::new(), None, 0);
            for cut in cuts {
                let mut words = CommandWords::default();
                while error.is_none() {
                    match read(&input[begin..cut], &mut words) {
                        Ok(Some(length)) => begin += length,
                        Ok(None) => break,
                        Err(found) => {
                            error = Some(found);
                            break;
                        }
                    }
                    commands.push(words.iter().map(|word| word.to_vec()).collect());
                }
            }
            prop_assert_eq!((commands, error), all(&input));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = super::super::commands_in(&bytes);
        }
    }
}
