//! How people and machines prove who they are.

mod oidc;
mod passwords;
mod secret;

#[cfg(feature = "oidc")]
pub(crate) use oidc::{CallbackParams, CompletedLogin, SignInError};
pub use oidc::{GroupGrant, Oidc, OidcProviderConfig};
pub use passwords::{PASSWORD_CHARS_MIN, Passwords};
pub use secret::{Secret, SecretKind};
