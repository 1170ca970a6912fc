//! Tokens in a file, for a server without a catalog.
//!
//! One token a line; empty lines and lines that begin with `#` are ignored. Every token permits all
//! requests of the listener. Write a new token beside the old one, reload, give the new one to clients,
//! and then remove the old one.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use sluicegate_control::node::SECRET_BYTES_MAX;
use sluicegate_text::private;
use subtle::{Choice, ConstantTimeEq};

use crate::protocol::Wire;

/// Most tokens of a file: one for each client of a small deployment, twice while they are changed. Each
/// request is compared with all of them.
const TOKENS_MAX: usize = 64;

/// Shortest token in bytes: 16 random letters and digits cannot be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Largest file: the most tokens of the greatest length, and as much for comments.
const FILE_BYTES_MAX: u64 = 2 * TOKENS_MAX as u64 * SECRET_BYTES_MAX as u64;

/// SHA-256 of a token.
type TokenHash = [u8; 32];

/// The tokens of one wire.
#[derive(Debug)]
pub(crate) struct TokenFile {
    wire: Wire,
    path: PathBuf,
    hashes: ArcSwap<Vec<TokenHash>>,
    /// The problem with the file when it was last read, which is logged once.
    problem: Mutex<Option<String>>,
}

impl TokenFile {
    /// Reads the tokens of `wire` at `path`.
    ///
    /// # Errors
    /// If the file cannot be read, other users of the machine can read it, or a token is invalid; with
    /// the setting, and the line, but never the token.
    pub(crate) fn load(wire: Wire, path: &Path) -> Result<Self> {
        let hashes = ArcSwap::from_pointee(read(wire, path)?);
        Ok(Self { wire, path: path.to_owned(), hashes, problem: Mutex::default() })
    }

    /// Returns whether `shown` is one of the tokens. The time that this takes depends on their number only.
    pub(crate) fn has(&self, shown: &[u8]) -> bool {
        if shown.len() > SECRET_BYTES_MAX {
            return false;
        }
        let shown = hash(shown);
        let is_one = |found, hash: &TokenHash| found | hash.ct_eq(&shown);
        self.hashes.load().iter().fold(Choice::from(0), is_one).into()
    }

    /// Reads the file again and logs what is new. If it is not valid, the tokens stay as they are.
    pub(crate) fn renew(&self) {
        let read = read(self.wire, &self.path);
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(hashes) if **self.hashes.load() == hashes => *problem = None,
            Ok(hashes) => {
                let (count, wire) = (hashes.len(), self.wire);
                self.hashes.store(hashes.into());
                *problem = None;
                let s = if count == 1 { "" } else { "s" };
                tracing::info!("{wire}.token_file: {count} token{s} loaded");
            }
            Err(error) => {
                let error = format!("{error:#}");
                if problem.as_ref() != Some(&error) {
                    tracing::warn!(
                        "token file: reload failed, keeping the current tokens: {error}"
                    );
                }
                *problem = Some(error);
            }
        }
    }
}

fn read(wire: Wire, path: &Path) -> Result<Vec<TokenHash>> {
    let text = private::read_text(path, FILE_BYTES_MAX)
        .with_context(|| format!("{wire}.token_file: cannot read {}", path.display()))?;
    tokens(&text).with_context(|| format!("{wire}.token_file: {}", path.display()))
}

/// Returns the hashes of the tokens in `text`. An error names a line, and repeats nothing of it.
fn tokens(text: &str) -> Result<Vec<TokenHash>> {
    let mut hashes = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), place + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        ensure!(
            (TOKEN_BYTES_MIN..=SECRET_BYTES_MAX).contains(&line.len()),
            "line {number}: `{}` bytes are outside {TOKEN_BYTES_MIN}..={SECRET_BYTES_MAX}",
            line.len()
        );
        ensure!(
            line.bytes().all(|byte| byte.is_ascii_graphic()),
            "line {number}: expected a token of visible ASCII characters without spaces"
        );
        ensure!(hashes.len() < TOKENS_MAX, "line {number}: expected at most {TOKENS_MAX} tokens");
        hashes.push(hash(line.as_bytes()));
    }
    if hashes.is_empty() {
        bail!("expected 1 to {TOKENS_MAX} tokens, one a line");
    }
    Ok(hashes)
}

fn hash(token: &[u8]) -> TokenHash {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "0123456789abcdef";
    const OTHER: &str = "fedcba9876543210";

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("there is room for a file");
        fs::write(file.path(), text).expect("it can be written");
        file
    }

    fn problem(text: &str) -> String {
        let file = file(text);
        format!("{:#}", TokenFile::load(Wire::Http, file.path()).expect_err("it is not valid"))
    }

    #[test]
    fn every_line_is_a_token_and_comments_are_none() {
        let file = file(&format!("# of the gateway\n{ONE}\n\n  {OTHER}\r\n"));
        let tokens = TokenFile::load(Wire::Http, file.path()).unwrap();
        assert!(tokens.has(ONE.as_bytes()) && tokens.has(OTHER.as_bytes()));
        let long = ONE.repeat(100);
        for other in ["", "# of the gateway", &ONE[1..], &ONE.to_uppercase(), &long] {
            assert!(!tokens.has(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_bad_file_is_named_with_its_setting_and_line_and_without_its_tokens() {
        for (text, words) in [
            (String::new(), "expected 1 to 64 tokens, one a line"),
            ("# none\n".to_owned(), "expected 1 to 64 tokens"),
            ("\nhunter2".to_owned(), "line 2: `7` bytes are outside 16..=256"),
            (format!("hunter2{}", "x".repeat(250)), "line 1: `257` bytes are outside 16..=256"),
            ("hunter2 hunter2 hunter2".to_owned(), "line 1: expected a token of visible ASCII"),
            (format!("{ONE}\n").repeat(65), "line 65: expected at most 64 tokens"),
        ] {
            let problem = problem(&text);
            assert!(problem.starts_with("http.token_file: "), "{problem}");
            assert!(problem.contains(words) && !problem.contains("hunter2"), "{problem}");
        }
        let readable = file(ONE);
        fs::set_permissions(readable.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let error = TokenFile::load(Wire::Rls, readable.path()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("rls.token_file: cannot read "), "{error}");
        assert!(error.contains("mode 0644"), "{error}");
    }

    #[test]
    fn a_changed_file_replaces_the_tokens_and_a_bad_one_does_not() {
        let file = file(ONE);
        let tokens = TokenFile::load(Wire::Http, file.path()).unwrap();
        fs::write(file.path(), OTHER).unwrap();
        tokens.renew();
        assert!(!tokens.has(ONE.as_bytes()) && tokens.has(OTHER.as_bytes()));
        fs::write(file.path(), "short").unwrap();
        tokens.renew();
        assert!(tokens.has(OTHER.as_bytes()));
    }
}
