//! `sluicegate completions` and `sluicegate man`: the command line for shells and for `man`.
//!
//! The script of a shell calls this program with [`COMPLETE`] set, which prints the candidates. Names of policies come
//! from a server or from the policy file (`names.rs`).

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};
use sluicegate_text::terminal;

use crate::help;

/// Arguments of `sluicegate completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell.
    shell: Shell,
}

/// Arguments of `sluicegate man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Target directory; created if missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// The variable by which the script of a shell asks for candidates; its value is the name of the shell.
const COMPLETE: &str = "SLUICEGATE_COMPLETE";

/// The program as scripts call it.
const NAME: &str = "sluicegate";

/// zsh runs a file of `fpath` at the first completion; this answers that completion.
const ZSH_FIRST: &str = r#"
if [[ "$funcstack[1]" == "_sluicegate" ]]; then
    _clap_dynamic_completer_sluicegate "$@"
fi
"#;

/// Prints the script by which a shell completes commands, flags and names of policies.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    let shells = Shells::builtins();
    let shell = args.shell.to_string();
    let shell = shells.completer(&shell).with_context(|| format!("no completions for {shell}"))?;
    let mut script = Vec::new();
    shell.write_registration(COMPLETE, NAME, NAME, NAME, &mut script)?;
    if args.shell == Shell::Zsh {
        script.extend(ZSH_FIRST.as_bytes());
    }
    terminal::print(&script).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints candidates for `command` if the script of a shell asks for them, and returns whether it does.
pub(crate) fn complete(command: fn() -> Command) -> bool {
    let here = std::env::current_dir().ok();
    let completer = CompleteEnv::with_factory(command).var(COMPLETE);
    // A shell shows no errors.
    completer.try_complete(std::env::args_os(), here.as_deref()).unwrap_or(true)
}

/// Writes a page for each subcommand of `command`.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<ExitCode> {
    let ManArgs { directory } = args;
    let written = help::write_pages(command, directory);
    written.with_context(|| format!("cannot write to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
