//! The command line as a client of a running server.
//!
//! ```text
//! check, peek, refund, reset ─▶ ask ─▶ http ─▶ target      one question, one line, an exit status
//! health, status, top, events ─────────┘
//! bench ─▶ many lines (http, resp, rls) ─▶ tally ─▶ report
//! ```

mod ask;
mod bench;
mod health;
pub(crate) mod http;
mod probe;
pub(crate) mod reply;
pub(crate) mod target;
pub(crate) mod tls;
pub(crate) mod token;
pub(crate) mod watch;

use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_text::terminal;

/// Commands for a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    #[command(flatten)]
    Ask(ask::AskCommand),
    /// Check whether a server is ready for traffic. Exit status: 0 ready, else 1.
    Health(health::HealthArgs),
    /// Show whether a server is ready, its policies and its store. Exit status: 0 ready, else 1.
    Status(watch::StatusArgs),
    /// List the keys of a policy that were refused most in the last five to ten minutes.
    Top(watch::TopArgs),
    /// Stream a sample of the decisions as they are made, as JSON lines.
    Events(watch::EventsArgs),
    /// Load a server and measure its decision latency.
    Bench(bench::BenchArgs),
}

/// Runs the command.
pub(crate) fn run(command: ClientCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        ClientCommand::Ask(command) => Ok(runtime.block_on(ask::run(command))),
        ClientCommand::Health(args) => runtime.block_on(health::run(&args)),
        ClientCommand::Status(args) => runtime.block_on(watch::status(&args)),
        ClientCommand::Top(args) => runtime.block_on(watch::top(&args)),
        ClientCommand::Events(args) => runtime.block_on(watch::events(&args)),
        ClientCommand::Bench(args) => bench::run(args, &runtime),
    }
}

/// Runs one future to its end, on a runtime of its own.
pub(crate) fn wait_for<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(what)
}

/// Parses the name of an app.
///
/// # Errors
/// The characters and the length that are permitted.
pub(crate) fn app(text: &str) -> Result<String, String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err("expected 1 to 128 characters of `a-z`, `0-9`, `.`, `_` and `-`".to_owned())
}

/// Reads a whole number of `range`. An error names the range.
pub(crate) fn whole(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> std::result::Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (min, max) = (range.start(), range.end());
        number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
    }
}

/// Prints one line with colours, which reach only a terminal, and not if `NO_COLOR` is set.
pub(crate) fn print_coloured(line: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let printed = writeln!(out, "{line}").and_then(|()| out.flush());
    terminal::unless_closed(printed).context("standard output")
}

/// Prints one line.
pub(crate) fn print_line(line: &str) -> Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 1);
    writeln!(bytes, "{line}")?;
    terminal::print(&bytes).context("standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        assert_eq!(app("shop"), Ok("shop".to_owned()));
        for text in ["", "a/b", "a?b", "Shop", &"x".repeat(129)] {
            assert!(app(text).is_err(), "{text}");
        }
    }
}
