//! `sluicegate config`: what holds, and what can be said.

use std::process::ExitCode;

use anyhow::{Context, Result};
use schemars::Schema;
use serde_json::json;

use super::Config;
use super::load::{FILE_SUFFIX, SECRETS};
use crate::say;
use crate::serve::{self, ServeArgs};

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
        ConfigCommand::Schema => serde_json::to_string_pretty(&schema())? + "\n",
    };
    say::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// What a file may say: what the types have, and beside each secret the file that may hold it.
fn schema() -> Schema {
    let mut schema = schemars::schema_for!(Config);
    for path in SECRETS {
        let [section, key] = path else { continue };
        let of_section = schema.pointer(&format!("/properties/{section}/$ref"));
        let of_section = of_section.and_then(|reference| Some(reference.as_str()?.to_owned()));
        let Some(reference) = of_section else { continue };
        let properties = format!("{}/properties", reference.trim_start_matches('#'));
        let properties = schema.pointer_mut(&properties).and_then(|all| all.as_object_mut());
        let Some(properties) = properties else { continue };
        let file = json!({
            "description": format!("A file that holds `{key}`; line breaks at its end do not count."),
            "type": ["string", "null"],
            "default": null,
        });
        properties.insert(format!("{key}{FILE_SUFFIX}"), file);
    }
    schema
}
