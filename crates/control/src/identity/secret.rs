//! Secrets that are created here: sessions, tokens, the setup token. Only the hash of a secret is stored.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// The use of a secret, which its prefix names, so that a lost secret is found and recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// The session of a person who signed in.
    Session,
    /// The token of a machine.
    Token,
    /// The setup token, for the first account.
    Setup,
    /// The cookie of a browser that began to sign in with OpenID Connect.
    Login,
}

/// A secret of 256 random bits. `Debug` does not show it, and it is wiped from memory when it is
/// dropped.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl SecretKind {
    /// Returns the prefix of secrets of this kind.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "sgs_",
            Self::Token => "sgt_",
            Self::Setup => "sgsetup_",
            Self::Login => "sgl_",
        }
    }
}

impl Secret {
    /// Creates a random secret.
    ///
    /// # Panics
    /// If the system has no randomness, which it has once it has started.
    pub fn new(kind: SecretKind) -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has randomness once it has started");
        Self(format!("{}{}", kind.prefix(), hex(&bytes)).into())
    }

    /// Returns what is stored of it: its SHA-256, in hex. It needs no salt: nobody guesses 256 bits.
    pub fn hash(&self) -> String {
        Self::hash_of(self.expose())
    }

    /// Returns the hash of a secret that a client sends, in hex.
    pub fn hash_of(shown: &str) -> String {
        hex(&Self::digest_of(shown.as_bytes()))
    }

    /// Returns the hash of a secret that a client sends, in bytes.
    pub fn digest_of(shown: &[u8]) -> [u8; 32] {
        Sha256::digest(shown).into()
    }

    /// Returns the secret, for its owner.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Returns `bytes` in hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_are_not_shown_and_are_known_by_their_hash() {
        let (one, other) = (Secret::new(SecretKind::Token), Secret::new(SecretKind::Token));
        assert_ne!(one.expose(), other.expose());
        assert_eq!(one.expose().len(), 4 + 64);
        assert!(!format!("{one:?}").contains(one.expose()));
        assert_eq!(one.hash(), Secret::hash_of(one.expose()));
        assert_eq!(
            Secret::hash_of("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
