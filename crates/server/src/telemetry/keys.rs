//! The form of keys where operators see them: a hash, unless `admin.keys` says otherwise.
//!
//! A key may be a name, an address or a token. A hash with a secret of the process is the same in
//! `/v1/top` and `/v1/events`, so that a key is recognised, and says nothing to others. Logs, traces and
//! metrics have no keys at all.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use crate::config::KeyFormat;

/// Writes keys for operators.
#[derive(Debug)]
pub(crate) struct KeyWriter {
    format: KeyFormat,
    secret: RandomState,
}

impl KeyWriter {
    pub(crate) fn new(format: KeyFormat) -> Self {
        Self { format, secret: RandomState::new() }
    }

    /// Returns whether the shown form belongs to `key` alone; of hashes nearly so.
    pub(super) fn shows_whole(&self, key: &[u8]) -> bool {
        matches!(self.format, KeyFormat::Hashed) || std::str::from_utf8(key).is_ok()
    }

    /// The form in which operators see `key`.
    pub(super) fn shown<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        match self.format {
            KeyFormat::Hashed => format!("#{:016x}", self.secret.hash_one(key)).into_bytes().into(),
            KeyFormat::Clear => key.into(),
        }
    }
}
