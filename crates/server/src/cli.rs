//! What can be said on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{policies, replay, serve};

/// A rate limiter with every algorithm that never admits more than the limit.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer requests over HTTP.
    Serve {
        /// The policies in force (YAML or JSON); without them every policy is unknown.
        #[arg(long, value_name = "FILE")]
        policies: Option<PathBuf>,
        /// Where to listen; port 0 takes a free one.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Run a file of requests against policies in virtual time.
    Replay(replay::ReplayArgs),
    /// Work with policy documents.
    #[command(subcommand)]
    Policies(PoliciesCommand),
}

#[derive(Debug, Subcommand)]
enum PoliciesCommand {
    /// Say what is wrong with a policy document, if anything is.
    Check {
        /// The document (YAML or JSON), `-` for standard input.
        file: PathBuf,
    },
    /// Print the JSON Schema of policy documents.
    Schema,
}

/// Does what was said; the exit code is 1 where the command itself found something wrong.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Serve { policies, listen } => serve::run(policies.as_deref(), listen),
        Command::Replay(args) => replay::run(&args),
        Command::Policies(PoliciesCommand::Check { file }) => policies::check(&file),
        Command::Policies(PoliciesCommand::Schema) => policies::print_schema(),
    }
}
