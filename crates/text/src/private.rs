//! Files with secrets: keys, passwords, tokens.
//!
//! A file that every user of the machine can read or write keeps no secret, so it is refused. The group
//! may read it: a service often runs as a user of its own in the group that a certificate client, or
//! Kubernetes with `fsGroup`, gives such files to (`0640`, `0440`).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bits of a mode for users that are neither the owner nor in the group.
const OTHERS: u32 = 0o007;

/// Reads the file at `path`, which holds a secret.
///
/// # Errors
/// Those of the system; if others can read or write the file; if it has more than `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => denied(path).unwrap_or(error),
        _ => error,
    })?;
    // Checks the open file: another one may be at the path by now.
    let mode = file.metadata()?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        let problem = format!(
            "mode {mode:04o} gives all users of this machine access to the secret: expected 0600, \
             or 0640 for a group (chmod o= FILE)"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    read_at_most(file, bytes_max)
}

/// The error that this process may not read the file at `path`: it names the owner, and the user that must own it.
/// `None`: the metadata cannot be read, either.
fn denied(path: &Path) -> Option<io::Error> {
    let (file, process) = (fs::metadata(path).ok()?, fs::metadata("/proc/self").ok()?);
    let (mode, owner, user) = (file.mode() & 0o7777, file.uid(), process.uid());
    let problem = format!(
        "the file belongs to user {owner} (mode {mode:04o}) and the process runs as user {user}: give it to that user \
         (chown {user} FILE), or to one of its groups with mode 0640"
    );
    Some(io::Error::new(io::ErrorKind::PermissionDenied, problem))
}

/// Reads the text in the file at `path`, which holds a secret.
///
/// # Errors
/// Those of [`read`]; if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    // The error does not repeat the bytes: they are a secret.
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "expected UTF-8");
    String::from_utf8(read(path, bytes_max)?).map_err(not_text)
}

/// Reads all of `file`.
///
/// # Errors
/// Those of the system; if it has more than `bytes_max` bytes.
pub fn read_at_most(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let problem = format!("more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_of_another_user_is_named_with_its_owner_and_the_one_who_asks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owner = file.as_file().metadata().unwrap().uid();
        let problem = denied(file.path()).expect("it can be looked at").to_string();
        let begin = format!(
            "the file belongs to user {owner} (mode 0600) and the process runs as user {owner}: "
        );
        assert!(problem.starts_with(&begin), "{problem}");
        assert!(problem.contains(&format!("(chown {owner} FILE)")), "{problem}");
        assert!(denied(Path::new("/none/file")).is_none());
    }

    #[test]
    fn a_secret_that_every_user_can_read_or_write_is_refused_with_its_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hunter2").unwrap();
        for (mode, problem) in [
            (0o600, None),
            (0o400, None),
            (0o440, None),
            (0o640, None),
            (0o660, None),
            (0o644, Some("mode 0644 gives all users")),
            (0o604, Some("0604")),
            (0o602, Some("0602")),
            (0o777, Some("0777")),
        ] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            match (read_text(file.path(), 7), problem) {
                (Ok(text), None) => assert_eq!(text, "hunter2"),
                (Err(error), Some(problem)) => {
                    let error = error.to_string();
                    assert!(error.contains(problem) && !error.contains("hunter2"), "{error}");
                }
                (read, _) => panic!("{mode:o}: {read:?}"),
            }
        }
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(file.path(), 6).unwrap_err().to_string().contains("more than 6 bytes"));
    }
}
