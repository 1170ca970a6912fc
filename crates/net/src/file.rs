//! Files that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Writes a file at `beside` and renames it to `path` when it is complete and on the disk: a reader
/// finds the old file or the new one, also after a power failure. Both are in the same directory.
/// The new file is for its owner only (mode 0600).
///
/// # Errors
/// Those of `write` and of the system; the file at `path` is then the old one.
pub fn replace<T>(
    path: &Path,
    beside: &Path,
    write: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<T> {
    let replaced = create(beside).and_then(|mut file| {
        let written = write(&mut file)?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        // The new name is on the disk once the directory is.
        File::open(directory_of(path))?.sync_all()?;
        Ok(written)
    });
    if replaced.is_err() {
        // It may not be there: the error that is returned is the one that matters.
        fs::remove_file(beside).ok();
    }
    replaced
}

/// An empty file for its owner only. What an earlier attempt left there is not reused: it might have
/// been given to others.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The directory that the file at `path` is in.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::{Error, Write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, beside) = (folder.path().join("kept"), folder.path().join("kept.new"));
        replace(&path, &beside, |file| file.write_all(b"first")).expect("it is written");
        let failed = replace(&path, &beside, |file| {
            file.write_all(b"sec")?;
            Err::<(), _>(Error::other("the disk is full"))
        });
        assert_eq!(failed.expect_err("it fails").to_string(), "the disk is full");
        assert_eq!(fs::read(&path).expect("it is there"), b"first");
        assert!(!beside.exists(), "nothing is left behind");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
