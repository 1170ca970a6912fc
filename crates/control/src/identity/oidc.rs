//! Signing in elsewhere: OpenID Connect's authorization code flow with PKCE, of a client with a secret.
//!
//! ```text
//! login    ─▶ Logins::begin    cookie { time, secret, MAC }   redirect { state, nonce, S256(verifier) }
//! provider ─▶ callback { code, state }, with the cookie
//!   ├─ Logins::resume          the cookie is ours and not old, and the state is its own
//!   └─ Provider::person        code and verifier ─▶ ID token ─▶ signature, issuer, audience, time, nonce
//! ```
//!
//! The types of the library that does it stay in `provider`. Without the feature `oidc` there is only
//! what can be configured.

mod config;
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

pub use config::{GroupRole, OidcConfig};
#[cfg(feature = "oidc")]
pub use service::Oidc;
#[cfg(feature = "oidc")]
pub(crate) use service::{Called, Ended, Refused};
