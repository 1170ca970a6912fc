//! The password of the wire.

use std::fmt;

use subtle::ConstantTimeEq;

/// The password that clients must send first.
#[derive(Clone)]
pub(crate) struct Password(Box<[u8]>);

impl Password {
    /// The password `text`; `None` if that is empty.
    pub(crate) fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.as_bytes().into()))
    }

    /// Returns whether `given` is the password. The time that this takes reveals its length at most.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

/// Shows nothing of the password.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_bytes_are_the_password() {
        let password = Password::new("hunter2").unwrap();
        assert!(password.is(b"hunter2"));
        for other in [&b""[..], b"hunter", b"hunter3", b"hunter22"] {
            assert!(!password.is(other));
        }
        assert!(Password::new("").is_none());
        assert_eq!(format!("{password:?}"), "Password");
    }
}
