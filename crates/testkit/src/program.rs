//! Programs that tests start beside the servers of the kit: gateways, tools that keep running.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, Spec, find, tail};
use crate::{Error, until};

/// A program, with its own folder. Both end when this is dropped.
#[derive(Debug)]
pub struct Program {
    process: Process,
    dir: TempDir,
}

/// The options of a [`Program`].
#[derive(Debug)]
pub struct Launch<'a> {
    /// The files that are first written into its folder: names and texts.
    pub files: &'a [(&'a str, String)],
    /// Its arguments, in which `{dir}` is its folder.
    pub args: &'a [&'a str],
}

impl Program {
    /// Starts `program`: a path, or a name that is searched as a shell would.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed, [`Error::Io`] if its files cannot be written.
    pub fn start(program: &Path, launch: &Launch<'_>) -> Result<Self, Error> {
        let program = find(program)?;
        let dir = TempDir::with_prefix("sluicegate-program-")?;
        let folder = dir.path().display().to_string();
        for (name, text) in launch.files {
            fs::write(dir.path().join(name), text.replace("{dir}", &folder))?;
        }
        let args: Vec<_> = launch.args.iter().map(|arg| arg.replace("{dir}", &folder)).collect();
        // Programs that keep files for their users keep them here.
        let environment = vec![("HOME", dir.path().to_owned())];
        let process = Process::start(&program, &args, Spec { log: log_path(&dir), environment })?;
        Ok(Self { process, dir })
    }

    /// Waits until `ask` returns that the program answers, for `patience` at most.
    ///
    /// # Errors
    /// [`Error::Start`] if it ends before, [`Error::Timeout`] if it does not answer.
    pub async fn ready(
        &mut self,
        patience: Duration,
        mut ask: impl AsyncFnMut() -> bool,
    ) -> Result<(), Error> {
        let (process, log) = (&mut self.process, log_path(&self.dir));
        until("the program answered", patience, async || {
            if process.ended() {
                return Some(Err(Error::Start { log: tail(&log) }));
            }
            ask().await.then_some(Ok(()))
        })
        .await?
    }

    /// The file with its output.
    pub fn log(&self) -> PathBuf {
        log_path(&self.dir)
    }

    /// Freezes it (`SIGSTOP`): its connections stay open, and it does nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended.
    pub fn stop_process(&self) -> Result<(), Error> {
        Ok(self.process.freeze()?)
    }

    /// Lets it go on after [`stop_process`](Self::stop_process).
    ///
    /// # Errors
    /// [`Error::Io`] if it has ended.
    pub fn continue_process(&self) -> Result<(), Error> {
        Ok(self.process.thaw()?)
    }

    /// Ends it at once and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

fn log_path(dir: &TempDir) -> PathBuf {
    dir.path().join("log")
}
