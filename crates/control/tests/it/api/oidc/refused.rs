//! Sign-ins that are refused.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluicegate::Micros;
use sluicegate_control::Actor;
use sluicegate_control::catalog::{ChangeContext, ExternalIdentity, NewSession, SessionSpans};

use super::provider::{Signing, query};
use super::{Begun, SUB, Stage, session};
use crate::api::client::{Answer, Client, NOW_S, PASSWORD, Served};

/// Asserts that nobody was signed in, and that the problem contains `says`.
fn assert_refused(answer: &Answer, status: u16, says: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!((session(answer), answer.headers.get("location")), (None, None));
    let detail = answer.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(says), "{detail}");
}

#[tokio::test]
async fn what_another_browser_began_is_not_ended_here() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let (one, other) =
        (stage.begin(&Client::default()).await, stage.begin(&Client::default()).await);
    let called = stage.provider.visit(&one.page);
    let foreign = "start again at `/v1/admin/oidc/login`";
    assert_refused(&stage.call_back(&other.browser, &called).await, 400, foreign);
    assert_refused(&stage.call_back(&Client::default(), &called).await, 400, foreign);

    let state = &query(&one.page)["state"];
    for wrong in ["", "x", &"0".repeat(64), &state[1..], &"x".repeat(5_000)] {
        let called = called.replace(state, wrong);
        assert_refused(&stage.call_back(&one.browser, &called).await, 400, foreign);
    }
    let cookie = one.browser.cookie.clone().unwrap();
    for wrong in [cookie.replacen(&NOW_S.to_string(), "1900000000", 1), cookie[..90].to_owned()] {
        let browser = Client { cookie: Some(wrong), ..Client::default() };
        assert_refused(&stage.call_back(&browser, &called).await, 400, foreign);
    }
    // None of this used the code up.
    assert_eq!(stage.provider.inner().asked.get("token"), None);
    assert_eq!(stage.call_back(&one.browser, &called).await.status, 303);
}

#[tokio::test]
async fn who_takes_longer_than_ten_minutes_begins_again() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    stage.provider.inner().claims = json!({ "exp": NOW_S + 10_000 });
    let slow = stage.begin(&Client::default()).await;
    let late = stage.begin(&Client::default()).await;
    stage.served.clock.advance(Micros::from_secs(599));
    let called = stage.provider.visit(&slow.page);
    assert_eq!(stage.call_back(&slow.browser, &called).await.status, 303);
    stage.served.clock.advance(Micros::from_secs(1));
    let called = stage.provider.visit(&late.page);
    assert_refused(&stage.call_back(&late.browser, &called).await, 400, "10 minutes");
}

#[tokio::test]
async fn a_sign_in_is_used_once_even_if_the_provider_does_not_care() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let called = stage.provider.visit(&page);
    assert_eq!(stage.call_back(&browser, &called).await.status, 303);
    assert_refused(&stage.call_back(&browser, &called).await, 403, "rejected the code");

    stage.provider.inner().codes_last = true;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let called = stage.provider.visit(&page);
    assert_eq!(stage.call_back(&browser, &called).await.status, 303);
    assert_refused(&stage.call_back(&browser, &called).await, 409, "already used");
    // Nor by another person, for whom the provider gives the same browser a code.
    stage.provider.inner().claims = json!({ "sub": "2" });
    let called = stage.provider.visit(&page);
    assert_refused(&stage.call_back(&browser, &called).await, 409, "already used");
}

#[tokio::test]
async fn a_code_that_another_browser_was_given_is_of_no_use() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let theirs = stage.begin(&Client::default()).await;
    let own = stage.begin(&Client::default()).await;
    let stolen = stage.provider.visit(&theirs.page);
    let called = stolen.replace(&query(&theirs.page)["state"], &query(&own.page)["state"]);
    // The provider recognises it by the verifier.
    assert_refused(&stage.call_back(&own.browser, &called).await, 403, "rejected the code");
}

#[tokio::test]
async fn a_token_that_is_not_the_providers_for_us_for_now_and_for_this_is_not_believed() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let before = stage.entries().await;
    let tokens: [(&str, Value, Signing); 17] = [
        ("another nonce", json!({ "nonce": "x" }), Signing::Right),
        ("no nonce", json!({ "nonce": null }), Signing::Right),
        ("another audience", json!({ "aud": "other" }), Signing::Right),
        ("another one beside", json!({ "aud": ["sluicegate", "other"] }), Signing::Right),
        ("another party", json!({ "azp": "other" }), Signing::Right),
        ("no audience", json!({ "aud": null }), Signing::Right),
        ("expired", json!({ "exp": NOW_S - 60 }), Signing::Right),
        ("no end", json!({ "exp": null }), Signing::Right),
        ("another issuer", json!({ "iss": "https://id.example.org" }), Signing::Right),
        ("no subject", json!({ "sub": null }), Signing::Right),
        ("a subject that is none", json!({ "sub": "a\nb" }), Signing::Right),
        ("another key", json!({}), Signing::Forged),
        ("no signature", json!({}), Signing::None),
        ("our own secret", json!({}), Signing::Shared),
        ("its public key", json!({}), Signing::Published),
        ("a subject of an account, and a space", json!({ "sub": "1234 " }), Signing::Right),
        ("another nonce, unsigned", json!({ "nonce": "x" }), Signing::None),
    ];
    for (what, claims, signing) in tokens {
        // So that it is not too many attempts.
        stage.served.clock.advance(Micros::from_secs(5));
        {
            let mut provider = stage.provider.inner();
            (provider.claims, provider.signing) = (claims, signing);
        }
        let answer = stage.sign_in().await;
        let detail = answer.body["detail"].as_str().unwrap_or_default().to_owned();
        assert_eq!((answer.status.as_u16(), session(&answer)), (403, None), "{what}: {detail}");
        assert!(detail.contains("invalid response"), "{what}: {detail}");
    }
    assert_eq!(stage.audit(before).await, [""; 0], "whoever they are, the provider did not say");
    {
        let mut provider = stage.provider.inner();
        (provider.claims, provider.signing) = (json!({}), Signing::Right);
    }
    stage.signed_in().await;
}

#[tokio::test]
async fn who_is_not_known_here_or_may_not_sign_in_is_told_so_and_audited() {
    let stage = Stage::start(|_| {}).await;
    let before = stage.entries().await;
    let subject = format!("{}|{SUB}", stage.provider.issuer);
    assert_refused(&stage.sign_in().await, 403, &subject);
    assert_eq!(stage.audit(before).await, ["provider session.oidc 1234 denied"]);

    stage.account("grace").await;
    let grace = stage.signed_in().await;
    let disable = Some(json!({ "is_disabled": true }));
    let ada = stage.ada.at_version(1);
    assert_eq!(stage.served.ask(&ada, "PATCH /accounts/grace", disable).await.status, 200);
    assert_eq!(stage.served.ask(&grace, "GET /session", None).await.status, 401);
    let before = stage.entries().await;
    assert_refused(&stage.sign_in().await, 403, "account disabled");
    assert_eq!(stage.audit(before).await, ["provider session.oidc 1234 denied"]);
}

#[tokio::test]
async fn who_is_not_let_in_leaves_the_session_that_was_there() {
    let stage = Stage::start(|_| {}).await;
    let Begun { browser, page } = stage.begin(&stage.ada).await;
    let answer = stage.call_back(&browser, &stage.provider.visit(&page)).await;
    assert_refused(&answer, 403, "account not found");
    assert_eq!(stage.served.ask(&stage.ada, "GET /session", None).await.status, 200);
}

#[tokio::test]
async fn without_a_session_nothing_of_a_sign_in_is_left() {
    let stage = Stage::start(|_| {}).await;
    let (catalog, roles) = (&stage.served.catalog, BTreeMap::new());
    let by =
        ChangeContext::new(Actor::Provider, "192.0.2.1", "", 1_000 * i64::try_from(NOW_S).unwrap());
    // No two sessions have one secret, so the second cannot begin.
    let session = NewSession { hash: "x", spans: SessionSpans::default(), instead_of: &[] };
    let who = |subject, name| ExternalIdentity {
        subject,
        name: Some(name),
        is_admin: None,
        roles: &roles,
    };
    catalog.sign_in_elsewhere(&by, who("i|1", "grace"), session).await.unwrap();
    let before = stage.entries().await;
    catalog.sign_in_elsewhere(&by, who("i|2", "linus"), session).await.unwrap_err();
    assert!(catalog.account("grace").await.is_ok() && catalog.account("linus").await.is_err());
    assert_eq!(stage.audit(before).await, [""; 0]);
}

#[tokio::test]
async fn a_name_that_is_taken_is_nobody_elses_whatever_the_provider_says() {
    let stage = Stage::start(|config| config.create_accounts = true).await;
    let before = stage.entries().await;
    for claims in [
        json!({ "preferred_username": "ada" }),
        json!({ "email": "ada", "email_verified": true, "preferred_username": "x" }),
    ] {
        stage.provider.inner().claims = claims;
        assert_refused(&stage.sign_in().await, 403, "another account");
    }
    stage.provider.inner().claims = json!({ "preferred_username": "a b" });
    assert_refused(&stage.sign_in().await, 403, "not a valid account name");
    stage.provider.inner().claims = json!({ "email": "b@example.org" });
    assert_refused(&stage.sign_in().await, 403, "neither");
    // An address that a person chose as user name is not verified.
    stage.provider.inner().claims = json!({ "preferred_username": "b@example.org" });
    assert_refused(&stage.sign_in().await, 403, "neither");
    assert_eq!(stage.audit(before).await, ["provider session.oidc 1234 denied"; 5]);
    let accounts = stage.served.ask(&stage.ada, "GET /accounts", None).await;
    assert_eq!(accounts.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_the_provider_says_of_its_own_refusals_is_passed_on_as_a_word() {
    let stage = Stage::start(|_| {}).await;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let state = &query(&page)["state"];
    let called = format!("error=access_denied%3Cb%3E&error_description=x&state={state}");
    assert_refused(&stage.call_back(&browser, &called).await, 403, "returned `access_deniedb`");
    // Only the browser that began the sign-in gets it.
    let foreign = stage.call_back(&Client::default(), &called).await;
    assert_refused(&foreign, 400, "start again");
    let called = format!("code=x&state={state}&iss=https://other.example.org");
    assert_refused(&stage.call_back(&browser, &called).await, 403, "invalid response");
    let called = format!("code=x&code=y&state={state}");
    assert_eq!(stage.call_back(&browser, &called).await.status, 400);
}

#[tokio::test]
async fn no_request_says_where_a_browser_is_sent() {
    let stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let evil = "https%3A%2F%2Fevil.example.org";
    for name in ["next", "redirect_uri", "return_to", "state"] {
        let what = format!("GET /oidc/login?{name}={evil}");
        assert_eq!(stage.served.ask(&Client::default(), &what, None).await.status, 400, "{name}");
    }
    let browser = Client::default().with("host", "evil.example.org");
    let browser = browser.with("x-forwarded-host", "evil.example.org");
    let Begun { browser, page } = stage.begin(&browser).await;
    assert_eq!(query(&page)["redirect_uri"], "https://limits.example.org/v1/admin/oidc/callback");
    let called = format!("{}&next={evil}&redirect_uri={evil}", stage.provider.visit(&page));
    let answer = stage.call_back(&browser, &called).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["location"]), (303, &"/".parse().unwrap()));
}

#[tokio::test]
async fn while_the_provider_is_away_passwords_do() {
    let mut stage = Stage::start(|_| {}).await;
    stage.account("grace").await;
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    let called = stage.provider.visit(&page);
    stage.provider.stop().await;
    let away = stage.call_back(&browser, &called).await;
    assert_refused(&away, 503, "unavailable");
    assert_eq!(away.headers["retry-after"], "1");
    // The description of the provider is too old then.
    stage.served.clock.advance(Micros::from_secs(60 * 60));
    let away = stage.served.ask(&Client::default(), "GET /oidc/login", None).await;
    assert_refused(&away, 503, "unavailable");
    let body = json!({ "account": "ada", "password": PASSWORD });
    let answer = stage.served.ask(&Client::default(), "POST /session", Some(body)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_provider_that_sends_elsewhere_or_calls_itself_otherwise_is_not_followed() {
    for described in [
        json!({ "issuer": "https://id.example.org" }),
        json!({ "location": "http://127.0.0.1:1/" }),
        json!({ "jwks_uri": "http://id.example.org/keys" }),
        json!({ "authorization_endpoint": "http://id.example.org/page" }),
        json!({ "authorization_endpoint": "javascript:alert(1)" }),
        json!({ "token_endpoint": null }),
    ] {
        let stage = Stage::start(|_| {}).await;
        stage.account("grace").await;
        stage.provider.inner().described = described.clone();
        let begun = stage.served.ask(&Client::default(), "GET /oidc/login", None).await;
        if begun.status == 303 {
            // The missing endpoint is only noticed at the callback.
            let answer = stage.sign_in().await;
            assert_eq!((answer.status.as_u16(), session(&answer)), (403, None), "{described}");
            continue;
        }
        assert!([403, 503].contains(&begun.status.as_u16()), "{described}: {begun:?}");
        assert_eq!(begun.headers.get("set-cookie"), None);
    }
}

#[tokio::test]
async fn an_address_begins_and_ends_sixty_times_a_minute_and_what_it_begins_is_no_attempt() {
    let stage = Stage::start(|_| {}).await;
    let mut statuses = BTreeMap::new();
    for place in 0..150 {
        let what =
            if place % 2 == 0 { "GET /oidc/login" } else { "GET /oidc/callback?code=x&state=y" };
        let answer = stage.served.ask(&Client::default(), what, None).await;
        *statuses.entry(answer.status.as_u16()).or_insert(0) += 1;
    }
    // Creating the account and signing in succeeded, and did not count.
    assert_eq!(statuses, [(303, 60), (400, 60), (429, 30)].into());
}

#[tokio::test]
async fn where_it_is_not_set_up_there_is_nothing() {
    let served = Served::start().await;
    for what in ["GET /oidc/login", "GET /oidc/callback?code=x&state=y"] {
        let answer = served.ask(&Client::default(), what, None).await;
        assert_refused(&answer, 404, "set `catalog.oidc`");
    }
    let post = served.ask(&Client::default(), "POST /oidc/callback", None).await;
    assert_eq!(post.status, 405);
}

#[tokio::test]
async fn a_browser_is_sent_to_the_console_which_asks_for_the_reason_once() {
    let stage = Stage::with_console().await;
    let html =
        |browser: &Client| browser.with("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let Begun { browser, page } = stage.begin(&html(&Client::default())).await;
    let answer = stage.call_back(&browser, &stage.provider.visit(&page)).await;
    assert_eq!((answer.status.as_u16(), session(&answer)), (303, None));
    assert_eq!(answer.headers["location"], "/sign-in", "the address says nothing");
    let kept = answer.headers.get_all("set-cookie").iter().find_map(|cookie| {
        let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
        cookie.starts_with("__Host-sluicegate-problem=").then(|| cookie.to_owned())
    });
    let browser = Client { cookie: kept, ..Client::default() };
    let asked = stage.served.ask(&browser, "GET /oidc/problem", None).await;
    let problem = &asked.body["problem"];
    assert_eq!((&problem["code"], &problem["status"]), (&json!("no_account"), &json!(403)));
    let subject = format!("{}|{SUB}", stage.provider.issuer);
    assert_eq!(problem["params"]["subject"], json!(subject));
    assert!(asked.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"), "only once");
    for cookie in
        [None, Some("__Host-sluicegate-problem=e30".to_owned() + "%"), Some("x".repeat(5_000))]
    {
        let nothing = Client { cookie, ..Client::default() };
        let asked = stage.served.ask(&nothing, "GET /oidc/problem", None).await;
        assert_eq!((asked.status.as_u16(), &asked.body["problem"]), (200, &Value::Null));
    }
    // Programs get the problem itself.
    let Begun { browser, page } = stage.begin(&Client::default()).await;
    assert_refused(&stage.call_back(&browser, &stage.provider.visit(&page)).await, 403, &subject);
}
