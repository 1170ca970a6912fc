//! Output to standard error while a replay runs: its progress, and problems.

use std::cell::RefCell;
use std::io::{IsTerminal, Write, stderr};

use sluicegate_text::{human, terminal};

/// The control sequence of terminals that empties the line of the cursor, and the cursor goes to its beginning.
const EMPTY_LINE: &str = "\r\x1b[K";

/// Most problems that are printed one by one; the rest are only counted, since long lists are not read.
const TOLD_MAX: u64 = 20;

/// The part of an input that has been read, on a line of standard error if that is a terminal, and the number of problems so
/// far.
pub(crate) struct Progress {
    /// The line that the terminal shows; `None`: none is shown.
    shown: Option<RefCell<String>>,
    /// The bytes of the whole input, if that is known.
    bytes: Option<u64>,
    /// The name of the input; `None`: nothing is printed.
    input: Option<String>,
    problems: u64,
}

impl Progress {
    /// Returns the progress of the input called `input`, which has this many bytes, if that is known.
    pub(crate) fn new(input: String, bytes: Option<u64>) -> Self {
        let shown = stderr().is_terminal().then(RefCell::default);
        Self { shown, bytes, input: Some(input), problems: 0 }
    }

    /// Returns a progress for use by a program: nothing is printed.
    pub(crate) fn silent() -> Self {
        Self { shown: None, bytes: None, input: None, problems: 0 }
    }

    /// Shows that `bytes` have been read.
    pub(crate) fn read(&self, bytes: u64) {
        let Some(shown) = &self.shown else { return };
        let line = line(bytes, self.bytes);
        if *shown.borrow() != line {
            print(&format!("{EMPTY_LINE}{line}"));
            shown.replace(line);
        }
    }

    /// Prints that `line` has a problem, unless [`TOLD_MAX`] were printed.
    pub(crate) fn problem(&mut self, line: u64, problem: &str) {
        self.problems += 1;
        if self.problems <= TOLD_MAX
            && let Some(input) = &self.input
        {
            self.print_line(&format!("{input}:{line}: {problem}"));
        }
    }

    /// Removes the line of progress and prints the number of further problems.
    pub(crate) fn finish(&self) {
        self.empty_line();
        if self.problems > TOLD_MAX
            && let Some(input) = &self.input
        {
            let more = sluicegate_text::human::thousands(self.problems - TOLD_MAX);
            self.print_line(&format!("{input}: and {more} more"));
        }
    }

    fn print_line(&self, line: &str) {
        self.empty_line();
        terminal::print_error_line(line);
    }

    /// Removes the line of progress. The next one is shown whatever it says.
    fn empty_line(&self) {
        if let Some(shown) = &self.shown
            && !shown.take().is_empty()
        {
            print(EMPTY_LINE);
        }
    }
}

/// The line that is shown when `read` of `bytes` have been read.
fn line(read: u64, bytes: Option<u64>) -> String {
    const MIB: u64 = 1024 * 1024;
    let read_mib = human::thousands(read / MIB);
    match bytes {
        Some(bytes) if bytes > 0 => {
            let percent = u128::from(read.min(bytes)) * 100 / u128::from(bytes);
            format!("{percent} %: {read_mib} of {} MiB", human::thousands(bytes / MIB))
        }
        _ => format!("{read_mib} MiB"),
    }
}

/// Writes to standard error. An error is ignored: the replay goes on without its progress.
fn print(text: &str) {
    let mut out = stderr().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_says_how_much_is_read() {
        const MIB: u64 = 1024 * 1024;
        assert_eq!(line(1_500 * MIB, Some(2_000 * MIB + 1)), "74 %: 1,500 of 2,000 MiB");
        // A file that grows while it is read.
        assert_eq!(line(3 * MIB, Some(2 * MIB)), "100 %: 3 of 2 MiB");
        assert_eq!(
            line(u64::MAX, Some(u64::MAX)),
            "100 %: 17,592,186,044,415 of 17,592,186,044,415 MiB"
        );
        assert_eq!(line(5 * MIB, None), "5 MiB");
        assert_eq!(line(0, Some(0)), "0 MiB");
    }
}
