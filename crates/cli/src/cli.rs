//! What can be said on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use sluicegate_replay as replay;
use sluicegate_server::descriptors::Configuration;

use crate::{catalog, client, policies, serve, shell, whatif};

/// A rate limiter with every algorithm that never admits more than the limit.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer requests: over HTTP, from Redis clients, from gateways.
    Serve(serve::ServeArgs),
    #[command(flatten)]
    Client(client::ClientCommand),
    /// Work with the configuration of a server.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Run a file of requests against policies in virtual time.
    Replay(replay::ReplayArgs),
    /// Work with policy documents.
    #[command(subcommand)]
    Policies(PoliciesCommand),
    /// Work with the audit of a catalog, beside its database.
    #[command(subcommand)]
    Audit(catalog::AuditCommand),
    /// Make policies of what others are configured with.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Print the ACL lines of Redis users that may do what a store needs, and nothing else.
    RedisAcl {
        /// The store's URL, as for `serve --store`.
        #[arg(value_name = "URL", default_value = "redis://127.0.0.1:6379")]
        url: String,
    },
    /// Print the script by which a shell completes what is typed.
    Completions(shell::CompletionsArgs),
    /// Write the manual pages into a directory.
    Man(shell::ManArgs),
}

#[derive(Debug, Subcommand)]
enum PoliciesCommand {
    /// Say what is wrong with policies, if anything is.
    Check {
        /// A document (YAML or JSON), a directory of them, or `-` for standard input.
        path: PathBuf,
    },
    /// Print the JSON Schema of policy documents.
    Schema,
    #[command(flatten)]
    Kept(Box<catalog::KeptCommand>),
    /// Compare policies with those of today on the traffic of an access log: who would be refused
    /// that is not today, and the other way round.
    Whatif(Box<whatif::WhatifArgs>),
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    /// Print the policies that a configuration of envoyproxy/ratelimit becomes, for --policies.
    Envoy {
        /// A directory of YAML files, or one file.
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
        /// Print the tree of descriptors that leads to them instead, for --descriptors.
        #[arg(long)]
        descriptors: bool,
        /// Several files may be of one domain, which has the descriptors of all of them.
        #[arg(long)]
        merge_domains: bool,
    },
    /// Print the policies that the rows of a table `rate_limiter_info` become.
    RateLimiterInfo(catalog::LimiterInfoArgs),
}

/// Does what was said; the exit code is 1 where the command itself found something wrong.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Client(command) => client::run(command),
        Command::Config(command) => serve::show(&command),
        Command::Replay(args) => replay::run(&args),
        Command::Policies(PoliciesCommand::Check { path }) => policies::check(path),
        Command::Policies(PoliciesCommand::Schema) => policies::print_schema(),
        Command::Policies(PoliciesCommand::Kept(command)) => catalog::run(&command),
        Command::Policies(PoliciesCommand::Whatif(args)) => whatif::run(&args),
        Command::Audit(command) => Ok(catalog::run_audit(&command)),
        Command::Import(ImportCommand::RateLimiterInfo(args)) => catalog::import(&args),
        Command::Import(ImportCommand::Envoy { path, descriptors, merge_domains }) => {
            policies::print_import(&Configuration { path, merge_domains }, descriptors)
        }
        Command::RedisAcl { url } => policies::print_acl(&url),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
    }
}
