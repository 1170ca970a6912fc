//! The stored login: a file for each server, with the cookie of the session, and never a password.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sluicegate_net::file;
use sluicegate_text::private;

use crate::client::http::encoded;
use crate::client::target::Target;

/// Largest file of a login: two names and a session of some hundred bytes.
const LOGIN_BYTES_MAX: u64 = 16 << 10;

/// A session at one server.
#[derive(Deserialize, Serialize)]
pub(super) struct StoredLogin {
    /// The account that signed in.
    pub(super) account: String,
    /// The cookie of its session: `name=value`.
    pub(super) cookie: String,
}

impl StoredLogin {
    /// The login at `at`, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read it, or it is damaged.
    pub(super) fn load(at: &Target) -> Result<Option<Self>> {
        let Some(path) = path_of(at) else { return Ok(None) };
        let shown = path.display();
        let text = match private::read_text(&path, LOGIN_BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read the login in {shown}"))?,
        };
        let login = serde_json::from_str(&text);
        login.map(Some).with_context(|| {
            format!("{shown} is not a login: run `sluicegate login --name ACCOUNT`")
        })
    }

    /// Stores this login at `at` in place of an earlier one. The file is for its owner only.
    ///
    /// # Errors
    /// If neither `XDG_CONFIG_HOME` nor `HOME` is set, or the file cannot be written.
    pub(super) fn save(&self, at: &Target) -> Result<PathBuf> {
        let Some(path) = path_of(at) else {
            bail!("cannot store the login: set HOME or XDG_CONFIG_HOME");
        };
        let cannot = || format!("cannot store the login in {}", path.display());
        let mut folder = DirBuilder::new();
        folder.recursive(true).mode(0o700);
        folder.create(file::directory_of(&path)).with_context(cannot)?;
        let text = serde_json::to_vec(self).expect("texts are always JSON");
        let beside = beside(&path);
        file::replace(&path, &beside, |file| file.write_all(&text)).with_context(cannot)?;
        Ok(path)
    }

    /// Removes the login at `at`. Returns whether there was one.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn remove(at: &Target) -> Result<bool> {
        let Some(path) = path_of(at) else { return Ok(false) };
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
        }
    }
}

/// The path at which the new file for `path` is written, in the same directory. Two commands at once have files of
/// their own.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    name.into()
}

/// The file of the login at `at`; none: there is no home directory.
fn path_of(at: &Target) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|path| Path::new(path).is_absolute());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    let name = format!("{}.json", encoded(&at.to_string()));
    Some(config.join("sluicegate").join("logins").join(name))
}
