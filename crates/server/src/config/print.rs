//! `sluicegate config`: what holds, and what can be said.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::Config;
use crate::say;
use crate::serve::ServeArgs;

/// Ways to look at the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the configuration, if anything is.
    Check(ServeArgs),
    /// Print the configuration that holds (file, environment, command line), without secrets.
    Print(ServeArgs),
    /// Print the JSON Schema of the configuration.
    Schema,
}

pub(crate) fn run(command: &ConfigCommand) -> Result<ExitCode> {
    let text = match command {
        ConfigCommand::Check(args) => {
            args.config()?;
            "no errors\n".to_owned()
        }
        ConfigCommand::Print(args) => toml::to_string(&args.config()?)?,
        ConfigCommand::Schema => {
            serde_json::to_string_pretty(&schemars::schema_for!(Config))? + "\n"
        }
    };
    say::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
