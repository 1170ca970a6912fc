//! Authentication of callers: every token, at every kind of address.

use sluicegate_control::catalog::{PublishedCatalog, PublishedToken};
use sluicegate_control::identity::Secret;
use sluicegate_control::node::CatalogSnapshot;

use super::*;

/// Tokens as a catalog publishes them. Their secrets are their ids.
pub(crate) struct Stage {
    pub(crate) authenticator: Arc<Authenticator>,
    held: CatalogSnapshot,
    revision: i64,
}

/// The expiry of tokens that have not expired.
pub(crate) const END: Micros = Micros::from_secs(4_000_000_000);

impl Stage {
    /// Sets the tokens of app `shop`: `good`, which may do everything on wires, `checks`, `refunds`,
    /// `reads` (policies alone) and `ended`; and of app `other`: `foreign`. `revoked` was revoked.
    pub(crate) fn set(required: TokensRequired) -> Self {
        let authenticator = Arc::new(Authenticator::by_token(required));
        let mut stage = Self { authenticator, held: CatalogSnapshot::default(), revision: 0 };
        let end = ms(END);
        stage.publish([
            token("good", "shop", &[Scope::Check, Scope::Refund], end),
            token("checks", "shop", &[Scope::Check], end),
            token("refunds", "shop", &[Scope::Refund], end),
            token("reads", "shop", &[Scope::PolicyRead], end),
            token("ended", "shop", &[Scope::Check, Scope::Refund], 0),
            token("foreign", "other", &[Scope::Check, Scope::Refund], end),
            token("revoked", "shop", &[Scope::Check, Scope::Refund], end),
        ]);
        stage.revoke("revoked");
        stage
    }

    fn publish(&mut self, tokens: impl Into<Vec<PublishedToken>>) {
        self.revision += 1;
        let (revision, tokens) = (self.revision, tokens.into());
        let news = self.held.apply(PublishedCatalog {
            catalog: String::new(),
            revision,
            policies: vec![],
            tokens,
        });
        self.authenticator.set(news.tokens.expect("there are some"));
    }

    pub(crate) fn revoke(&mut self, id: &str) {
        let token = token(id, "shop", &[Scope::Check], 0);
        self.publish([PublishedToken { is_revoked: true, ..token }]);
    }

    pub(crate) fn listener_auth(&self, wire: Wire, address: &str) -> ListenerAuth {
        self.authenticator.listener_auth(wire, Some(&address.parse().expect("an address")))
    }

    /// The numbers of refusals above 0, by reason.
    pub(crate) fn refused(&self, wire: Wire) -> Vec<(&'static str, u64)> {
        self.authenticator.refused(wire).filter(|(_, count)| *count > 0).collect()
    }
}

/// An address that needs no token.
pub(crate) fn open_listener(wire: Wire) -> ListenerAuth {
    Arc::new(Authenticator::believed()).listener_auth(wire, None)
}

const LOOPBACK: &str = "127.0.0.1:1";
const ELSEWHERE: &str = "0.0.0.0:1";
const NOW: Micros = Micros::from_secs(1_800_000_000);

fn ms(at: Micros) -> i64 {
    i64::try_from(at.get() / 1_000).expect("it is small")
}

fn token(id: &str, app: &str, scopes: &[Scope], expires_at: i64) -> PublishedToken {
    PublishedToken {
        id: id.to_owned(),
        app: app.to_owned(),
        name: id.to_owned(),
        hash: Secret::hash_of(id),
        scopes: scopes.to_vec(),
        expires_at,
        is_revoked: false,
    }
}

/// The app of a request that sends `secret` and names the app `app`.
fn asks(
    listener_auth: &ListenerAuth,
    secret: Option<&str>,
    app: Option<&str>,
) -> Result<Option<String>, CallerError> {
    let caller = listener_auth.authenticate(secret.map(str::as_bytes), || NOW)?;
    caller.may(Scope::Check)?;
    Ok(caller.app(app)?.map(str::to_owned))
}

#[test]
fn a_token_is_required_where_others_can_come_from_unless_it_is_said_otherwise() {
    use TokensRequired::{Always, Never, Remote};
    for (required, address, expected) in [
        (Remote, LOOPBACK, false),
        (Remote, "[::1]:1", false),
        (Remote, "unix:/s", false),
        (Remote, ELSEWHERE, true),
        (Remote, "[::]:1", true),
        (Remote, "10.0.0.1:1", true),
        (Always, LOOPBACK, true),
        (Always, "unix:/s", true),
        (Never, ELSEWHERE, false),
    ] {
        let listener_auth = Stage::set(required).listener_auth(Wire::Http, address);
        assert_eq!(listener_auth.requires(), expected, "{required:?} {address}");
    }
    assert!(Stage::set(Remote).authenticator.listener_auth(Wire::Http, None).requires());
    assert!(!open_listener(Wire::Http).requires());
}

#[test]
fn who_shows_a_token_is_its_app_and_who_shows_none_is_believed_or_refused() {
    let stage = Stage::set(TokensRequired::Remote);
    let listener_auths =
        [LOOPBACK, ELSEWHERE].map(|address| stage.listener_auth(Wire::Http, address));
    for listener_auth in &listener_auths {
        for (secret, app, expected) in [
            ("good", None, Ok("shop")),
            ("good", Some("shop"), Ok("shop")),
            ("good", Some("other"), Err(CallerError::App)),
            ("good", Some(""), Err(CallerError::App)),
            ("foreign", None, Ok("other")),
            ("reads", None, Err(CallerError::Scope(Scope::Check))),
            ("ended", None, Err(CallerError::Expired)),
            ("revoked", None, Err(CallerError::Unknown)),
            ("", None, Err(CallerError::Unknown)),
            ("never was", Some("shop"), Err(CallerError::Unknown)),
        ] {
            let expected = expected.map(|app| Some(app.to_owned()));
            assert_eq!(asks(listener_auth, Some(secret), app), expected, "{secret} {app:?}");
        }
    }
    let [loopback, elsewhere] = &listener_auths;
    assert_eq!(asks(loopback, None, Some("any")), Ok(Some("any".to_owned())));
    assert_eq!(asks(loopback, None, None), Ok(None));
    assert_eq!(asks(elsewhere, None, Some("any")), Err(CallerError::Missing));
}

#[test]
fn without_a_catalog_nobody_looks_at_what_is_shown() {
    let listener_auth = open_listener(Wire::Http);
    let clock = || -> Micros { panic!("nobody wants to know") };
    let caller = listener_auth.authenticate(Some(b"what is it"), clock).unwrap();
    assert_eq!(caller.app(Some("any")), Ok(Some("any")));
    assert_eq!(caller.may(Scope::Refund), Ok(()));
}

#[test]
fn before_the_catalog_was_heard_of_no_token_is_good() {
    let authenticator = Arc::new(Authenticator::by_token(TokensRequired::Remote));
    let listener_auth = authenticator.listener_auth(Wire::Http, Some(&LOOPBACK.parse().unwrap()));
    assert_eq!(asks(&listener_auth, Some("good"), None), Err(CallerError::Unknown));
}

#[test]
fn who_was_let_in_goes_when_the_token_does() {
    let mut stage = Stage::set(TokensRequired::Always);
    let listener_auth = stage.listener_auth(Wire::Resp, LOOPBACK);
    let mut authenticator = ["good", "checks"]
        .map(|id| listener_auth.authenticate(Some(id.as_bytes()), || NOW).unwrap());
    for caller in &mut authenticator {
        assert_eq!(listener_auth.revalidate(caller, Micros::new(END.get() - 1_000)), Ok(()));
        assert_eq!(listener_auth.revalidate(caller, END), Err(CallerError::Expired));
    }
    stage.revoke("good");
    let [good, checks] = &mut authenticator;
    for _ in 0..2 {
        assert_eq!(listener_auth.revalidate(good, NOW), Err(CallerError::Unknown));
        assert_eq!(listener_auth.revalidate(checks, NOW), Ok(()));
    }
}

#[test]
fn what_was_used_is_told_once_also_of_a_token_that_is_revoked_meanwhile() {
    let mut stage = Stage::set(TokensRequired::Always);
    let listener_auth = stage.listener_auth(Wire::Http, LOOPBACK);
    assert_eq!(stage.authenticator.used(), []);
    let at = ms(NOW);
    let told = |ids: &[&str]| {
        ids.iter().map(|id| TokenUse { id: (*id).to_owned(), at }).collect::<Vec<_>>()
    };
    for secret in ["good", "ended", "nobody"] {
        asks(&listener_auth, Some(secret), None).ok();
    }
    assert_eq!(stage.authenticator.used(), told(&["good"]));
    assert_eq!(stage.authenticator.used(), []);
    asks(&listener_auth, Some("checks"), None).unwrap();
    asks(&listener_auth, Some("foreign"), None).unwrap();
    stage.revoke("checks");
    assert_eq!(stage.authenticator.used(), told(&["checks", "foreign"]));
    assert_eq!(stage.authenticator.used(), []);
    assert_eq!(Authenticator::believed().used(), []);
}

#[test]
fn refusals_are_counted_by_wire_and_reason() {
    let stage = Stage::set(TokensRequired::Always);
    let listener_auth = stage.listener_auth(Wire::Rls, LOOPBACK);
    for refused in [CallerError::Missing, CallerError::Scope(Scope::Refund), CallerError::Missing] {
        assert_eq!(listener_auth.count_refused(refused), refused);
    }
    assert_eq!(stage.refused(Wire::Rls), [("missing", 2), ("scope", 1)]);
    assert_eq!(stage.refused(Wire::Http), []);
}

#[test]
fn giving_back_wants_a_scope_of_its_own() {
    use sluicegate::{Cost, PermitId};
    let (cost, permit) = (Cost::ONE, PermitId(1));
    for (verb, scope) in [
        (Verb::Check { cost }, Scope::Check),
        (Verb::Reserve { cost, max_wait: NOW }, Scope::Check),
        (Verb::AtMost { cost }, Scope::Check),
        (Verb::Peek { cost }, Scope::Check),
        (Verb::Acquire { cost, permit }, Scope::Check),
        (Verb::Renew { permit }, Scope::Check),
        (Verb::Release { permit }, Scope::Check),
        (Verb::Refund { cost }, Scope::Refund),
        (Verb::Reset, Scope::Refund),
    ] {
        assert_eq!(scope_of(&verb), scope, "{verb:?}");
    }
}
