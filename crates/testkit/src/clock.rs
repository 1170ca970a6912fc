//! The wall clock of a server, moved by the test (`clock_shim.c` is the other half).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::process::find;

/// The clock of one server.
#[derive(Debug)]
pub(crate) struct ServerClock {
    file: File,
    /// The environment variables for the start of the server.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

impl ServerClock {
    /// A clock that is right, with its files in `dir`.
    ///
    /// # Errors
    /// [`Error::Missing`] without a C compiler.
    pub(crate) fn new(dir: &Path) -> Result<Self, Error> {
        let (source, shim, path) =
            (dir.join("clock_shim.c"), dir.join("clock_shim.so"), dir.join("clock"));
        fs::write(&source, include_str!("clock_shim.c"))?;
        let compiled = Command::new(find(Path::new("cc"))?)
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .args([&shim, &source])
            .output()?;
        if !compiled.status.success() {
            let log = String::from_utf8_lossy(&compiled.stderr).into_owned();
            return Err(Error::Start { log });
        }
        let file = File::options().create(true).truncate(true).write(true).open(&path)?;
        let environment = vec![("LD_PRELOAD", shim), ("SLUICEGATE_CLOCK_FILE", path)];
        let clock = Self { file, environment };
        clock.set_offset_us(0)?;
        Ok(clock)
    }

    /// Eight bytes within a page, written at once: no reader sees half of them.
    pub(crate) fn set_offset_us(&self, offset_us: i64) -> io::Result<()> {
        self.file.write_all_at(&offset_us.to_ne_bytes(), 0)
    }
}
