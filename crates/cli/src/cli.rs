//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use anyhow::Result;
use clap::{Command, CommandFactory, Parser, Subcommand};
use sluicegate_import::ImportSource;
use sluicegate_replay as replay;
use sluicegate_server::descriptors::Configuration;

use crate::{admin, catalog, client, help, init, policies, serve, shell, whatif};

/// Features of the program, and whether it was built with them.
const FEATURES: [(&str, bool); 4] = [
    ("mysql", cfg!(feature = "mysql")),
    ("oidc", cfg!(feature = "oidc")),
    ("otel", cfg!(feature = "otel")),
    ("postgres", cfg!(feature = "postgres")),
];

/// Text of `--version`; `-V` prints its first line.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let console = match sluicegate_console::IS_BUILT {
        true => "built in",
        false => "none (`make console` builds it)",
    };
    let mut text = format!("{}\nconsole: {console}", env!("CARGO_PKG_VERSION"));
    let absent = FEATURES.iter().filter(|(_, is_built_in)| !is_built_in);
    let absent: Vec<_> = absent.map(|(name, _)| *name).collect();
    if !absent.is_empty() {
        text += &format!("\nnot built in: {} (features of cargo)", absent.join(", "));
    }
    text
});

/// Rate limiter: run a server, query it, and test policies against logs.
#[derive(Debug, Parser)]
#[command(name = "sluicegate", version, long_version = LONG_VERSION.as_str())]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Write a commented configuration and policies to begin with.
    Init(init::InitArgs),
    /// Run a server: HTTP, Redis protocol and gateways.
    #[command(aliases = ["run", "start", "server"])]
    Serve(Box<serve::ServeArgs>),
    #[command(flatten)]
    Client(client::ClientCommand),
    /// Check or print the configuration of a server.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Replay events or an access log against policies, in virtual time.
    Replay(replay::ReplayArgs),
    /// Check, compare and apply policy documents.
    #[command(subcommand)]
    Policies(PoliciesCommand),
    #[command(flatten)]
    Admin(Box<admin::AdminCommand>),
    /// Verify or export the audit of a catalog, directly from its database.
    #[command(subcommand)]
    Audit(catalog::AuditCommand),
    /// Convert configurations of other rate limiters to policies.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Print Redis ACL lines that grant exactly the rights a store needs.
    RedisAcl {
        /// The store's URL, as for `serve --store`.
        #[arg(value_name = "URL", default_value = "redis://127.0.0.1:6379")]
        url: String,
    },
    /// Print a shell completion script.
    Completions(shell::CompletionsArgs),
    /// Write the manual pages to a directory.
    Man(shell::ManArgs),
}

#[derive(Debug, Subcommand)]
enum PoliciesCommand {
    /// Check policies and report errors.
    Check {
        /// A document (YAML or JSON), a directory of them, or `-` for standard input.
        path: PathBuf,
    },
    /// Print policies as records, for programs that do not read documents.
    Compile {
        /// A document (YAML or JSON), a directory of them, or `-` for standard input.
        path: PathBuf,
    },
    /// Print the JSON Schema of policy documents.
    Schema,
    #[command(flatten)]
    Kept(Box<catalog::CatalogPoliciesCommand>),
    /// Compare new policies with the current ones on an access log: which requests would be newly
    /// refused, and which no longer.
    Whatif(Box<whatif::WhatifArgs>),
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    /// Convert a configuration of envoyproxy/ratelimit to policies, for --policies.
    Envoy {
        /// A directory of YAML files, or one file.
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
        /// Print the descriptor tree for --descriptors instead.
        #[arg(long)]
        descriptors: bool,
        /// Merge the descriptors of files that use the same domain.
        #[arg(long)]
        merge_domains: bool,
    },
    /// Convert the rows of a `rate_limiter_info` table to policies.
    RateLimiterInfo(catalog::LimiterInfoArgs),
    /// Convert `limit_req` and `limit_conn` of an nginx configuration to policies.
    Nginx(catalog::ImportFileArgs),
    /// Convert flow rules of Alibaba Sentinel (a JSON array) to policies.
    Sentinel(catalog::ImportFileArgs),
}

/// The command line with groups and examples.
pub(crate) fn command() -> Command {
    help::with_groups(Cli::command())
}

/// Runs the command. The exit code is 1 if the command itself found something wrong.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        CliCommand::Init(args) => init::run(&args),
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Client(command) => client::run(command),
        CliCommand::Config(command) => serve::show(command),
        CliCommand::Replay(args) => replay::run(&args),
        CliCommand::Policies(PoliciesCommand::Check { path }) => policies::check(path),
        CliCommand::Policies(PoliciesCommand::Compile { path }) => policies::compile(path),
        CliCommand::Policies(PoliciesCommand::Schema) => policies::print_schema(),
        CliCommand::Policies(PoliciesCommand::Kept(command)) => catalog::run(&command),
        CliCommand::Policies(PoliciesCommand::Whatif(args)) => whatif::run(&args),
        CliCommand::Admin(command) => admin::run(&command),
        CliCommand::Audit(command) => Ok(catalog::run_audit(&command)),
        CliCommand::Import(ImportCommand::RateLimiterInfo(args)) => {
            catalog::import_limiter_info(&args)
        }
        CliCommand::Import(ImportCommand::Nginx(args)) => {
            catalog::import_file(ImportSource::Nginx, &args)
        }
        CliCommand::Import(ImportCommand::Sentinel(args)) => {
            catalog::import_file(ImportSource::Sentinel, &args)
        }
        CliCommand::Import(ImportCommand::Envoy { path, descriptors, merge_domains }) => {
            policies::print_import(&Configuration { path, merge_domains }, descriptors)
        }
        CliCommand::RedisAcl { url } => policies::print_acl(&url),
        CliCommand::Completions(args) => shell::completions(&args),
        CliCommand::Man(args) => shell::man(&args, command()),
    }
}
