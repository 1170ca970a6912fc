//! The files that a replay writes: none of them is one that it reads, or the other one.
//!
//! Files are distinguished by device and inode, so that a link does not hide that two are one. Both
//! are created before the replay begins, so that it fails at once if one cannot be written.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::is_dash;

/// The files in use, each with the option that names it.
pub(crate) struct OpenedFiles(Vec<(&'static str, Id)>);

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id(u64, u64);

impl OpenedFiles {
    /// Returns the files that are read: the input, with its name in messages, and the policies. The path `-` is standard
    /// input.
    pub(crate) fn reading(name: &'static str, input: &Path, policies: &Path) -> Self {
        let id = |path: &Path| {
            let path = if is_dash(path) { Path::new("/dev/stdin") } else { path };
            fs::metadata(path).ok().as_ref().and_then(Id::of)
        };
        let files = [(name, input), ("--policies", policies)];
        Self(files.into_iter().filter_map(|(name, path)| Some((name, id(path)?))).collect())
    }

    /// Creates the file that `option` names at `path`; `-` is standard output.
    ///
    /// # Errors
    /// If the file is taken, or those of creating it.
    pub(crate) fn create(&mut self, option: &'static str, path: &Path) -> Result<Box<dyn Write>> {
        let (is_output, shown) = (is_dash(path), path.display());
        let place = if is_output { Path::new("/dev/stdout") } else { path };
        let before = fs::metadata(place).ok().as_ref().and_then(Id::of);
        if let Some((other, _)) = self.0.iter().find(|(_, taken)| Some(*taken) == before) {
            bail!("{option}: {shown} is the same file as {other}");
        }
        if is_output {
            self.0.extend(before.map(|id| (option, id)));
            return Ok(Box::new(io::stdout()));
        }
        let file = File::create(path).with_context(|| format!("{option}: {shown}"))?;
        self.0.extend(file.metadata().ok().as_ref().and_then(Id::of).map(|id| (option, id)));
        Ok(Box::new(file))
    }
}

impl Id {
    /// Returns the id of a regular file; `None` for others, which lose nothing when they are written: `/dev/null`
    /// may be named any number of times.
    fn of(metadata: &Metadata) -> Option<Self> {
        metadata.is_file().then(|| Self(metadata.dev(), metadata.ino()))
    }
}
