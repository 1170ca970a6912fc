//! How people and machines prove who they are.

mod passwords;
mod secret;

pub use passwords::{PASSWORD_CHARS_MIN, Passwords};
pub use secret::{Secret, SecretKind};
