//! `sluicegate completions` and `sluicegate man`: what shells and `man` know of the command line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use sluicegate_text::terminal;

/// What can be said to `sluicegate completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell.
    shell: Shell,
}

/// What can be said to `sluicegate man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Target directory; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script by which a shell completes what is typed of `command`.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    generate(args.shell, &mut command, name, &mut script);
    terminal::print(&script).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for `command` and one for each of those in it.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<ExitCode> {
    let directory: &Path = &args.directory;
    let cannot = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot)?;
    clap_mangen::generate_to(command, directory).with_context(cannot)?;
    Ok(ExitCode::SUCCESS)
}
