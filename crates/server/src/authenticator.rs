//! Authentication of requests: the tokens that callers send, and the apps that the tokens belong to.
//!
//! ```text
//! wire ─▶ ListenerAuth of its address ─▶ Caller: by token, or without one ─▶ app of the request
//!           └▶ CallerError: each wire has its own reply to it
//! ```
//!
//! Without a catalog and a token file there are no tokens, and a token that a caller sends is
//! ignored. With a file, a caller needs one of its tokens. With a catalog, a token that is sent must
//! be valid; whether one is required depends on the address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use sluicegate::{Micros, Request, Verb};
use sluicegate_control::Scope;
use sluicegate_control::catalog::TokenUse;
use sluicegate_control::node::{CachedToken, Tokens};

use crate::config::{Listen, TokensRequired};
use crate::protocol::Wire;
use crate::token_file::TokenFile;
use crate::verbs::{VerbName, Verbs};

/// Maximum number of used tokens that are reported at a time: each is a write to a database, and the
/// writer has more urgent work. The next report comes soon.
const USED_MAX: usize = 100;

/// Authentication on all wires, with the numbers of refusals.
#[derive(Debug)]
pub(crate) struct Authenticator {
    /// The tokens of the catalog. `None`: there is no catalog, and requests name their app themselves.
    registry: Option<TokenRegistry>,
    /// The apps of requests that send no token and name no app, by wire.
    apps: [Option<Arc<str>>; Wire::ALL.len()],
    /// The tokens of files, by wire: without a catalog.
    files: [Option<Arc<TokenFile>>; Wire::ALL.len()],
    /// The verbs that listeners permit, by wire.
    verbs: [Verbs; Wire::ALL.len()],
    refused: [[AtomicU64; REASONS.len()]; Wire::ALL.len()],
}

/// The tokens of the catalog, and the requests that need one.
#[derive(Debug)]
struct TokenRegistry {
    required: TokensRequired,
    tokens: ArcSwap<Tokens>,
    /// Number of times the tokens were set. A token that was looked up in this generation is not looked up again.
    generation: AtomicU64,
    /// Uses of removed tokens that were not reported yet.
    left: Mutex<Vec<TokenUse>>,
}

/// Authentication on one address.
#[derive(Clone, Debug)]
pub(crate) struct ListenerAuth {
    authenticator: Arc<Authenticator>,
    wire: Wire,
    /// Requests without a token are refused.
    requires: bool,
    /// The app of requests that send no token and name no app.
    app: Option<Arc<str>>,
    /// The tokens of a file, one of which a caller needs.
    file: Option<Arc<TokenFile>>,
    verbs: Verbs,
}

/// The author of a request, and what the listener permits.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    identity: Identity,
    verbs: Verbs,
}

#[derive(Clone, Debug)]
enum Identity {
    /// The app that the request names is trusted; this is the app if the request names none.
    Believed(Option<Arc<str>>),
    /// A token, looked up in this generation.
    Token(Arc<CachedToken>, u64),
}

/// The reason why a caller is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallerError {
    /// The request has no token.
    #[error("missing token")]
    Missing,
    /// The token is unknown or revoked.
    #[error("invalid token: unknown or revoked")]
    Unknown,
    /// The token has ended.
    #[error("the token has expired")]
    Expired,
    /// The token lacks this scope.
    #[error("the token lacks the scope `{}`", .0.name())]
    Scope(Scope),
    /// The request names another app than the token's.
    #[error("the token belongs to another app")]
    App,
    /// The request has no app, but with a catalog every policy belongs to apps.
    #[error("{NO_APP}")]
    NoApp,
    /// The listener does not permit the verb.
    #[error("the verb `{}` is not permitted on this address", .0.name())]
    Verb(VerbName),
}

/// The problem of a request without an app, with its solutions.
const NO_APP: &str = "is missing: catalog policies belong to apps; add `?app=NAME` to `/v1/auth`, \
                      send a token in `X-Sluicegate-Token`, or set `http.app`";

/// Names of the reasons in metrics, in the order of [`CallerError::place`].
const REASONS: [&str; 7] = ["missing", "unknown", "expired", "scope", "app", "no_app", "verb"];

impl Authenticator {
    /// Trusts every caller that reaches the server, as without a catalog.
    pub(crate) fn believed() -> Self {
        Self::new(None)
    }

    /// Authenticates by the tokens of a catalog; none is valid until they are [set](Self::set).
    pub(crate) fn by_token(required: TokensRequired) -> Self {
        Self::new(Some(TokenRegistry {
            required,
            tokens: ArcSwap::default(),
            generation: AtomicU64::new(0),
            left: Mutex::default(),
        }))
    }

    fn new(registry: Option<TokenRegistry>) -> Self {
        let (apps, files) = Default::default();
        let verbs = [Verbs::default(); Wire::ALL.len()];
        Self { registry, apps, files, verbs, refused: Default::default() }
    }

    /// Sets the app of requests over `wire` that send no token and name no app.
    pub(crate) fn with_app(mut self, wire: Wire, app: Option<&str>) -> Self {
        self.apps[wire as usize] = app.map(Arc::from);
        self
    }

    /// Requires one of the tokens of `file` on `wire`, if there is a file.
    pub(crate) fn with_token_file(mut self, wire: Wire, file: Option<Arc<TokenFile>>) -> Self {
        self.files[wire as usize] = file;
        self
    }

    /// Permits `verbs`, and no others, on listeners of `wire`.
    pub(crate) fn permitting(mut self, wire: Wire, verbs: Verbs) -> Self {
        self.verbs[wire as usize] = verbs;
        self
    }

    /// Makes `tokens` the only valid tokens. Without a catalog, does nothing.
    pub(crate) fn set(&self, tokens: Arc<Tokens>) {
        let Some(registry) = &self.registry else { return };
        let before = registry.tokens.swap(tokens);
        // After the tokens: a reader of the new number sees the new tokens.
        registry.generation.fetch_add(1, Ordering::Release);
        let tokens = registry.tokens.load();
        let gone = before.used(USED_MAX, |token| tokens.same(token).is_none());
        let mut left = registry.left.lock().unwrap_or_else(PoisonError::into_inner);
        let room = USED_MAX - left.len();
        left.extend(gone.into_iter().take(room));
    }

    /// Returns the uses of tokens since the last call, to within a minute. The next call returns those for which there was no room.
    pub(crate) fn used(&self) -> Vec<TokenUse> {
        let Some(registry) = &self.registry else { return Vec::new() };
        let left =
            std::mem::take(&mut *registry.left.lock().unwrap_or_else(PoisonError::into_inner));
        let room = USED_MAX - left.len();
        left.into_iter().chain(registry.tokens.load().used(room, |_| true)).collect()
    }

    /// Returns the authentication on `address`. An unknown address counts as one that other machines can reach.
    pub(crate) fn listener_auth(
        self: &Arc<Self>,
        wire: Wire,
        address: Option<&Listen>,
    ) -> ListenerAuth {
        let requires = match self.registry.as_ref().map(|registry| registry.required) {
            None | Some(TokensRequired::Never) => false,
            Some(TokensRequired::Always) => true,
            Some(TokensRequired::Remote) => !address.is_some_and(Listen::is_local),
        };
        let app = self.apps[wire as usize].clone();
        let file = self.files[wire as usize].clone();
        let (requires, verbs) = (requires || file.is_some(), self.verbs[wire as usize]);
        ListenerAuth { authenticator: Arc::clone(self), wire, requires, app, file, verbs }
    }

    /// Returns the numbers of refusals on `wire`, by reason.
    pub(crate) fn refused(&self, wire: Wire) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused[wire as usize].iter().map(|count| count.load(Relaxed));
        REASONS.into_iter().zip(counts)
    }
}

impl ListenerAuth {
    /// Returns whether tokens of a catalog are checked.
    pub(crate) fn has_tokens(&self) -> bool {
        self.authenticator.registry.is_some()
    }

    /// Returns whether requests without a token are refused.
    pub(crate) const fn requires(&self) -> bool {
        self.requires
    }

    /// Returns the caller that sends `secret` at the time `at`.
    ///
    /// # Errors
    /// [`CallerError`], also for an invalid token where none is required.
    #[inline]
    pub(crate) fn authenticate(
        &self,
        secret: Option<&[u8]>,
        at: impl FnOnce() -> Micros,
    ) -> Result<Caller, CallerError> {
        if let Some(file) = &self.file {
            let secret = secret.ok_or(CallerError::Missing)?;
            return file.has(secret).then(|| self.believed()).ok_or(CallerError::Unknown);
        }
        let Some(registry) = &self.authenticator.registry else { return Ok(self.believed()) };
        match secret {
            Some(secret) => {
                Ok(Caller { identity: registry.identity(secret, at())?, verbs: self.verbs })
            }
            None if self.requires => Err(CallerError::Missing),
            None => Ok(self.believed()),
        }
    }

    /// Returns a caller without a token, where none is required.
    #[inline]
    pub(crate) fn believed(&self) -> Caller {
        Caller { identity: Identity::Believed(self.app.clone()), verbs: self.verbs }
    }

    /// Checks that `caller` is still valid at the time `at`, without hashing its token again.
    ///
    /// # Errors
    /// [`CallerError`]: the token was revoked, or has ended.
    #[inline]
    pub(crate) fn revalidate(&self, caller: &mut Caller, at: Micros) -> Result<(), CallerError> {
        let (Some(registry), Identity::Token(token, seen)) =
            (&self.authenticator.registry, &mut caller.identity)
        else {
            return Ok(());
        };
        let generation = registry.generation.load(Ordering::Acquire);
        if generation != *seen {
            let tokens = registry.tokens.load();
            *token = Arc::clone(tokens.same(token).ok_or(CallerError::Unknown)?);
            *seen = generation;
        }
        used(token, at)
    }

    /// Counts `refused` and returns it, for the reply.
    pub(crate) fn count_refused(&self, refused: CallerError) -> CallerError {
        self.authenticator.refused[self.wire as usize][refused.place()].fetch_add(1, Relaxed);
        refused
    }
}

impl TokenRegistry {
    fn identity(&self, secret: &[u8], at: Micros) -> Result<Identity, CallerError> {
        // Before the tokens: they are of this generation, or newer.
        let generation = self.generation.load(Ordering::Acquire);
        let tokens = self.tokens.load();
        let token = tokens.of_secret(secret).ok_or(CallerError::Unknown)?;
        used(token, at)?;
        Ok(Identity::Token(Arc::clone(token), generation))
    }
}

/// Marks a token as used at the time `at`, unless it has expired.
#[inline]
fn used(token: &CachedToken, at: Micros) -> Result<(), CallerError> {
    let at_ms = i64::try_from(at.get() / 1_000).unwrap_or(i64::MAX);
    if !token.is_good(at_ms) {
        return Err(CallerError::Expired);
    }
    token.mark(at_ms);
    Ok(())
}

impl Caller {
    /// Checks that the caller has `scope`.
    ///
    /// # Errors
    /// [`CallerError::Scope`].
    #[inline]
    pub(crate) fn may(&self, scope: Scope) -> Result<(), CallerError> {
        match &self.identity {
            Identity::Token(token, _) if !token.may(scope) => Err(CallerError::Scope(scope)),
            _ => Ok(()),
        }
    }

    /// Checks that the listener permits `verb`.
    ///
    /// # Errors
    /// [`CallerError::Verb`].
    #[inline]
    pub(crate) fn permits(&self, verb: VerbName) -> Result<(), CallerError> {
        if self.verbs.has(verb) { Ok(()) } else { Err(CallerError::Verb(verb)) }
    }

    /// A caller without a token, where every verb is permitted.
    #[cfg(test)]
    pub(crate) fn anybody() -> Self {
        Self { identity: Identity::Believed(None), verbs: Verbs::default() }
    }

    /// Returns whether no token of a catalog identifies the caller.
    pub(crate) const fn is_believed(&self) -> bool {
        matches!(self.identity, Identity::Believed(_))
    }

    /// Checks that the caller may send `request`, and sets its app.
    ///
    /// # Errors
    /// [`CallerError::Verb`], [`CallerError::Scope`] and [`CallerError::App`].
    #[inline]
    pub(crate) fn ask<'c>(&'c self, request: &mut Request<'c>) -> Result<(), CallerError> {
        self.ask_for(VerbName::from(&request.verb), request)
    }

    /// Checks `request` as [`ask`](Self::ask) does, where the listener calls its verb `name`.
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask).
    #[inline]
    pub(crate) fn ask_for<'c>(
        &'c self,
        name: VerbName,
        request: &mut Request<'c>,
    ) -> Result<(), CallerError> {
        self.permits(name)?;
        if let Identity::Believed(None) = self.identity {
            return Ok(());
        }
        self.may(scope_of(&request.verb))?;
        request.app = self.app(request.app)?;
        Ok(())
    }

    /// Returns the app of a request that names the app `named`.
    ///
    /// # Errors
    /// [`CallerError::App`].
    #[inline]
    pub(crate) fn app<'a>(
        &'a self,
        named: Option<&'a str>,
    ) -> Result<Option<&'a str>, CallerError> {
        match &self.identity {
            Identity::Believed(app) => Ok(named.or(app.as_deref())),
            Identity::Token(token, _) if named.is_none_or(|named| named == token.app()) => {
                Ok(Some(token.app()))
            }
            Identity::Token(..) => Err(CallerError::App),
        }
    }
}

impl CallerError {
    const fn place(self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Unknown => 1,
            Self::Expired => 2,
            Self::Scope(_) => 3,
            Self::App => 4,
            Self::NoApp => 5,
            Self::Verb(_) => 6,
        }
    }
}

/// The scope that a token needs for `verb`: giving back what others have used needs its own.
pub(crate) const fn scope_of(verb: &Verb) -> Scope {
    match verb {
        Verb::Refund { .. } | Verb::Reset => Scope::Refund,
        Verb::Check { .. }
        | Verb::Reserve { .. }
        | Verb::AtMost { .. }
        | Verb::Peek { .. }
        | Verb::Acquire { .. }
        | Verb::Wait { .. }
        | Verb::Leave { .. }
        | Verb::Renew { .. }
        | Verb::Release { .. } => Scope::Check,
    }
}

#[cfg(test)]
pub(crate) mod tests;
