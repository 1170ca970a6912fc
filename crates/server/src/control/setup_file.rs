//! The setup token in a file, for services whose standard error is kept in a log.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_net::file;

use crate::config::CatalogConfig;

/// The problem of a setup token file in a folder that does not exist; the folder may be created before the start.
pub(crate) fn check_setup_file(config: &CatalogConfig) -> Option<String> {
    let folder = file::directory_of(config.setup_token_file.as_deref()?);
    (!folder.is_dir()).then(|| {
        format!(
            "catalog.setup_token_file: the folder {} does not exist; create it before the server starts",
            folder.display()
        )
    })
}

/// The file, which exists while its token is valid and this process runs.
#[derive(Debug)]
pub(super) struct SetupFile {
    path: PathBuf,
    is_written: AtomicBool,
}

impl SetupFile {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, is_written: AtomicBool::new(false) }
    }

    /// Writes `token` and a line break, for the owner of the process only (mode 0600).
    ///
    /// # Errors
    /// If the file cannot be written; there is no new file then.
    pub(super) fn write(&self, token: &str) -> io::Result<()> {
        let beside: OsString = [self.path.as_os_str(), ".new".as_ref()].into_iter().collect();
        file::replace(&self.path, beside.as_ref(), |file| writeln!(file, "{token}"))?;
        self.is_written.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes the file, if this process wrote it.
    pub(super) fn remove(&self) {
        if !self.is_written.swap(false, Ordering::AcqRel) {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let path = self.path.display();
                tracing::warn!("catalog.setup_token_file: cannot remove {path}: {error}");
            }
            _ => {}
        }
    }

    pub(super) fn is_written(&self) -> bool {
        self.is_written.load(Ordering::Acquire)
    }

    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }
}
