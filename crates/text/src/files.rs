//! Files: read up to a bound, hashed, and compared by their metadata.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;

/// Metadata that changes when a file does, cheap enough to read every second. It follows links, so it also changes when
/// a link is turned to another directory, as Kubernetes does with all files at once.
pub type Fingerprint = Vec<(PathBuf, u64, u64, i64, i64)>;

/// Returns the current fingerprint of `files`.
///
/// # Errors
/// If one is missing or cannot be read.
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

/// Adds a text and its length to `hash`.
pub fn add(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// Reads the text at `path` (`-` is standard input), and stops as soon as it is too long.
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
    text_of(bytes).map_err(|problem| anyhow!(problem))
}

/// Decodes `bytes` as UTF-8.
///
/// # Errors
/// The encoding that the bytes probably have, and the command that converts them.
pub fn text_of(bytes: Vec<u8>) -> std::result::Result<String, String> {
    let is_wide = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    // A text has no NUL, which is half of every letter of UTF-16.
    let half = bytes.iter().take(WIDE_BYTES).position(|byte| *byte == 0).map(|at| at % 2);
    let wide = match half {
        _ if is_wide => Some("UTF-16"),
        Some(0) => Some("UTF-16BE"),
        Some(_) => Some("UTF-16LE"),
        None => None,
    };
    if let Some(wide) = wide {
        return Err(format!(
            "the file is in UTF-16, expected UTF-8: convert it with `iconv -f {wide} -t UTF-8`"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!(
            "line {line} is not UTF-8: if the file is in Latin-1, convert it with `iconv -f LATIN1 -t UTF-8`"
        )
    })
}

/// Number of bytes at the start of a file in which UTF-16 is recognised.
const WIDE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_another_encoding_is_refused_with_the_command_that_converts_it() {
        let wide = |to_bytes: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> {
            text.encode_utf16().flat_map(to_bytes).collect()
        };
        for (bytes, says) in [
            (wide(u16::to_le_bytes, "\u{feff}policies: []"), "`iconv -f UTF-16 -t UTF-8`"),
            (wide(u16::to_be_bytes, "\u{feff}policies: []"), "`iconv -f UTF-16 -t UTF-8`"),
            (wide(u16::to_le_bytes, "policies: []"), "`iconv -f UTF-16LE -t UTF-8`"),
            (wide(u16::to_be_bytes, "policies: []"), "`iconv -f UTF-16BE -t UTF-8`"),
            (
                b"policies: []\n# caf\xe9\n".to_vec(),
                "line 2 is not UTF-8: if the file is in Latin-1",
            ),
        ] {
            let problem = text_of(bytes).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
        assert_eq!(text_of("\u{feff}caf\u{e9}".into()), Ok("\u{feff}caf\u{e9}".to_owned()));
    }
}
