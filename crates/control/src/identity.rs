//! Identity of people and machines: passwords, secrets, and OpenID Connect.

mod oidc;
mod passwords;
mod secret;

#[cfg(feature = "oidc")]
pub(crate) use oidc::{CallbackParams, CompletedLogin, SignInError};
pub use oidc::{GroupGrant, Oidc, OidcProviderConfig};
pub use passwords::{PASSWORD_CHARS_MIN, Passwords};
pub use secret::{Secret, SecretKind};
