//! A sign-in that has begun, and which browser began it.
//!
//! All of it is in a cookie of that browser: when it began and a random secret, with a MAC. State, nonce
//! and verifier are made of those by the same key. So nothing is kept here for whoever only begins, who
//! may be anybody and many; and any node can end what another one began, as the key is made of the
//! client's secret, which all of them have. What is in the address bar (state, nonce, the verifier's
//! hash) tells nothing of the cookie.
//!
//! That a sign-in is used once is not in the cookie: the catalog notes its [`id`](PendingLogin::id) with the
//! session.

use argon2::Argon2;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::identity::secret::hex;
use crate::identity::{OidcProviderConfig, Secret, SecretKind};

/// How long somebody may take at the provider, in milliseconds.
pub(crate) const LOGIN_MS: i64 = 10 * 60 * 1_000;

/// What begins and resumes sign-ins.
pub(super) struct Logins {
    key: [u8; 32],
}

/// A sign-in that has begun. It is not shown: who has it can end it.
pub(super) struct PendingLogin {
    /// What the browser keeps.
    pub(super) cookie: String,
    /// What the provider gives back beside the code.
    pub(super) state: String,
    /// What the ID token has to have.
    pub(super) nonce: String,
    /// What shows the provider that the code is for who began.
    pub(super) verifier: String,
    /// What the catalog knows it by, once it is used.
    pub(super) id: String,
    /// The hash of the session that the browser had.
    pub(super) session: Option<String>,
}

impl Logins {
    /// Those of a client. Its secret may be one that a person chose, and everybody can have a MAC made:
    /// so that it is not guessed by one, the key is as dear to make as the hash of a password.
    pub(super) fn new(config: &OidcProviderConfig) -> Self {
        let salt = Secret::hash_of(&format!("{}|{}", config.issuer, config.client_id));
        let mut key = [0; 32];
        Argon2::default()
            .hash_password_into(config.client_secret.as_bytes(), salt.as_bytes(), &mut key)
            .expect("salt and key are of permitted lengths");
        Self { key }
    }

    /// A new one, of a browser that may have a session.
    pub(super) fn begin(&self, session: Option<&str>, at: i64) -> PendingLogin {
        let (session, secret) = (session.unwrap_or_default(), Secret::new(SecretKind::Login));
        self.login(&format!("{at}.{session}.{}", secret.expose()))
    }

    /// The one of which `cookie` tells and to which `state` belongs, if it has not been too long.
    pub(super) fn resume(&self, cookie: &str, state: &str, at: i64) -> Option<PendingLogin> {
        let (said, _) = cookie.rsplit_once('.')?;
        let login = self.login(said);
        // Hashes are compared: how long that takes tells nothing of what is right.
        let is_own = Secret::hash_of(cookie) == Secret::hash_of(&login.cookie);
        let is_its = Secret::hash_of(state) == Secret::hash_of(&login.state);
        let began = said.split('.').next()?.parse::<i64>().ok()?;
        let is_soon = (began..began.saturating_add(LOGIN_MS)).contains(&at);
        (is_own && is_its && is_soon).then_some(login)
    }

    fn login(&self, said: &str) -> PendingLogin {
        let session = said.split('.').nth(1).filter(|session| !session.is_empty());
        PendingLogin {
            cookie: format!("{said}.{}", self.made("cookie", said)),
            state: self.made("state", said),
            nonce: self.made("nonce", said),
            verifier: self.made("verifier", said),
            id: self.made("id", said),
            session: session.map(str::to_owned),
        }
    }

    /// 64 characters that only who has the key can make, for one use of them.
    fn made(&self, what: &str, said: &str) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of all lengths");
        mac.update(what.as_bytes());
        mac.update(&[0]);
        mac.update(said.as_bytes());
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
        // One that somebody made with another client's secret.
        let forged = self::logins("b").begin(None, 1_000);
        assert!(logins.resume(&forged.cookie, &forged.state, 1_001).is_none());
    }
}
