//! `sluicegate config`: what holds, and what can be said.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::serve::{self, ServeArgs};
use crate::{config, say};

/// Ways to look at the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the configuration and the files that it names, if anything is.
    Check(ServeArgs),
    /// Print what is set (by file, environment, command line or default), without secrets.
    Print(ServeArgs),
    /// Print the JSON Schema of the configuration.
    Schema,
}

pub(crate) fn run(command: &ConfigCommand) -> Result<ExitCode> {
    let text = match command {
        ConfigCommand::Check(args) => {
            serve::check(&args.config()?)?;
            "no errors\n".to_owned()
        }
        ConfigCommand::Print(args) => toml::to_string(&args.config()?)?,
        ConfigCommand::Schema => serde_json::to_string_pretty(&config::schema())? + "\n",
    };
    say::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
