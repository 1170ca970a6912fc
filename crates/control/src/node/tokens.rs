//! Tokens on a node: found by the hash of a secret, marked when they are used.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::access::Scope;
use crate::catalog::{PublishedToken, TokenUse};
use crate::identity::Secret;

/// Longest secret that is hashed, in bytes; ours have 68, and clients must not cause work with long ones.
pub const SECRET_BYTES_MAX: usize = 256;

/// Precision of the time of a token's last use, in milliseconds: a minute, so that a busy token is written
/// seldom.
const MARK_MS: i64 = 60_000;

/// The tokens that are not revoked, by the hashes of their secrets.
#[derive(Debug, Default)]
pub struct Tokens {
    by_hash: HashMap<SecretHash, Arc<CachedToken>>,
}

/// A token of a machine.
pub struct CachedToken {
    published: PublishedToken,
    hash: SecretHash,
    /// The minute since 1970 in which it was last used here; 0: in none.
    used: AtomicI64,
    /// The latest such minute that was reported; 0: none.
    reported: AtomicI64,
}

/// SHA-256 of a secret.
type SecretHash = [u8; 32];

impl Tokens {
    /// Creates the set of these tokens.
    pub(super) fn new(tokens: impl Iterator<Item = Arc<CachedToken>>) -> Self {
        Self { by_hash: tokens.map(|token| (token.hash, token)).collect() }
    }

    /// Returns the token whose secret is `shown`. It may have expired, and its scopes are not checked.
    pub fn of_secret(&self, shown: &[u8]) -> Option<&Arc<CachedToken>> {
        if shown.len() > SECRET_BYTES_MAX {
            return None;
        }
        // Hashes are looked up, so the time that it takes reveals nothing of a token.
        self.by_hash.get(&Secret::digest_of(shown))
    }

    /// Returns the current state of `token`, if it is not revoked. Nothing is hashed.
    pub fn same(&self, token: &CachedToken) -> Option<&Arc<CachedToken>> {
        self.by_hash.get(&token.hash)
    }

    /// Returns the `wanted` tokens that were used since the last report, with the last use of each (give or take a
    /// minute): at most `count_max`, those with the oldest report first. They count as reported then.
    pub fn used(&self, count_max: usize, wanted: impl Fn(&CachedToken) -> bool) -> Vec<TokenUse> {
        let mut news: Vec<_> = self
            .by_hash
            .values()
            .map(|token| (token.reported.load(Relaxed), token.used.load(Relaxed), token))
            .filter(|(reported, used, token)| used > reported && wanted(token))
            .collect();
        news.sort_unstable_by_key(|(reported, ..)| *reported);
        news.truncate(count_max);
        let tell = |(_, used, token): (_, i64, &Arc<CachedToken>)| {
            token.reported.store(used, Relaxed);
            TokenUse { id: token.published.id.clone(), at: used * MARK_MS }
        };
        news.into_iter().map(tell).collect()
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

impl CachedToken {
    /// Creates a token; `None` if its hash is invalid, so that no secret can match it.
    pub(super) fn new(published: PublishedToken) -> Option<Self> {
        let hash = hash(&published.hash)?;
        Some(Self { published, hash, used: AtomicI64::new(0), reported: AtomicI64::new(0) })
    }

    /// Takes over the last use of `before`.
    pub(super) fn in_place_of(self, before: &Self) -> Self {
        let Self { published, hash, used: _, reported: _ } = self;
        let [used, reported] =
            [&before.used, &before.reported].map(|mark| mark.load(Relaxed).into());
        Self { published, hash, used, reported }
    }

    /// Returns the token as it was published.
    pub(super) const fn published(&self) -> &PublishedToken {
        &self.published
    }

    /// Returns the owning app.
    pub fn app(&self) -> &str {
        &self.published.app
    }

    /// Returns the identifier.
    pub fn id(&self) -> &str {
        &self.published.id
    }

    /// Returns whether it has not expired at the time `at` (ms since 1970).
    pub const fn is_good(&self, at: i64) -> bool {
        self.published.expires_at > at
    }

    /// Returns whether it has this scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.published.scopes.contains(&scope)
    }

    /// Records a use at the time `at` (ms since 1970).
    #[inline]
    pub fn mark(&self, at: i64) {
        let minute = at / MARK_MS;
        // Written once a minute, since other requests with the token read it.
        if self.used.load(Relaxed) < minute {
            self.used.store(minute, Relaxed);
        }
    }
}

/// Compares tokens without their last use.
impl PartialEq for CachedToken {
    fn eq(&self, other: &Self) -> bool {
        self.published == other.published
    }
}

impl Debug for CachedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PublishedToken { id, app, .. } = &self.published;
        f.debug_struct("CachedToken").field("id", id).field("app", app).finish_non_exhaustive()
    }
}

/// Parses a hash in hex.
fn hash(hex: &str) -> Option<SecretHash> {
    let digits: &[[u8; 2]] = hex.as_bytes().as_chunks().0;
    let byte = |digits: &[u8; 2]| {
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        u8::try_from(high? * 16 + low?).ok()
    };
    let bytes: Option<Vec<u8>> = digits.iter().map(byte).collect();
    SecretHash::try_from(bytes?).ok().filter(|_| hex.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 30_000_000;

    fn token(secret: &str) -> Arc<CachedToken> {
        let published = PublishedToken {
            id: format!("id-{secret}"),
            app: "shop".to_owned(),
            name: "t".to_owned(),
            hash: Secret::hash_of(secret),
            scopes: vec![Scope::Check],
            expires_at: 10,
            is_revoked: false,
        };
        Arc::new(CachedToken::new(published).expect("it has a hash"))
    }

    #[test]
    fn a_token_is_known_by_its_secret_and_by_nothing_else() {
        let tokens = Tokens::new(["a", "b"].map(token).into_iter());
        let found = tokens.of_secret(b"a").unwrap();
        assert_eq!((found.id(), found.app()), ("id-a", "shop"));
        assert!(Arc::ptr_eq(tokens.same(found).unwrap(), found));
        for other in [&b""[..], b"A", b"a ", Secret::hash_of("a").as_bytes(), &[b'a'; 1_000]] {
            assert!(tokens.of_secret(other).is_none());
        }
        assert!(found.is_good(9) && !found.is_good(10));
        assert!(found.may(Scope::Check) && !found.may(Scope::Refund));
        assert!(!format!("{tokens:?}").contains(&Secret::hash_of("a")));
    }

    #[test]
    fn what_is_no_hash_is_no_token() {
        let hex = Secret::hash_of("a");
        assert_eq!(hash(&hex), Some(Secret::digest_of(b"a")));
        for wrong in
            ["", &hex[1..], &format!("{hex}0"), &format!("{hex}00"), &hex.replace('c', "g")]
        {
            assert_eq!(hash(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn uses_are_told_once_and_nobody_is_forgotten_for_busy_ones() {
        let tokens = Tokens::new(["a", "b", "c"].map(token).into_iter());
        let mark = |secret: &str, minute: i64| {
            tokens
                .of_secret(secret.as_bytes())
                .expect("it is there")
                .mark(minute * MARK_MS + 59_999);
        };
        let all = |_: &CachedToken| true;
        assert_eq!(tokens.used(9, all), []);
        mark("a", MINUTE);
        mark("a", MINUTE - 1);
        assert_eq!(tokens.used(9, all), [TokenUse { id: "id-a".to_owned(), at: MINUTE * MARK_MS }]);
        assert_eq!(tokens.used(9, all), []);
        mark("a", MINUTE + 1);
        mark("b", MINUTE + 1);
        assert_eq!(tokens.used(9, |token| token.id() == "id-c"), []);
        assert_eq!(
            tokens.used(1, all),
            [TokenUse { id: "id-b".to_owned(), at: (MINUTE + 1) * MARK_MS }]
        );
        assert_eq!(
            tokens.used(1, all),
            [TokenUse { id: "id-a".to_owned(), at: (MINUTE + 1) * MARK_MS }]
        );
    }
}
