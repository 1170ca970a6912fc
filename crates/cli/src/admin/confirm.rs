//! The question before something is deleted.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, Result, bail};
use clap::Args;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 100;

/// Argument of commands that delete something: skips the question.
#[derive(Debug, Args)]
pub(super) struct ConfirmArgs {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
}

impl ConfirmArgs {
    /// Asks whether to `what` (a verb and its object). It is confirmed if this returns.
    ///
    /// # Errors
    /// If the answer is not yes, or standard input is not a terminal.
    pub(super) fn ask(&self, what: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() {
            bail!("to {what} without a terminal, add --yes");
        }
        let mut out = io::stderr().lock();
        write!(out, "{what}? [y/N] ").and_then(|()| out.flush()).context("standard error")?;
        let mut answer = String::new();
        let typed = io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer);
        typed.context("standard input")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => bail!("nothing was changed"),
        }
    }
}
