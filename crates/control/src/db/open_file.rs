//! The file of a SQLite database, with a check that it is still the one that was opened.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Url;
use super::writes::set_moved;
use crate::error::Error;

/// The file of a database. Connections continue with a file that was moved, and what they write is lost.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    id: FileId,
}

/// The device and the number of a file.
type FileId = (u64, u64);

impl OpenFile {
    /// Returns the file of the database at `url`, which was just opened; none if it is in memory, or on a server.
    pub(super) fn of(url: &Url) -> Result<Option<Self>, Error> {
        let Some(path) = url.file() else { return Ok(None) };
        let id =
            id(&path).map_err(|error| Error::Database(format!("{}: {error}", path.display())))?;
        Ok(Some(Self { path, id }))
    }

    /// Checks that the file is still at its path.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let problem = match id(&self.path) {
            Ok(id) if id == self.id => return Ok(()),
            Ok(_) => {
                "another file has taken the place of the open one; restart the server".to_owned()
            }
            Err(error) => {
                format!("the file was moved or removed while it was open ({error}); put it back")
            }
        };
        set_moved();
        Err(Error::Database(format!("{}: {problem}", self.path.display())))
    }
}

fn id(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}
