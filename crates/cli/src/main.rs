//! The program `sluicegate`.
//!
//! ```text
//! main ─▶ cli ─┬─▶ serve     a server, and its configuration
//!              ├─▶ client    questions to a running server, and load on it
//!              ├─▶ replay    the same engine in virtual time, over a file (a crate of its own)
//!              ├─▶ whatif    two sets of policies on the traffic of a log
//!              ├─▶ policies  checks and imports that need no server
//!              ├─▶ admin     login, apps, members, tokens and accounts of a catalog
//!              └─▶ catalog   policies of a running server as files; the audit; tables of other rate limiters
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed stream")]

mod admin;
mod catalog;
mod cli;
mod client;
mod exit;
mod help;
mod init;
mod names;
mod policies;
mod serve;
mod shell;
mod whatif;

use std::process::ExitCode;

use clap::FromArgMatches;
use sluicegate_server::log;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if shell::complete(cli::command) {
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    // Other programs have `version` as a command.
    let words = match &words[..] {
        [program, version] if version == "version" => vec![program.clone(), "--version".to_owned()],
        _ => words,
    };
    let matches = match &words[..] {
        [_, version] if version == "--version" => cli::command().try_get_matches_from(&words),
        _ => cli::command().try_get_matches(),
    };
    let matches =
        matches.unwrap_or_else(|error| help::with_tip(error, &words, &cli::command()).exit());
    let parsed = cli::Cli::from_arg_matches(&matches);
    match cli::run(parsed.unwrap_or_else(|error| error.exit())) {
        Ok(code) => code,
        Err(error) => {
            log::end(&error);
            ExitCode::FAILURE
        }
    }
}
