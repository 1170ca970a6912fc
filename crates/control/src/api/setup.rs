//! The one-time token that the first account is made with.

use std::sync::Mutex;

use crate::identity::{Secret, SecretKind};

/// How long the token is good for, in milliseconds: a quarter of an hour.
const GOOD_MS: i64 = 15 * 60 * 1_000;

/// The token, if there is one: of a catalog without accounts, once, for a while.
#[derive(Debug, Default)]
pub struct Setup {
    token: Mutex<Option<(String, i64)>>,
}

impl Setup {
    /// There is none: there are accounts already.
    pub fn none() -> Self {
        Self::default()
    }

    /// A new token, to be shown to who started the program, and what knows it again; `at` is now, in
    /// milliseconds since 1970.
    pub fn new(at: i64) -> (Secret, Self) {
        let secret = Secret::new(SecretKind::Setup);
        let setup = Self { token: Mutex::new(Some((secret.hash(), at + GOOD_MS))) };
        (secret, setup)
    }

    /// Whether `shown` is the token, and good.
    pub(super) fn is(&self, shown: &str, at: i64) -> bool {
        let token = self.token.lock().expect("nothing panics while it is held");
        // Hashes are compared: how long that takes tells nothing of the token.
        token.as_ref().is_some_and(|(hash, until)| at < *until && *hash == Secret::hash_of(shown))
    }

    /// It was used.
    pub(super) fn end(&self) {
        *self.token.lock().expect("nothing panics while it is held") = None;
    }
}
