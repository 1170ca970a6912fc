//! `sluicegate policies check`, `compile` and `schema`, `import envoy`, `redis-acl`: commands that need no server.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sluicegate::Clock;
use sluicegate::internals::WallClock;
use sluicegate::internals::store::redis::{acl, program_acl, sentinel_acl};
use sluicegate::store::redis::RedisConfig;
use sluicegate_policy::PolicySet;
use sluicegate_policy::advice::{Advice, advice};
use sluicegate_server::descriptors::Configuration;
use sluicegate_text::documents::DocumentSource;
use sluicegate_text::terminal;

use crate::exit;

/// Checks the document or directory at `path`, and prints every path at which it is invalid. Warns of policies that
/// clients can avoid.
pub(crate) fn check(path: PathBuf) -> Result<ExitCode> {
    let (shown, is_dir) = (path.display().to_string(), path.is_dir());
    let source = DocumentSource::new(path);
    for folder in source.unread_folders()? {
        terminal::print_error_line(format_args!(
            "note: {}: not checked, because sub-directories are not read",
            terminal::input(&folder)
        ));
    }
    match source.check()? {
        Ok(document) if is_dir && document.policies().is_empty() => {
            bail!("{shown}: no policies: expected *.yaml, *.yml or *.json files in the directory")
        }
        Ok(document) => {
            let policies = PolicySet::new(document);
            let count = policies.len();
            for Advice { policy, text } in advice(&policies, WallClock.now()) {
                terminal::print_error_line(format_args!("warning: policy {policy}: {text}"));
            }
            let noun = if count == 1 { "policy" } else { "policies" };
            let found = format!("{shown}: {count} {noun}, no errors\n");
            terminal::print(found.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => Ok(refuse(&errors)),
    }
}

/// Prints the records of the policies at `path`, or every path at which they are invalid.
pub(crate) fn compile(path: PathBuf) -> Result<ExitCode> {
    match sluicegate_server::records(&DocumentSource::new(path))? {
        Ok(records) => {
            terminal::print(records.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => Ok(refuse(&errors)),
    }
}

/// Prints every path at which a document is not sound.
fn refuse(errors: &[impl Display]) -> ExitCode {
    errors.iter().for_each(|error| terminal::print_error_line(format_args!("{error}")));
    ExitCode::FAILURE
}

/// Prints the JSON Schema of policy documents.
pub(crate) fn print_schema() -> Result<ExitCode> {
    let mut schema = serde_json::to_vec_pretty(&sluicegate_policy::schema::document())?;
    schema.push(b'\n');
    terminal::print(&schema).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// `sluicegate import envoy`: prints the policies, or with `descriptors` the tree that leads to them.
pub(crate) fn print_import(configuration: &Configuration, descriptors: bool) -> Result<ExitCode> {
    let import = configuration.checked_import()?;
    import.notes.iter().for_each(|note| {
        terminal::print_error_line(format_args!("note: {}", terminal::escaped(note)));
    });
    let text = if descriptors { import.descriptors } else { import.policies };
    terminal::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// `sluicegate redis-acl`.
pub(crate) fn print_acl(url: &str) -> Result<ExitCode> {
    let config = match url.parse::<RedisConfig>().context("URL") {
        Ok(config) => config,
        Err(error) => return Ok(exit::invalid(&error)),
    };
    let mut lines = acl(&config) + "\n";
    let program = program_acl(&config);
    lines += &format!("# for programs that decide in Redis themselves:\n{program}\n");
    if let Some(sentinels) = sentinel_acl(&config) {
        lines += &format!("# for the Sentinels:\n{sentinels}\n");
    }
    terminal::print(lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
