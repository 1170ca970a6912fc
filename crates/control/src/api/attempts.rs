//! Limits on attempts to sign in, by Sluicegate's own limiter. Only failures count: an attempt is taken before the
//! password is computed, and given back if it was right. A sign-in at a provider also counts when it begins, apart.
//!
//! - A *source* is the address of a client, as text.
//! - A *network* is the sources whose attempts count together: one IPv4 address, or a whole IPv6 network.
//! - A *place* is an account and a network, or an account and a browser that has signed in to it.
//! - A *stranger* is a client whose network and browser the account is not known from. Each attempt is taken as that of
//!   a stranger first.
//!
//! ```text
//! account ─▶ account and network ─▶ network ─▶ account, of strangers ─▶ the password is computed
//!                 │ used up               └──────┴ used up
//!                 └▶ a browser that signed in    └▶ a network that signed in lately, or such a browser
//! ```
//!
//! One network uses up its own part of an account and no more, so guesses from one place do not affect
//! others. Guesses from many places use up the account for strangers; a network or a browser from which the
//! account has signed in lately still gets attempts. So guesses do not lock out an owner who uses one of these.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate::internals::http::{AddressKey, V6Prefix};
use sluicegate::{Clock, Cost, KeyedRateLimiter, Micros, Rate, TokenBucket};

use super::problem::ApiProblem;
use crate::catalog::RecentAddresses;
use sluicegate_policy::finding;

/// Maximum number of keys of each limiter of attempts: beyond, those with the fewest attempts are forgotten.
const KEYS_MAX: usize = 100_000;

/// Attempts on one account from one network, and with one browser that has signed in: a person who
/// mistypes. At once.
const OF_PLACE_AT_ONCE: u64 = 10;

/// Attempts on one account from one network, and with one browser that has signed in, in an hour.
const OF_PLACE_AN_HOUR: u64 = 20;

/// Attempts on one account from all networks that are strangers to it. At once, and in an hour: 1,500 in
/// any day.
const OF_ACCOUNT: u64 = 60;

/// Attempts from one network on all accounts, a minute: the people behind one address.
const OF_SOURCE_A_MINUTE: u64 = 60;

/// Time for which a network or a browser is known after a sign-in, in milliseconds: 30 days.
pub(super) const KNOWN_MS_MAX: i64 = 30 * 24 * 60 * 60 * 1_000;

/// Maximum number of networks that an account is known from, the latest first: home, work, a phone, a train.
/// Each has attempts of its own, so a larger number allows more guesses.
const KNOWN_NETWORKS_MAX: usize = 4;

/// Limiters of sign-in attempts.
#[derive(Debug)]
pub(super) struct Attempts {
    of_place: KeyedRateLimiter<str>,
    of_account: KeyedRateLimiter<str>,
    of_source: KeyedRateLimiter<str>,
    /// OpenID Connect sign-ins that begin here, from one network.
    #[cfg_attr(not(feature = "oidc"), expect(dead_code, reason = "there is no elsewhere"))]
    of_begun: KeyedRateLimiter<str>,
}

/// An attempt that was taken: given back if it is dropped, unless it [failed](Self::failed).
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    taken: Vec<(&'a KeyedRateLimiter<str>, String)>,
    /// `true` if it was taken by `of_known`, for a network or browser from which the account has signed in lately.
    pub(super) is_known: bool,
}

/// A refusal: no attempt is left for this many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedUp {
    seconds: u64,
    /// `true` if the exhausted limit is that of the account from one network.
    pub(super) is_of_place: bool,
}

impl Attempts {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        let hour = Micros::from_secs(3_600);
        let minute = |attempts| limiter(attempts, attempts, Micros::from_secs(60), clock);
        Self {
            of_place: limiter(OF_PLACE_AT_ONCE, OF_PLACE_AN_HOUR, hour, clock),
            of_account: limiter(OF_ACCOUNT, OF_ACCOUNT, hour, clock),
            of_source: minute(OF_SOURCE_A_MINUTE),
            of_begun: minute(OF_SOURCE_A_MINUTE),
        }
    }

    /// Takes an attempt from `source` that names no account.
    pub(super) fn of_source(&self, source: &str) -> Result<Attempt<'_>, UsedUp> {
        Attempt::new().and(&self.of_source, network(source).into_owned())
    }

    /// Counts a sign-in that begins at `source` and continues at the provider. Other sites can have browsers begin
    /// one, so these do not use up attempts at passwords.
    #[cfg(feature = "oidc")]
    pub(super) fn begin(&self, source: &str) -> Result<(), UsedUp> {
        let begun = Attempt::new().and(&self.of_begun, network(source).into_owned())?;
        begun.failed();
        Ok(())
    }

    /// Takes an attempt on `account` from `source`, as a stranger.
    pub(super) fn of_stranger(&self, account: &str, source: &str) -> Result<Attempt<'_>, UsedUp> {
        let network = network(source);
        Attempt::new()
            .and(&self.of_place, place(account, &network))
            .map_err(|used_up| UsedUp { is_of_place: true, ..used_up })?
            .and(&self.of_source, network.into_owned())?
            .and(&self.of_account, account.to_owned())
    }

    /// Takes an attempt where strangers have none left; none unless the account is known from here: by its
    /// network or by `browser`, the hash of a session's secret.
    pub(super) fn of_known(
        &self,
        account: &str,
        source: &str,
        browser: Option<&str>,
        known: &RecentAddresses,
    ) -> Option<Attempt<'_>> {
        let network = network(source);
        let is_known =
            known.networks(self::network).take(KNOWN_NETWORKS_MAX).any(|it| it == network);
        let of_network = is_known.then(|| place(account, &network));
        let of_browser = browser.filter(|browser| known.has_browser(browser));
        let of_browser = of_browser.map(|browser| place(account, browser));
        of_network.into_iter().chain(of_browser).find_map(|place| {
            let mut attempt = Attempt::new().and(&self.of_place, place).ok()?;
            attempt.is_known = true;
            Some(attempt)
        })
    }
}

impl<'a> Attempt<'a> {
    const fn new() -> Self {
        Self { taken: Vec::new(), is_known: false }
    }

    /// Takes one attempt of `key` from `limiter` as well.
    fn and(mut self, limiter: &'a KeyedRateLimiter<str>, key: String) -> Result<Self, UsedUp> {
        let decision = limiter.check(key.as_str(), Cost::ONE);
        if !decision.allowed() {
            let seconds = decision.retry_after().map_or(60, |span| span.ceil_secs().max(1));
            return Err(UsedUp { seconds, is_of_place: false });
        }
        self.taken.push((limiter, key));
        Ok(self)
    }

    /// Counts the attempt, which was wrong.
    pub(super) fn failed(mut self) {
        self.taken.clear();
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        for (limiter, key) in &self.taken {
            limiter.refund(key.as_str(), Cost::ONE);
        }
    }
}

impl From<UsedUp> for ApiProblem {
    fn from(UsedUp { seconds, .. }: UsedUp) -> Self {
        Self::again_in(seconds, finding!("too_many_attempts", "too many attempts"))
    }
}

/// Returns the network whose attempts are counted together: an IPv4 address, or a whole IPv6 network, since
/// one client has all of its addresses.
fn network(source: &str) -> Cow<'_, str> {
    match source.parse() {
        Ok(address) => AddressKey::text_of(address, V6Prefix::default()).into(),
        Err(_) => source.into(),
    }
}

/// Returns the key of an account and a place. The line break separates them, as no account name has one.
fn place(account: &str, from: &str) -> String {
    format!("{account}\n{from}")
}

/// Creates a limiter of `at_once` attempts at once, and `per_span` in each `span`.
pub(super) fn limiter(
    at_once: u64,
    per_span: u64,
    span: Micros,
    clock: &Arc<dyn Clock>,
) -> KeyedRateLimiter<str> {
    let rate = Rate::new(per_span, span);
    let rule = rate.and_then(|rate| TokenBucket::new(rate, at_once));
    let rule = rule.expect("the rate makes sense").into();
    KeyedRateLimiter::with_rules([("attempts", rule)], KEYS_MAX, Arc::clone(clock))
        .expect("a token bucket is served")
}

#[cfg(test)]
mod tests {
    use sluicegate::ManualClock;

    use super::*;

    /// Attempts with their clock.
    fn attempts() -> (Attempts, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let passed_on: Arc<dyn Clock> = clock.clone();
        (Attempts::new(&passed_on), clock)
    }

    #[test]
    fn what_is_right_does_not_count() {
        let (attempts, _) = attempts();
        for _ in 0..1_000 {
            drop(attempts.of_stranger("ada", "192.0.2.1").unwrap());
        }
        for _ in 0..10 {
            attempts.of_stranger("ada", "192.0.2.1").unwrap().failed();
        }
        assert_eq!(
            attempts.of_stranger("ada", "192.0.2.1").unwrap_err(),
            UsedUp { seconds: 180, is_of_place: true }
        );
        assert!(attempts.of_stranger("bob", "192.0.2.1").is_ok());
        assert!(attempts.of_stranger("ada", "192.0.2.2").is_ok());
    }

    #[test]
    fn strangers_guess_an_account_so_often_in_a_day_however_many_they_are() {
        let (attempts, clock) = attempts();
        let mut guesses = 0;
        for second in 0..24 * 60 * 60_u32 {
            for one in 0..4 {
                let source = format!("10.0.{}.{}", second % 256, one);
                if let Ok(guess) = attempts.of_stranger("ada", &source) {
                    guess.failed();
                    guesses += 1;
                }
            }
            clock.advance(Micros::from_secs(1));
        }
        assert_eq!(guesses, 60 + 24 * 60 - 1, "the last comes back when the day is over");
    }

    #[test]
    fn where_strangers_have_used_an_account_up_it_is_known_from_a_network_and_by_a_browser() {
        let (attempts, _) = attempts();
        for one in 0..6 {
            let source = format!("10.0.0.{one}");
            (0..10).for_each(|_| attempts.of_stranger("ada", &source).unwrap().failed());
        }
        assert!(attempts.of_stranger("ada", "192.0.2.1").is_err());
        let session = |hash: &str, source: &str| (hash.to_owned(), source.to_owned());
        let known = RecentAddresses::of(vec![
            session("a", "2001:db8::1"),
            session("b", "2001:db8::2"),
            session("c", "192.0.2.1"),
            session("d", "192.0.2.2"),
            session("e", "192.0.2.3"),
            session("f", "192.0.2.4"),
        ]);
        let is_let_in = |source, browser| {
            attempts.of_known("ada", source, browser, &known).is_some_and(|it| it.is_known)
        };
        for source in ["2001:db8::77", "192.0.2.1", "192.0.2.3"] {
            assert!(is_let_in(source, None), "{source}");
        }
        assert!(!is_let_in("192.0.2.4", None), "four networks are known");
        assert!(!is_let_in("10.0.0.1", None) && !is_let_in("10.0.0.1", Some("x")));
        // After guesses from the same network, the browser still has attempts.
        (0..10).for_each(|_| {
            attempts.of_known("ada", "192.0.2.1", None, &known).unwrap().failed();
        });
        assert!(!is_let_in("192.0.2.1", None) && is_let_in("192.0.2.1", Some("f")));
    }
}
