//! Sign-ins that have begun, each bound to the browser that began it.
//!
//! A sign-in is stored in a cookie of that browser: the time when it began and a random secret, with a MAC. State,
//! nonce and verifier are derived from these with the same key. So the server stores nothing for sign-ins that are
//! only begun, of which a stranger can begin many. Any node can complete a sign-in of another node, as the key is
//! derived from the client's secret, which all nodes have. The values in the address bar (state, nonce, the verifier's
//! hash) reveal nothing of the cookie.
//!
//! The cookie does not ensure that a sign-in is used once: the catalog records its [`id`](PendingLogin::id)
//! with the session.

use argon2::Argon2;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::identity::secret::hex;
use crate::identity::{OidcProviderConfig, Secret, SecretKind};

/// Time after which a sign-in at the provider is refused, in milliseconds.
pub(crate) const LOGIN_MS: i64 = 10 * 60 * 1_000;

/// Begins and resumes sign-ins.
pub(super) struct Logins {
    key: [u8; 32],
}

/// A sign-in that has begun. It has no `Debug`, since its values suffice to complete it.
pub(super) struct PendingLogin {
    /// The cookie for the browser.
    pub(super) cookie: String,
    /// The `state`, which the provider returns with the code.
    pub(super) state: String,
    /// The nonce that the ID token must contain.
    pub(super) nonce: String,
    /// The PKCE verifier, by which the provider knows that the code is for the client that began.
    pub(super) verifier: String,
    /// The id by which the catalog records that the sign-in is used.
    pub(super) id: String,
    /// The hash of the session that the browser had.
    pub(super) session: Option<String>,
}

impl Logins {
    /// Derives the key from the secret of a client. A person may have chosen the secret, and everybody can get a MAC:
    /// so that a MAC does not help to guess it, the key costs as much to derive as the hash of a password.
    pub(super) fn new(config: &OidcProviderConfig) -> Self {
        let salt = Secret::hash_of(&format!("{}|{}", config.issuer, config.client_id));
        let mut key = [0; 32];
        Argon2::default()
            .hash_password_into(config.client_secret.as_bytes(), salt.as_bytes(), &mut key)
            .expect("salt and key are of permitted lengths");
        Self { key }
    }

    /// Begins a sign-in of a browser that may have a session.
    pub(super) fn begin(&self, session: Option<&str>, at: i64) -> PendingLogin {
        let (session, secret) = (session.unwrap_or_default(), Secret::new(SecretKind::Login));
        self.login(&format!("{at}.{session}.{}", secret.expose()))
    }

    /// Resumes the sign-in of `cookie`, if `state` belongs to it and it is not too old.
    pub(super) fn resume(&self, cookie: &str, state: &str, at: i64) -> Option<PendingLogin> {
        let (text, _) = cookie.rsplit_once('.')?;
        let login = self.login(text);
        // Hashes are compared, so the time that it takes reveals nothing of the right ones.
        let is_own = Secret::hash_of(cookie) == Secret::hash_of(&login.cookie);
        let is_its = Secret::hash_of(state) == Secret::hash_of(&login.state);
        let began = text.split('.').next()?.parse::<i64>().ok()?;
        let is_soon = (began..began.saturating_add(LOGIN_MS)).contains(&at);
        (is_own && is_its && is_soon).then_some(login)
    }

    fn login(&self, text: &str) -> PendingLogin {
        let session = text.split('.').nth(1).filter(|session| !session.is_empty());
        PendingLogin {
            cookie: format!("{text}.{}", self.made("cookie", text)),
            state: self.made("state", text),
            nonce: self.made("nonce", text),
            verifier: self.made("verifier", text),
            id: self.made("id", text),
            session: session.map(str::to_owned),
        }
    }

    /// Derives 64 characters from `text` for the use `what`, which nobody can derive without the key.
    fn made(&self, what: &str, text: &str) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of all lengths");
        mac.update(what.as_bytes());
        mac.update(&[0]);
        mac.update(text.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(secret: &str) -> Logins {
        let mut config = super::super::config::example();
        config.client_secret = secret.to_owned();
        Logins::new(&config)
    }

    #[test]
    fn a_sign_in_goes_on_where_it_began_and_on_every_node() {
        let login = logins("a").begin(Some("abc"), 1_000);
        let resumed = logins("a").resume(&login.cookie, &login.state, 1_001).unwrap();
        let parts = |login: &PendingLogin| {
            let PendingLogin { cookie, state, nonce, verifier, id, session: _ } = login;
            [cookie, state, nonce, verifier, id].map(String::clone)
        };
        assert_eq!(parts(&resumed), parts(&login));
        assert_eq!(resumed.session.as_deref(), Some("abc"));
        assert_eq!(logins("a").begin(None, 1).session, None);
        let all = [&login.state, &login.nonce, &login.verifier, &login.id];
        assert!(all.iter().enumerate().all(|(place, one)| !all[..place].contains(one)));
        assert!(all.iter().all(|one| one.len() == 64 && !login.cookie.contains(one.as_str())));
    }

    #[test]
    fn not_with_another_browsers_cookie_nor_with_one_that_was_changed_or_is_old() {
        let logins = logins("a");
        let (one, other) = (logins.begin(None, 1_000), logins.begin(None, 1_000));
        assert_ne!(one.cookie, other.cookie);
        assert!(logins.resume(&other.cookie, &one.state, 1_001).is_none());
        assert!(logins.resume(&one.cookie, "", 1_001).is_none());
        assert!(logins.resume(&one.cookie, &one.state, 999).is_none());
        assert!(logins.resume(&one.cookie, &one.state, 1_000 + LOGIN_MS - 1).is_some());
        assert!(logins.resume(&one.cookie, &one.state, 1_000 + LOGIN_MS).is_none());
        let later = one.cookie.replacen("1000.", "2000.", 1);
        assert!(logins.resume(&later, &one.state, 2_001).is_none());
        for nonsense in ["", ".", "..", "...", "x.y.z.w", "1000", &one.cookie[1..]] {
            assert!(logins.resume(nonsense, &one.state, 1_001).is_none(), "{nonsense}");
        }
        // A sign-in that was forged with another client's secret.
        let forged = self::logins("b").begin(None, 1_000);
        assert!(logins.resume(&forged.cookie, &forged.state, 1_001).is_none());
    }
}
