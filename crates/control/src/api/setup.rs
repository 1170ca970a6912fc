//! The one-time token that the first account is made with.

use std::sync::Mutex;
use std::time::Duration;

use crate::identity::{Secret, SecretKind};

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

    /// How long a token is good for: a quarter of an hour.
    pub const GOOD: Duration = Duration::from_secs(15 * 60);

    /// A new token, to be shown to the person who started the program, and what knows it again; `at` is now,
    /// in milliseconds since 1970.
    pub fn new(at: i64) -> (Secret, Self) {
        let setup = Self::default();
        (setup.renew(at), setup)
    }

    /// A new token in place of the one before.
    pub(super) fn renew(&self, at: i64) -> Secret {
        let secret = Secret::new(SecretKind::Setup);
        let good_ms = i64::try_from(Self::GOOD.as_millis()).expect("it is minutes");
        let token = Some((secret.hash(), at + good_ms));
        *self.token.lock().expect("nothing panics while it is held") = token;
        secret
    }

    /// Whether `shown` is the token, and good.
    pub(super) fn is(&self, shown: &str, at: i64) -> bool {
        let token = self.token.lock().expect("nothing panics while it is held");
        // Hashes are compared: how long that takes tells nothing of the token.
        token.as_ref().is_some_and(|(hash, until)| at < *until && *hash == Secret::hash_of(shown))
    }

    /// Whether there is one that was not used, expired or not.
    pub(super) fn is_pending(&self) -> bool {
        self.token.lock().expect("nothing panics while it is held").is_some()
    }

    /// It was used.
    pub(super) fn end(&self) {
        *self.token.lock().expect("nothing panics while it is held") = None;
    }
}
