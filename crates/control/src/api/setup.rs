//! The one-time token to create the first account with.

use std::sync::Mutex;
use std::time::Duration;

use crate::identity::{Secret, SecretKind};

/// The setup token of a catalog without accounts, if there is one: valid once, for [`Setup::GOOD`].
#[derive(Debug, Default)]
pub struct Setup {
    token: Mutex<Option<(String, i64)>>,
}

impl Setup {
    /// Creates a setup without a token, for a catalog with accounts.
    pub fn none() -> Self {
        Self::default()
    }

    /// Validity of a token: a quarter of an hour.
    pub const GOOD: Duration = Duration::from_secs(15 * 60);

    /// Creates a new token, to be shown to the person who started the program, and the setup that recognises it;
    /// `at` is now, in milliseconds since 1970.
    pub fn new(at: i64) -> (Secret, Self) {
        let setup = Self::default();
        (setup.renew(at), setup)
    }

    /// Replaces the token by a new one.
    pub(super) fn renew(&self, at: i64) -> Secret {
        let secret = Secret::new(SecretKind::Setup);
        let good_ms = i64::try_from(Self::GOOD.as_millis()).expect("it is minutes");
        let token = Some((secret.hash(), at + good_ms));
        *self.token.lock().expect("nothing panics while it is held") = token;
        secret
    }

    /// Returns whether `shown` is the token, and still valid.
    pub(super) fn is(&self, shown: &str, at: i64) -> bool {
        let token = self.token.lock().expect("nothing panics while it is held");
        // Hashes are compared, so the time that it takes reveals nothing of the token.
        token.as_ref().is_some_and(|(hash, until)| at < *until && *hash == Secret::hash_of(shown))
    }

    /// Returns whether there is a token that was not used, expired or not.
    pub(super) fn is_pending(&self) -> bool {
        self.token.lock().expect("nothing panics while it is held").is_some()
    }

    /// Removes the token after its use.
    pub(super) fn end(&self) {
        *self.token.lock().expect("nothing panics while it is held") = None;
    }
}
