//! Sign-in with one provider, as the API uses it.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use axum::http::Uri;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::OidcProviderConfig;
use super::error::SignInError;
use super::login::{LOGIN_MS, Logins};
use super::person::Person;
use super::provider::Provider;
use crate::error::Error;

/// Maximum number of requests that wait for the provider at a time: more people than sign in within a second.
/// Others get [`SignInError::Busy`].
const WAITING_MAX: usize = 64;

/// Maximum time of one wait: for its description, its keys, and an answer about a code.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Longest code or state in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 10;

/// Most characters of an error code that are repeated: twice the longest of RFC 6749.
const CODE_CHARS_MAX: usize = 50;

/// Sign-in with one OpenID Connect provider.
pub struct Oidc {
    config: OidcProviderConfig,
    logins: Logins,
    provider: Provider,
    waiting: Semaphore,
}

/// A sign-in that began.
pub(crate) struct LoginRedirect {
    /// The target of the redirect.
    pub(crate) location: String,
    /// The cookie for the browser.
    pub(crate) cookie: String,
}

/// Parameters with which the provider sends a browser to the callback. Others are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallbackParams {
    code: String,
    state: String,
    error: Option<String>,
    iss: Option<String>,
}

/// A sign-in that was completed.
#[derive(Debug)]
pub(crate) struct CompletedLogin {
    pub(crate) person: Person,
    /// The id by which the catalog records the sign-in, so that it is used once.
    pub(crate) id: String,
    /// The hash of the session that the browser had.
    pub(crate) session: Option<String>,
}

impl Oidc {
    /// Creates the sign-in with the provider of `config`, which is first contacted when a person signs in.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field.
    ///
    /// # Panics
    /// Never: keys are of permitted lengths.
    pub fn new(config: OidcProviderConfig) -> Result<Self, Error> {
        config.check()?;
        let (logins, provider) = (Logins::new(&config), Provider::new(&config)?);
        Ok(Self { config, logins, provider, waiting: Semaphore::new(WAITING_MAX) })
    }

    /// Returns the host of the provider.
    pub fn name(&self) -> String {
        let issuer = self.config.issuer.parse::<Uri>();
        issuer.ok().and_then(|issuer| Some(issuer.host()?.to_owned())).unwrap_or_default()
    }

    pub(crate) const fn config(&self) -> &OidcProviderConfig {
        &self.config
    }

    /// Returns the lifetime of the cookie, in seconds.
    pub(crate) const fn cookie_s() -> i64 {
        LOGIN_MS / 1_000
    }

    /// Begins the sign-in of a browser that may have a session.
    pub(crate) async fn begin(
        &self,
        session: Option<&str>,
        at: i64,
    ) -> Result<LoginRedirect, SignInError> {
        let login = self.logins.begin(session, at);
        let location = self.bounded(self.provider.location(&login, at)).await?;
        Ok(LoginRedirect { location, cookie: login.cookie })
    }

    /// Completes the sign-in of the browser that sends `cookie`.
    pub(crate) async fn end(
        &self,
        cookie: &str,
        called: &CallbackParams,
        at: i64,
    ) -> Result<CompletedLogin, SignInError> {
        let CallbackParams { code, state, error, iss } = called;
        if code.len().max(state.len()) > ANSWER_BYTES_MAX {
            return Err(SignInError::Foreign);
        }
        let login = self.logins.resume(cookie, state, at).ok_or(SignInError::Foreign)?;
        if iss.as_ref().is_some_and(|iss| *iss != self.config.issuer) {
            return Err(SignInError::Unbelievable(
                "the response came from another issuer".to_owned(),
            ));
        }
        if let Some(error) = error {
            // The codes of RFC 6749 are such words.
            let words = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            return Err(SignInError::Told(
                error.chars().filter(words).take(CODE_CHARS_MAX).collect(),
            ));
        }
        let person = self.bounded(self.provider.person(&login, code, at)).await?;
        Ok(CompletedLogin { person, id: login.id, session: login.session })
    }

    /// Awaits `asks`, with few others at a time, and for a limited time.
    async fn bounded<T>(
        &self,
        asks: impl Future<Output = Result<T, SignInError>>,
    ) -> Result<T, SignInError> {
        let _place = self.waiting.try_acquire().map_err(|_| SignInError::Busy)?;
        let late = |_| SignInError::Away("no answer in time".to_owned());
        timeout(WAIT_MAX, asks).await.map_err(late)?
    }
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("config", &self.config).finish_non_exhaustive()
    }
}
