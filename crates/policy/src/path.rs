//! One spelling for each path, so that a limit cannot be walked around by spelling it differently.
//!
//! | written | is | since |
//! |---|---|---|
//! | `/a?b=/c`, `http://host/a#b` | `/a` | query, fragment, scheme and host are not part of a path |
//! | `/%6fr%C3%A9` | `/oré` | what is encoded is decoded, once |
//! | `/a%3f%25%00` | `/a%3F%25%00` | bytes that are not text, or would end the path, stay encoded |
//! | `/a%2fb`, `/a//b`, `/a/./b` | `/a/b` | servers take these for one another |
//! | `/x/../a`, `/../a` | `/a` | so do they these |
//!
//! The result is the path that nginx makes, and that its servers get. Where servers differ about a `..`, because it is
//! spelled with `%` or stands behind an empty segment or an encoded slash, the path is refused: no honest client sends
//! it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The reason why something is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The text does not begin with `/`.
    Relative,
    /// A `%` without two hexadecimal digits.
    Escape,
    /// A `..` that servers understand in different ways.
    Ambiguous,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relative => "does not begin with `/`",
            Self::Escape => "has a `%` without two hexadecimal digits",
            Self::Ambiguous => "has an ambiguous `..`",
        })
    }
}

impl core::error::Error for PathError {}

/// Returns the path of `target`, from the first line of a request, in its one spelling.
pub fn normal_path(target: &[u8]) -> Result<String, PathError> {
    let mut bytes = path_of(target)?;
    let mut path = Segments::default();
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        match byte {
            b'/' => path.end()?,
            b'%' => {
                let (digits, rest) = bytes.split_at_checked(2).ok_or(PathError::Escape)?;
                bytes = rest;
                path.escaped(decoded(digits).ok_or(PathError::Escape)?)?;
            }
            plain => path.segment.push(*plain),
        }
    }
    path.finish()
}

/// The part of `target` behind the `/` of the path and before its query.
fn path_of(target: &[u8]) -> Result<&[u8], PathError> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
    let target = &target[..end.unwrap_or(target.len())];
    if let Some(path) = target.strip_prefix(b"/") {
        return Ok(path);
    }
    // The form of requests to proxies: `http://host/path`.
    let colon = target.iter().position(|byte| *byte == b':').ok_or(PathError::Relative)?;
    let behind = target[colon..].strip_prefix(b"://").ok_or(PathError::Relative)?;
    let slash = behind.iter().position(|byte| *byte == b'/');
    Ok(slash.map_or(&[], |slash| &behind[slash + 1..]))
}

/// A path while it is read.
#[derive(Default)]
struct Segments {
    ended: Vec<String>,
    /// The one that is being read, decoded.
    segment: Vec<u8>,
    /// The segment is spelled with `%`.
    is_escaped: bool,
    /// There was an empty segment or an encoded slash.
    is_odd: bool,
}

impl Segments {
    fn escaped(&mut self, byte: u8) -> Result<(), PathError> {
        if byte == b'/' {
            self.is_odd = true;
            return self.end();
        }
        self.is_escaped = true;
        self.segment.push(byte);
        Ok(())
    }

    /// A slash.
    fn end(&mut self) -> Result<(), PathError> {
        let segment = core::mem::take(&mut self.segment);
        let is_escaped = core::mem::take(&mut self.is_escaped);
        match &*segment {
            b"" => self.is_odd = true,
            b"." => {}
            b".." if is_escaped || self.is_odd => return Err(PathError::Ambiguous),
            b".." => _ = self.ended.pop(),
            other => self.ended.push(spelled(other)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<String, PathError> {
        let is_folder = matches!(&*self.segment, b"" | b"." | b"..");
        self.end()?;
        let mut path = String::new();
        for segment in &self.ended {
            path.push('/');
            path.push_str(segment);
        }
        if is_folder {
            path.push('/');
        }
        Ok(path)
    }
}

/// Decoded text of a path in the spelling of [`normal_path`]: bytes that are not text, or would end a path, are
/// encoded.
pub fn spelled(decoded: &[u8]) -> String {
    let mut text = String::with_capacity(decoded.len());
    for chunk in decoded.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '%' | '?' | '#' | '\0'..' ' | '\u{7f}' => push_encoded(&mut text, char as u8),
                other => text.push(other),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_encoded(&mut text, *byte));
    }
    text
}

fn push_encoded(text: &mut String, byte: u8) {
    write!(text, "%{byte:02X}").expect("a String takes all text");
}

fn decoded(digits: &[u8]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let &[high, low] = digits else { return None };
    u8::try_from(value(high)? * 16 + value(low)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(target: &str, expected: &str) {
        assert_eq!(normal_path(target.as_bytes()).as_deref(), Ok(expected), "{target}");
    }

    #[test]
    fn every_spelling_of_a_path_is_the_same_path() {
        for spelling in [
            "/orders/7",
            "/orders/7?page=/x/../y",
            "/orders/7#top",
            "//orders///7",
            "/./orders/./7",
            "/x/../orders/7",
            "/../../orders/7",
            "/orders/x/../7",
            "/%6Frders/%37",
            "/%6frders%2f7",
            "http://example.com/orders/7?a",
            "https://[2001:db8::1]:80//orders/7",
        ] {
            check(spelling, "/orders/7");
        }
        for root in ["/", "//", "/.", "/..", "/a/..", "http://example.com", "/?", "http://h?a"] {
            check(root, "/");
        }
    }

    #[test]
    fn the_slash_at_the_end_stays() {
        check("/orders/", "/orders/");
        check("/orders//", "/orders/");
        check("/orders/.", "/orders/");
        check("/orders/7/..", "/orders/");
        check("/orders/%2e", "/orders/");
    }

    #[test]
    fn what_is_encoded_is_decoded_once_and_what_would_end_a_path_never() {
        check("/a%2520b", "/a%2520b");
        check("/a%20b", "/a b");
        check("/caf%C3%A9", "/café");
        check("/caf\u{e9}", "/café");
        check("/a%3fb%23c%25d", "/a%3Fb%23c%25d");
        check("/a%00%0a%7f%ff", "/a%00%0A%7F%FF");
        check("/..a/...", "/..a/...");
    }

    #[test]
    fn a_path_that_servers_understand_differently_is_refused() {
        for target in [
            "/orders/%2e%2e/x",
            "/orders/.%2E",
            "/orders//../x",
            "/orders/..%2fx",
            "/orders/a%2f../..",
            "//..",
        ] {
            assert_eq!(normal_path(target.as_bytes()), Err(PathError::Ambiguous), "{target}");
        }
        for target in ["", "*", "orders", "example.com:443", "mailto:a", "?a"] {
            assert_eq!(normal_path(target.as_bytes()), Err(PathError::Relative), "{target}");
        }
        for target in ["/%", "/%2", "/%zz", "/%+1", "/a%"] {
            assert_eq!(normal_path(target.as_bytes()), Err(PathError::Escape), "{target}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_only_spelling(target in r"/([a-c./?#%]|%2[ef5]|%41|é|\x01){0,20}") {
            if let Ok(path) = normal_path(target.as_bytes()) {
                prop_assert!(path.starts_with('/') && !path.contains(['?', '#']));
                prop_assert!(!path.contains("//") && !path.split('/').any(|s| s == "." || s == ".."));
                prop_assert_eq!(normal_path(path.as_bytes()), Ok(path));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(target in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = normal_path(&target);
        }
    }
}
