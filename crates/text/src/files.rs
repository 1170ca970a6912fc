//! Files: read up to a bound, hashed, and told apart by what the system says of them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;

/// What changes when a file does: cheap to look at every second. Following links, it also changes
/// when a link is turned to another directory, as Kubernetes does with all files at once.
pub type Fingerprint = Vec<(PathBuf, u64, u64, i64, i64)>;

/// What `files` look like now.
///
/// # Errors
/// If one is not there or cannot be looked at.
pub fn fingerprint(files: Vec<PathBuf>) -> Result<Fingerprint> {
    let of_file = |path: PathBuf| {
        let metadata =
            fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Ok((path, metadata.ino(), metadata.len(), changed.0, changed.1))
    };
    files.into_iter().map(of_file).collect()
}

/// SHA-256 of `texts` with their lengths, in hexadecimal digits.
pub fn hash<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let mut hash = Sha256::new();
    texts.for_each(|text| add(&mut hash, text));
    format!("{:x}", hash.finalize())
}

/// Goes on with `hash`, by a text with its length.
pub fn add(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// The text at `path` (`-` is standard input), of which no more is read than shows that it is too long.
pub fn read(path: &Path) -> Result<String> {
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path)?),
    };
    let mut bytes = Vec::new();
    source.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > DOCUMENT_BYTES_MAX {
        bail!("more than {DOCUMENT_BYTES_MAX} bytes");
    }
    String::from_utf8(bytes).map_err(|error| {
        anyhow!("not a text: byte {} is not UTF-8", error.utf8_error().valid_up_to())
    })
}
