//! Whose requests are answered: the apps that tokens stand for.
//!
//! ```text
//! wire ─▶ ListenerAuth of its address ─▶ Caller: by token, or without one ─▶ app of the request
//!           └▶ CallerError: which each wire says in its own words
//! ```
//!
//! Without a catalog and a token file there are no tokens, and what a caller shows is ignored. With a
//! file, a caller needs one of its tokens. With a catalog, a token
//! that is shown must be good; whether one has to be shown depends on the address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;
use sluicegate::{Micros, Request, Verb};
use sluicegate_control::Scope;
use sluicegate_control::node::{CachedToken, Tokens};

use crate::config::{Listen, TokensRequired};
use crate::protocol::Wire;
use crate::token_file::TokenFile;
use crate::verbs::{VerbName, Verbs};

/// Most tokens whose use is told of at a time: each is a write to a database, and who writes them has
/// something more urgent to do. Another time comes soon.
const USED_MAX: usize = 100;

/// Who may ask on all wires, and how many were refused.
#[derive(Debug)]
pub(crate) struct Authenticator {
    /// None: there is no catalog, so there are no tokens, and requests say their app.
    known: Option<TokenRegistry>,
    /// The apps of requests that show no token and say no app, by wire.
    apps: [Option<Arc<str>>; Wire::ALL.len()],
    /// The tokens of files, by wire: without a catalog.
    files: [Option<Arc<TokenFile>>; Wire::ALL.len()],
    /// The verbs that listeners permit, by wire.
    verbs: [Verbs; Wire::ALL.len()],
    refused: [[AtomicU64; REASONS.len()]; Wire::ALL.len()],
}

/// The tokens of the catalog, and who has to show one.
#[derive(Debug)]
struct TokenRegistry {
    required: TokensRequired,
    tokens: ArcSwap<Tokens>,
    /// How often they were set: who has looked at them before need not look again.
    generation: AtomicU64,
    /// Uses that were not told of yet, of tokens that are no more.
    left: Mutex<Vec<(String, i64)>>,
}

/// What stands before those who come to one address.
#[derive(Clone, Debug)]
pub(crate) struct ListenerAuth {
    authenticator: Arc<Authenticator>,
    wire: Wire,
    /// Who shows no token does not get in.
    requires: bool,
    /// The app of requests that show no token and say no app.
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
    /// They are believed what app they are; if they do not say, they are this one.
    Believed(Option<Arc<str>>),
    /// They have a token, looked at when it was of this generation.
    Token(Arc<CachedToken>, u64),
}

/// Why somebody is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallerError {
    /// They show no token.
    #[error("missing token")]
    Missing,
    /// What they show is no token, or none any more.
    #[error("invalid token: unknown or revoked")]
    Unknown,
    /// The token has ended.
    #[error("the token has expired")]
    Expired,
    /// It is not for that.
    #[error("the token lacks the scope `{}`", .0.name())]
    Scope(Scope),
    /// They say that they are another app than the token is of.
    #[error("the token belongs to another app")]
    App,
    /// With a catalog every policy has an app, and nothing says which app's request it is.
    #[error("{NO_APP}")]
    NoApp,
    /// The listener does not permit the verb.
    #[error("the verb `{}` is not permitted on this address", .0.name())]
    Verb(VerbName),
}

/// What is to be done about a request without an app.
const NO_APP: &str = "is missing: catalog policies belong to apps; add `?app=NAME` to `/v1/auth`, \
                      send a token in `X-Sluicegate-Token`, or set `http.app`";

/// What refusals are called in metrics.
const REASONS: [&str; 7] = ["missing", "unknown", "expired", "scope", "app", "no_app", "verb"];

impl Authenticator {
    /// Without a catalog: everybody who reaches the server is believed.
    pub(crate) fn believed() -> Self {
        Self::new(None)
    }

    /// By the tokens of a catalog; none is good until they are [set](Self::set).
    pub(crate) fn by_token(required: TokensRequired) -> Self {
        Self::new(Some(TokenRegistry {
            required,
            tokens: ArcSwap::default(),
            generation: AtomicU64::new(0),
            left: Mutex::default(),
        }))
    }

    fn new(known: Option<TokenRegistry>) -> Self {
        let (apps, files) = Default::default();
        let verbs = [Verbs::default(); Wire::ALL.len()];
        Self { known, apps, files, verbs, refused: Default::default() }
    }

    /// The same, where requests over `wire` that show no token and say no app are those of `app`.
    pub(crate) fn with_app(mut self, wire: Wire, app: Option<&str>) -> Self {
        self.apps[wire as usize] = app.map(Arc::from);
        self
    }

    /// The same, where callers on the wire of `file` need one of its tokens.
    pub(crate) fn with_token_file(mut self, wire: Wire, file: Option<Arc<TokenFile>>) -> Self {
        self.files[wire as usize] = file;
        self
    }

    /// The same, where listeners of `wire` permit `verbs`.
    pub(crate) fn permitting(mut self, wire: Wire, verbs: Verbs) -> Self {
        self.verbs[wire as usize] = verbs;
        self
    }

    /// Has these tokens be good, and no others. Without a catalog there are none.
    pub(crate) fn set(&self, tokens: Arc<Tokens>) {
        let Some(known) = &self.known else { return };
        let before = known.tokens.swap(tokens);
        // Behind the tokens: who sees the number sees them.
        known.generation.fetch_add(1, Ordering::Release);
        let tokens = known.tokens.load();
        let gone = before.used(USED_MAX, |token| tokens.same(token).is_none());
        let mut left = known.left.lock().unwrap_or_else(PoisonError::into_inner);
        let room = USED_MAX - left.len();
        left.extend(gone.into_iter().take(room));
    }

    /// Tokens (their ids) that were used since this was last asked, and when (ms since 1970, give or take
    /// a minute). The next time has those for which there was no room.
    pub(crate) fn used(&self) -> Vec<(String, i64)> {
        let Some(known) = &self.known else { return Vec::new() };
        let left = std::mem::take(&mut *known.left.lock().unwrap_or_else(PoisonError::into_inner));
        let room = USED_MAX - left.len();
        left.into_iter().chain(known.tokens.load().used(room, |_| true)).collect()
    }

    /// What stands before `address`. One that nobody knows is one that others can reach.
    pub(crate) fn listener_auth(
        self: &Arc<Self>,
        wire: Wire,
        address: Option<&Listen>,
    ) -> ListenerAuth {
        let requires = match self.known.as_ref().map(|known| known.required) {
            None | Some(TokensRequired::Never) => false,
            Some(TokensRequired::Always) => true,
            Some(TokensRequired::Remote) => !address.is_some_and(Listen::is_local),
        };
        let app = self.apps[wire as usize].clone();
        let file = self.files[wire as usize].clone();
        let (requires, verbs) = (requires || file.is_some(), self.verbs[wire as usize]);
        ListenerAuth { authenticator: Arc::clone(self), wire, requires, app, file, verbs }
    }

    /// How many were refused on `wire`, by reason.
    pub(crate) fn refused(&self, wire: Wire) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.refused[wire as usize].iter().map(|count| count.load(Relaxed));
        REASONS.into_iter().zip(counts)
    }
}

impl ListenerAuth {
    /// Whether there are tokens of a catalog, and what is shown is looked at.
    pub(crate) fn has_tokens(&self) -> bool {
        self.authenticator.known.is_some()
    }

    /// Whether who shows no token does not get in.
    pub(crate) const fn requires(&self) -> bool {
        self.requires
    }

    /// Who shows `secret` at the time `at`.
    ///
    /// # Errors
    /// [`CallerError`]: a token that is not good is not as good as none.
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
        let Some(known) = &self.authenticator.known else { return Ok(self.believed()) };
        match secret {
            Some(secret) => {
                Ok(Caller { identity: known.identity(secret, at())?, verbs: self.verbs })
            }
            None if self.requires => Err(CallerError::Missing),
            None => Ok(self.believed()),
        }
    }

    /// A caller without a token, where none is required.
    #[inline]
    pub(crate) fn believed(&self) -> Caller {
        Caller { identity: Identity::Believed(self.app.clone()), verbs: self.verbs }
    }

    /// Whether `caller` may still ask at the time `at`; nothing is hashed for that.
    ///
    /// # Errors
    /// [`CallerError`]: the token was revoked, or has ended.
    #[inline]
    pub(crate) fn revalidate(&self, caller: &mut Caller, at: Micros) -> Result<(), CallerError> {
        let (Some(known), Identity::Token(token, seen)) =
            (&self.authenticator.known, &mut caller.identity)
        else {
            return Ok(());
        };
        let generation = known.generation.load(Ordering::Acquire);
        if generation != *seen {
            let tokens = known.tokens.load();
            *token = Arc::clone(tokens.same(token).ok_or(CallerError::Unknown)?);
            *seen = generation;
        }
        used(token, at)
    }

    /// Counts `refused`, which is told the caller.
    pub(crate) fn count_refused(&self, refused: CallerError) -> CallerError {
        self.authenticator.refused[self.wire as usize][refused.place()].fetch_add(1, Relaxed);
        refused
    }
}

impl TokenRegistry {
    fn identity(&self, secret: &[u8], at: Micros) -> Result<Identity, CallerError> {
        // Before the tokens: they are of this number, or newer.
        let generation = self.generation.load(Ordering::Acquire);
        let tokens = self.tokens.load();
        let token = tokens.of_secret(secret).ok_or(CallerError::Unknown)?;
        used(token, at)?;
        Ok(Identity::Token(Arc::clone(token), generation))
    }
}

/// Marks a token that is good.
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
    /// Whether they may ask for what `scope` is for.
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

    /// Whether the listener permits `verb`.
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

    /// Whether the caller showed no token.
    pub(crate) const fn is_believed(&self) -> bool {
        matches!(self.identity, Identity::Believed(_))
    }

    /// Whether they may ask for `request`, whose app is known then.
    ///
    /// # Errors
    /// [`CallerError::Verb`], [`CallerError::Scope`] and [`CallerError::App`].
    #[inline]
    pub(crate) fn ask<'c>(&'c self, request: &mut Request<'c>) -> Result<(), CallerError> {
        self.ask_for(VerbName::from(&request.verb), request)
    }

    /// The same where the listener calls the verb of `request` by this name.
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

    /// The app that asks, where the request says that it is `named`.
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

/// What a token must be for to ask for `verb`: giving back what others have used is not for all who ask.
pub(crate) const fn scope_of(verb: &Verb) -> Scope {
    match verb {
        Verb::Refund { .. } | Verb::Reset => Scope::Refund,
        Verb::Check { .. }
        | Verb::Reserve { .. }
        | Verb::AtMost { .. }
        | Verb::Peek { .. }
        | Verb::Acquire { .. }
        | Verb::Renew { .. }
        | Verb::Release { .. } => Scope::Check,
    }
}

#[cfg(test)]
pub(crate) mod tests;
