//! Output to standard error while a replay runs: its progress, and problems.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use sluicegate_text::terminal;

/// Most problems that are printed one by one; the rest are only counted, since long lists are not read.
const TOLD_MAX: u64 = 20;

/// A progress bar, if standard error is a terminal, and the number of problems so far.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The name of the input; `None`: nothing is printed.
    input: Option<String>,
    problems: u64,
}

impl Progress {
    /// Returns the progress of the input called `input`, which has this many bytes, if that is known.
    pub(crate) fn new(input: String, bytes: Option<u64>) -> Self {
        let bar = match bytes {
            _ if !std::io::stderr().is_terminal() => ProgressBar::hidden(),
            Some(bytes) => ProgressBar::new(bytes)
                .with_style(style("{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left")),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {binary_bytes}")),
        };
        Self { bar, input: Some(input), problems: 0 }
    }

    /// Returns a progress for use by a program: nothing is printed.
    pub(crate) fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), input: None, problems: 0 }
    }

    /// Shows that `bytes` have been read.
    pub(crate) fn read(&self, bytes: u64) {
        self.bar.set_position(bytes);
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

    /// Removes the bar and prints the number of further problems.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        if self.problems > TOLD_MAX
            && let Some(input) = &self.input
        {
            let more = sluicegate_text::human::thousands(self.problems - TOLD_MAX);
            self.print_line(&format!("{input}: and {more} more"));
        }
    }

    fn print_line(&self, line: &str) {
        self.bar.suspend(|| terminal::print_error_line(line));
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is one of the two above")
}
