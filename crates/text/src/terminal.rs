//! Output for people: the stream, the length of a line, and the characters in it.
//!
//! Nothing here panics when a stream is closed or full, as `println!` would.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use clap::ValueEnum;
use sluicegate::DecideError;

/// Most characters of one piece of input that a message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object on one line.
    Json,
}

/// Writes all of `text` to standard output.
///
/// # Errors
/// Those of writing, but none if the reader has closed the stream.
pub fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    unless_closed(out.write_all(text).and_then(|()| out.flush()))
}

/// Writes `text` to standard error, line by line, without control characters. An error of writing is ignored.
pub fn print_error_line(text: impl Display) {
    write_lines(&mut io::stderr().lock(), &text.to_string()).ok();
}

/// Writes the lines of `text`, each [`escaped`], since names of files and fields may come from others.
fn write_lines(out: &mut impl Write, text: &str) -> io::Result<()> {
    text.lines().try_for_each(|line| writeln!(out, "{}", escaped(line)))
}

/// `written`, except that a stream that its reader has closed is not an error.
///
/// # Errors
/// All other errors.
pub fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A key or a name on one line: control characters are escaped, and a long one is cut.
pub fn one_line(text: &str) -> String {
    let end = text.char_indices().nth(SHOWN_CHARS_MAX);
    let (shown, more) = end.map_or((text, ""), |(end, _)| (&text[..end], "…"));
    escaped(shown) + more
}

/// `text` with its control characters escaped, and also those that reverse or hide text.
pub fn escaped(text: &str) -> String {
    let mut line = String::new();
    for char in text.chars() {
        let hides = matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if char.is_control() || hides {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line
}

/// The name of an input in errors: its path as it was given, or `standard input` for `-`.
pub fn input(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => escaped(&path.to_string_lossy()),
    }
}

/// The error of a request that was not decided, with the names that the caller wrote on one line each.
pub fn decide_error(error: &DecideError) -> String {
    match error {
        DecideError::UnknownPolicy(policy) => {
            DecideError::UnknownPolicy(one_line(policy)).to_string()
        }
        DecideError::Unconfigured { policy, app } => {
            let (policy, app) = (policy.clone(), app.as_deref().map(one_line));
            DecideError::Unconfigured { policy, app }.to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(one_line("a\u{1b}[31mb\n\u{202e}"), "a\\u{1b}[31mb\\n\\u{202e}");
    }

    #[test]
    fn every_line_of_an_error_is_escaped_and_stays_a_line() {
        let mut printed = Vec::new();
        write_lines(&mut printed, "error: a\u{1b}[31m\nb\u{202e}c\n").expect("a vector takes all");
        assert_eq!(String::from_utf8(printed).unwrap(), "error: a\\u{1b}[31m\nb\\u{202e}c\n");
    }

    #[test]
    fn a_long_text_is_cut_and_shows_that_it_was() {
        assert_eq!(one_line(&"é".repeat(100)), "é".repeat(100));
        assert_eq!(one_line(&"é".repeat(101)), "é".repeat(100) + "…");
    }

    #[test]
    fn what_the_caller_wrote_is_on_one_line_of_an_error() {
        let wrote = format!("\u{1b}[2J{}", "x".repeat(60_000));
        let policy = "p".to_owned();
        for error in [
            DecideError::UnknownPolicy(wrote.clone()),
            DecideError::Unconfigured { policy, app: Some(wrote) },
        ] {
            let text = decide_error(&error);
            assert!(text.contains("`\\u{1b}[2Jxxx") && text.ends_with("x…`"), "{text}");
            assert!(text.len() < 200, "{} bytes", text.len());
        }
    }

    #[test]
    fn only_a_closed_stream_is_no_error() {
        assert!(unless_closed(Err(ErrorKind::BrokenPipe.into())).is_ok());
        assert!(unless_closed(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
