//! Sign-ins that succeed.

use std::sync::Arc;

use serde_json::json;
use sluicegate::Micros;
use sluicegate_control::identity::Oidc;
use sluicegate_testkit::TlsFiles;

use super::provider::Provider;
use super::{Begun, Stage, config, session};
use crate::api::client::{Client, Served};

#[tokio::test]
async fn who_is_known_by_their_subject_is_signed_in_and_sent_home() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let before = stage.entries().await;

    let begun = stage.served.ask(&Client::default(), "GET /oidc/login", None).await;
    assert_eq!(begun.status, 303);
    assert_eq!(begun.headers["cache-control"], "no-store");
    let kept = begun.headers["set-cookie"].to_str().unwrap();
    assert!(kept.starts_with("__Host-sluicegate-login="), "{kept}");
    assert!(kept.ends_with("; Max-Age=600; Path=/; Secure; HttpOnly; SameSite=Lax"), "{kept}");

    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let answer = stage.call_back(&browser, &stage.provider.visit(&page)).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["location"]), (303, &"/".parse().unwrap()));
    let cookies = answer.headers.get_all("set-cookie").into_iter();
    let cookies: Vec<_> = cookies.map(|cookie| cookie.to_str().unwrap()).collect();
    assert!(cookies[0].ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookies:?}");
    assert!(cookies[1].starts_with("__Host-sluicegate-login=; Max-Age=0; "), "{cookies:?}");

    let grace = Client { cookie: session(&answer), ..Client::default() };
    let me = stage.served.ask(&grace, "GET /session", None).await;
    let who = (me.status.as_u16(), &me.body["actor"], &me.body["is_admin"]);
    assert_eq!(who, (200, &json!("account:grace"), &json!(false)));
    assert_eq!(stage.audit(before).await, ["provider session.oidc grace done"]);
    let entry = &stage.served.catalog.audit_since(before).await.unwrap()[0];
    assert_eq!(entry.reason, format!("as claimed by {}", stage.provider.issuer));
    assert_eq!(entry.source, "192.0.2.1");

    // The description of the provider was fetched once.
    stage.signed_in().await;
    assert_eq!(stage.provider.inner().asked["description"], 1);
    assert_eq!(stage.provider.inner().asked["keys"], 1);
    stage.served.clock.advance(Micros::from_secs(60 * 60));
    stage.provider.inner().claims = json!({ "iat": 1_800_003_600, "exp": 1_800_003_900 });
    stage.signed_in().await;
    assert_eq!(stage.provider.inner().asked["description"], 2);
}

#[tokio::test]
async fn whoever_had_a_session_in_this_browser_has_another_one_now() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let old = stage.signed_in().await;
    let Begun { browser, page } = stage.begin(&old).await;
    // The old cookie does not come with a browser that another site sends.
    let answer = stage.call_back(&browser, &stage.provider.visit(&page)).await;
    let new = Client { cookie: session(&answer), ..Client::default() };
    assert_ne!(old.cookie, new.cookie);
    assert_eq!(stage.served.ask(&old, "GET /session", None).await.status, 401);
    assert_eq!(stage.served.ask(&new, "GET /session", None).await.status, 200);
}

#[tokio::test]
async fn any_node_ends_what_another_one_began() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    // Another process with the same configuration and catalog, which has no state of the first one.
    let oidc = Arc::new(Oidc::new(config(&stage.provider.issuer)).unwrap());
    let other = stage.served.beside(|api| api.with_oidc(oidc));
    let called = format!("GET /oidc/callback?{}", stage.provider.visit(&page));
    let answer = other.ask(&browser, &called, None).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    assert!(session(&answer).is_some());
}

#[tokio::test]
async fn who_comes_for_the_first_time_gets_an_account_where_that_is_wanted() {
    let stage = Stage::start(|config| config.create_accounts = true).await;
    let before = stage.entries().await;
    stage.provider.inner().claims =
        json!({ "email": "g@example.org", "email_verified": true, "preferred_username": "grace" });
    let made = stage.signed_in().await;
    let me = stage.served.ask(&made, "GET /session", None).await;
    assert_eq!(me.body["actor"], "account:g@example.org");
    assert_eq!(me.body["has_password"], false);
    let meta = stage.served.ask(&Client::default(), "GET /meta", None).await.body;
    assert_eq!(meta["oidc"], json!({ "name": "127.0.0.1" }));
    assert_eq!(
        stage.audit(before).await,
        ["provider account.create g@example.org done", "provider session.oidc g@example.org done"]
    );
    // The subject identifies them from now on, whatever their name.
    stage.provider.inner().claims = json!({ "email": "x@example.org", "email_verified": true });
    let again = stage.signed_in().await;
    let me = stage.served.ask(&again, "GET /session", None).await;
    assert_eq!(me.body["actor"], "account:g@example.org");

    // An address that was not verified may be another person's.
    stage.provider.inner().claims = json!({
        "sub": "2", "email": "ada", "email_verified": false, "preferred_username": "linus",
    });
    let linus = stage.signed_in().await;
    let me = stage.served.ask(&linus, "GET /session", None).await;
    assert_eq!(me.body["actor"], "account:linus");
    let account = stage.served.ask(&stage.ada, "GET /accounts/linus", None).await;
    assert_eq!(account.body["has_password"], false);
}

#[tokio::test]
async fn a_key_that_is_new_is_asked_for_but_not_again_and_again() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    stage.signed_in().await;
    stage.provider.rotate();
    // Too soon: tokens with unknown keys must not cause requests to the provider all the time.
    let refused = stage.sign_in().await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(stage.provider.inner().asked["description"], 1);
    stage.served.clock.advance(Micros::from_secs(10));
    stage.signed_in().await;
    assert_eq!(stage.provider.inner().asked["description"], 2);
}

#[tokio::test]
async fn the_provider_is_known_by_the_authorities_that_are_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles::write(folder.path()).unwrap();
    let provider = Provider::start_tls(&files.server_cert, &files.server_key).await;
    let stage = Stage::at(provider, |config| config.ca = Some(files.ca.clone())).await;
    stage.account("grace").await;
    stage.signed_in().await;

    // The system does not trust the test's authority.
    let oidc = Arc::new(Oidc::new(config(&stage.provider.issuer)).unwrap());
    let served = Served::start_with(|api| api.with_oidc(oidc)).await;
    let answer = served.ask(&Client::default(), "GET /oidc/login", None).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    // Nor is a key a certificate.
    let mut bad = config(&stage.provider.issuer);
    bad.ca = Some(files.server_key.clone());
    let error = Oidc::new(bad).unwrap_err().to_string();
    assert!(
        error.starts_with("/ca: ") && error.ends_with("expected certificates in PEM"),
        "{error}"
    );
}
