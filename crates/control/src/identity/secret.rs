//! Secrets that are made here: sessions, tokens, the setup token. What is kept of one is its hash.

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// What a secret is for. It begins with that, so that one that is lost is found and known for what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// A person who signed in.
    Session,
    /// A machine.
    Token,
    /// The first person.
    Setup,
    /// A browser that began to sign in elsewhere.
    Login,
}

/// A secret of 256 random bits. It is not shown but where it is given away, and wiped from memory when it
/// is dropped.
#[derive(Clone, Debug)]
pub struct Secret(SecretString);

impl SecretKind {
    /// What secrets of this kind begin with.
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
    /// A new one.
    ///
    /// # Panics
    /// If the system has no randomness, which it has once it has started.
    pub fn new(kind: SecretKind) -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the system has randomness once it has started");
        Self(format!("{}{}", kind.prefix(), hex(&bytes)).into())
    }

    /// What is kept of it: its SHA-256, in hex. It needs no salt: nobody guesses 256 bits.
    pub fn hash(&self) -> String {
        Self::hash_of(self.expose())
    }

    /// What is kept of a secret that somebody shows.
    pub fn hash_of(shown: &str) -> String {
        hex(&Self::digest_of(shown.as_bytes()))
    }

    /// The same in bytes.
    pub fn digest_of(shown: &[u8]) -> [u8; 32] {
        Sha256::digest(shown).into()
    }

    /// The secret, for the one whose it is.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// `bytes` in hex.
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
