//! The program `sluicegate`, as a library so that its parsers can be tested and fuzzed.
//!
//! ```text
//! main ─▶ cli ─┬─▶ serve     the server: one engine, one folder per wire
//!              ├─▶ client    questions to a running server, and load on it
//!              ├─▶ replay    the same engine in virtual time, over a file
//!              ├─▶ policies  check a document, print its schema
//!              ├─▶ catalog   policies of a running server as files; the audit; the tables of others
//!              └─▶ descriptors  import what others configure
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed stream")]

mod callers;
mod catalog;
mod cli;
mod client;
pub mod config;
mod control;
mod descriptors;
mod eyes;
pub mod fields;
mod files;
mod gate;
mod histogram;
mod log;
mod metrics;
mod policies;
mod private;
mod protocol;
pub mod replay;
mod say;
mod serve;
mod settings;
mod shell;
mod snapshot;
mod store;
mod trace;
pub mod wire;
mod words;
mod workers;

use std::process::ExitCode;

use clap::Parser;

/// Does what the command line says.
#[must_use]
pub fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            log::end(&error);
            ExitCode::FAILURE
        }
    }
}
