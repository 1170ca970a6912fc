//! Passwords: from a file, from standard input, or typed without echo.

use std::io::{self, BufRead, IsTerminal, StdinLock, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use sluicegate_text::{private, terminal};

/// Longest password that is read, in bytes: longer than the server takes.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

/// The source of a password.
#[derive(Debug, Args)]
pub(super) struct PasswordArgs {
    /// File with the password, which other users cannot read. Without it, the password is asked for on a
    /// terminal, else read from standard input.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl PasswordArgs {
    /// The password. A new one is asked for twice on a terminal.
    ///
    /// # Errors
    /// If there is none, or the two differ.
    pub(super) fn read(&self, prompt: &str, is_new: bool) -> Result<String> {
        let stdin = io::stdin();
        let text = match &self.password_file {
            Some(file) => private::read_text(file, PASSWORD_BYTES_MAX)
                .with_context(|| format!("--password-file: cannot read {}", file.display()))?,
            None if stdin.is_terminal() => {
                let typed = ask(prompt)?;
                if is_new && ask("the same again: ")? != typed {
                    bail!("the passwords differ");
                }
                typed
            }
            None => line(stdin.lock())?,
        };
        let password = text.trim_end_matches(['\r', '\n']);
        if password.is_empty() {
            bail!("the password is empty: type it, or set --password-file");
        }
        Ok(password.to_owned())
    }
}

/// Asks on the terminal, which does not show the typed text.
fn ask(prompt: &str) -> Result<String> {
    let _quiet = Quiet::new().context("cannot turn off the echo of the terminal")?;
    let mut out = io::stderr().lock();
    let prompt = terminal::escaped(prompt);
    write!(out, "{prompt}").and_then(|()| out.flush()).context("standard error")?;
    let typed = typed_line(io::stdin().lock());
    // The line break that ends the password was not shown either.
    writeln!(out).ok();
    typed
}

/// A line of the terminal, which ends with it, with Control-D, or with Control-C.
fn typed_line(mut stdin: StdinLock<'_>) -> Result<String> {
    // A terminal hands over at most one line at a time.
    let typed = stdin.fill_buf().context("standard input")?.to_vec();
    stdin.consume(typed.len());
    if typed.contains(&INTERRUPT) {
        bail!("cancelled");
    }
    String::from_utf8(typed).context("standard input: not a text")
}

fn line(from: impl BufRead) -> Result<String> {
    let mut text = String::new();
    from.take(PASSWORD_BYTES_MAX).read_line(&mut text).context("standard input")?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The byte that a terminal sends for Control-C.
const INTERRUPT: u8 = 3;

/// The terminal without echo, until this ends. Control-C ends the line, not the process, which would leave the
/// terminal as it is.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
        quiet.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs no echo.
        tcsetattr(io::stdin(), OptionalActions::Now, &self.before).ok();
    }
}
