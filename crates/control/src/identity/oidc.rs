//! Sign-in with OpenID Connect: the authorization code flow with PKCE, of a client with a secret.
//!
//! ```text
//! login    ─▶ Logins::begin    cookie { time, secret, MAC }   redirect { state, nonce, S256(verifier) }
//! provider ─▶ callback { code, state }, with the cookie
//!   ├─ Logins::resume          the cookie is ours and not old, and the state is its own
//!   └─ Provider::person        code and verifier ─▶ ID token ─▶ signature, issuer, audience, time, nonce
//! ```
//!
//! The types of the library stay in `provider`. Without the feature `oidc` there is only the
//! configuration.

mod config;
#[cfg(feature = "oidc")]
mod error;
#[cfg(feature = "oidc")]
mod http;
#[cfg(feature = "oidc")]
mod login;
#[cfg(feature = "oidc")]
mod person;
#[cfg(feature = "oidc")]
mod provider;
#[cfg(feature = "oidc")]
mod service;

pub use config::{GroupGrant, OidcProviderConfig};
#[cfg(feature = "oidc")]
pub(crate) use error::SignInError;
#[cfg(feature = "oidc")]
pub use service::Oidc;
#[cfg(feature = "oidc")]
pub(crate) use service::{CallbackParams, CompletedLogin};

/// Sign-in with OpenID Connect: without the feature `oidc`, no value of this type exists.
#[cfg(not(feature = "oidc"))]
#[derive(Debug)]
pub enum Oidc {}

#[cfg(not(feature = "oidc"))]
impl Oidc {
    /// Fails, since the build has no OpenID Connect.
    ///
    /// # Errors
    /// Always.
    pub fn new(_: OidcProviderConfig) -> Result<Self, crate::Error> {
        Err(crate::Error::invalid(
            "/issuer",
            sluicegate_policy::finding!(
                "no_oidc",
                "OpenID Connect is not built in: build with the feature `oidc`"
            ),
        ))
    }

    /// Cannot be called, since no value exists.
    pub fn name(&self) -> String {
        match *self {}
    }
}
