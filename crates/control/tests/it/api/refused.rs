//! Requests that are refused, and their problems.

use serde_json::json;
use sluicegate::Micros;
use sluicegate_control::audit::AuditEntry;

use crate::api::client::{Client, PASSWORD, Served, document};

async fn shop() -> (Served, Client) {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s"), "state": "active" });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    (served, ada)
}

#[tokio::test]
async fn two_editors_cannot_overwrite_each_other() {
    let (served, ada) = shop().await;
    let put = "PUT /apps/shop/policies/orders";
    let body = |rate| Some(json!({ "document": document("orders", rate) }));
    assert_eq!(served.ask(&ada, put, body("11/s")).await.status, 428);
    assert_eq!(served.ask(&ada.with("if-match", "x"), put, body("11/s")).await.status, 400);
    assert_eq!(served.ask(&ada.at_version(1), put, body("11/s")).await.status, 200);
    let stale = served.ask(&ada.at_version(1), put, body("12/s")).await;
    assert_eq!((stale.status.as_u16(), &stale.body["version"]), (412, &json!(2)));
    let now = served.ask(&ada, "GET /apps/shop/policies/orders", None).await;
    assert_eq!(now.body["document"], document("orders", "11/s"));
}

#[tokio::test]
async fn what_makes_no_sense_is_named_with_its_pointer() {
    let (served, ada) = shop().await;
    let post = "POST /apps/shop/policies";
    for (body, pointer, contains) in [
        (
            json!({ "document": document("p", "fast") }),
            "/document/rules/0/token_bucket/rate",
            "fast",
        ),
        (json!({ "document": document("Orders", "1/s") }), "/document/name", "Orders"),
        (json!({ "documents": 1 }), "/documents", "unknown field"),
        (json!({ "document": document("p", "1/s"), "state": "on" }), "/state", "unknown variant"),
        (json!({ "document": document("p", "1/s"), "state": "deleted" }), "/state", "expected"),
        (json!(null), "", "expected"),
    ] {
        let answer = served.ask(&ada, post, Some(body)).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(answer.body["errors"][0]["pointer"], pointer, "{answer:?}");
        let detail = answer.body["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains(contains), "{detail}");
    }
    let taken =
        served.ask(&ada, post, Some(json!({ "document": document("orders", "1/s") }))).await;
    assert_eq!(taken.status, 409);
    let nowhere = served
        .ask(&ada, "POST /apps/none/policies", Some(json!({ "document": document("p", "1/s") })))
        .await;
    assert_eq!(nowhere.status, 404);
    assert_eq!(served.ask(&ada, "GET /apps?limit=x", None).await.status, 400);
    assert_eq!(served.ask(&ada, "GET /apps?lmit=1", None).await.status, 400);
    assert_eq!(served.ask(&ada, "PATCH /session", None).await.status, 405);
}

#[tokio::test]
async fn who_would_be_locked_out_is_warned_of_and_may_be_forced() {
    let (served, ada) = shop().await;
    let (put, body) =
        ("PUT /apps/shop/policies/orders", json!({ "document": document("orders", "1/h") }));
    let warned = served.ask(&ada.at_version(1), put, Some(body.clone())).await;
    assert_eq!(
        (warned.status.as_u16(), &warned.body["warnings"][0]["detail"]),
        (409, &json!("the limit drops from 10 to 1"))
    );
    let forced = served.ask(&ada.at_version(1), &format!("{put}?force=true"), Some(body)).await;
    assert_eq!(forced.status, 200);
}

#[tokio::test]
async fn another_site_cannot_have_a_browser_change_anything() {
    let (served, ada) = shop().await;
    let create = || Some(json!({ "name": "evil" }));
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        let from = ada.with("host", "admin.example").with(name, value);
        let answer = served.ask(&from, "POST /apps", create()).await;
        assert_eq!(answer.status, 403, "{name}: {value}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let form = Client { content_type: Some(kind), ..ada.clone() };
        assert_eq!(served.ask(&form, "POST /apps", create()).await.status, 415, "{kind}");
    }
    assert_eq!(served.ask(&ada, "GET /apps/evil", None).await.status, 404, "none was made");
    let own = ada.with("host", "admin.example").with("origin", "https://admin.example");
    assert_eq!(
        served.ask(&own.with("sec-fetch-site", "same-origin"), "POST /apps", create()).await.status,
        201
    );
}

#[tokio::test]
async fn a_token_that_was_revoked_or_ended_is_good_for_nothing() {
    let (served, ada) = shop().await;
    let machine = served.token(&ada, "shop", &["policy:read"]).await;
    let get = "GET /apps/shop/policies";
    assert_eq!(served.ask(&machine, get, None).await.status, 200);
    let tokens = served.ask(&ada, "GET /apps/shop/tokens", None).await;
    let token = &tokens.body["items"][0];
    assert_eq!(token.get("secret"), None);
    assert!(token.get("hash").is_none() && !token["used_at"].is_null(), "{token}");
    let revoke = format!("DELETE /apps/shop/tokens/{}", token["id"].as_str().unwrap());
    assert_eq!(served.ask(&ada, &revoke, None).await.status, 204);
    let answer = served.ask(&machine, get, None).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.headers["www-authenticate"]),
        (401, &r#"Bearer error="invalid_token""#.parse().unwrap())
    );

    let other = served.token(&ada, "shop", &["policy:read"]).await;
    served.clock.advance(Micros::from_secs(30 * 24 * 60 * 60));
    assert_eq!(served.ask(&other, get, None).await.status, 401);
    for bad in ["x", "sgt_", "sgt_0000", "sgs_x"] {
        let client = Client { token: Some(bad.to_owned()), ..Client::default() };
        assert_eq!(served.ask(&client, get, None).await.status, 401, "{bad}");
        // A client with an invalid token is not treated as unauthenticated, either.
        assert_eq!(served.ask(&client, "GET /openapi.json", None).await.status, 401, "{bad}");
    }
    let basic = Client::default().with("authorization", "Basic YTpi");
    assert_eq!(served.ask(&basic, get, None).await.status, 401);
}

#[tokio::test]
async fn a_request_that_comes_again_is_done_once_and_shows_no_secret_twice() {
    let (served, ada) = shop().await;
    let again = ada.with("idempotency-key", "a1");
    let body = || Some(json!({ "name": "ci", "scopes": ["check"], "expires_in_days": 1 }));
    let first = served.ask(&again, "POST /apps/shop/tokens", body()).await;
    let second = served.ask(&again, "POST /apps/shop/tokens", body()).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.body["id"], second.body["id"]);
    assert!(first.body["secret"].is_string() && second.body.get("secret").is_none());
    let other = served.ask(&again, "POST /apps", Some(json!({ "name": "x" }))).await;
    assert_eq!(other.status, 422);
}

#[tokio::test]
async fn passwords_cannot_be_guessed_by_the_thousand() {
    let (served, _ada) = Served::with_admin().await;
    let mut statuses = std::collections::BTreeMap::new();
    for place in 0..1_000 {
        let body = json!({ "account": "ada", "password": format!("guess number {place}") });
        let answer = served.ask(&Client::default(), "POST /session", Some(body)).await;
        *statuses.entry(answer.status.as_u16()).or_insert(0) += 1;
        if answer.status == 429 {
            let again = answer.headers["retry-after"].to_str().unwrap();
            assert_eq!(again, "180");
        }
    }
    // Successful attempts did not count.
    assert_eq!(statuses, [(401, 10), (429, 990)].into());
    // An account that does not exist gets the same answer.
    served.clock.advance(Micros::from_secs(180));
    let nobody = json!({ "account": "nobody", "password": PASSWORD });
    let wrong = json!({ "account": "ada", "password": "wrong password" });
    let nobody = served.ask(&Client::default(), "POST /session", Some(nobody)).await;
    let wrong = served.ask(&Client::default(), "POST /session", Some(wrong)).await;
    assert_eq!((nobody.status, &nobody.body), (wrong.status, &wrong.body));
}

#[tokio::test]
async fn all_addresses_of_one_network_are_one() {
    let served = Served::start().await;
    let attempt = async |source: String, place: usize| {
        let client = Client { source: Some(source), ..Client::default() };
        let account = format!("account{place}");
        let body = json!({ "token": "wrong", "account": account, "password": PASSWORD });
        served.ask(&client, "POST /setup", Some(body)).await.status.as_u16()
    };
    for place in 0..60 {
        assert_eq!(attempt(format!("2001:db8::{place:x}:1"), place).await, 403, "{place}");
    }
    assert_eq!(attempt("2001:db8:0:0:ffff::1".to_owned(), 60).await, 429);
    assert_eq!(attempt("2001:db8:0:1::1".to_owned(), 61).await, 403);
    // Each IPv4 address counts by itself, however it is written.
    for place in 62..122 {
        assert_eq!(attempt("::ffff:192.0.2.7".to_owned(), place).await, 403, "{place}");
    }
    assert_eq!(attempt("192.0.2.7".to_owned(), 122).await, 429);
    assert_eq!(attempt("::ffff:192.0.2.8".to_owned(), 123).await, 403);
}

#[tokio::test]
async fn what_is_too_long_is_not_read() {
    let (served, ada) = shop().await;
    let long = json!({ "account": "x".repeat(5_000), "password": "x" });
    assert_eq!(served.ask(&Client::default(), "POST /session", Some(long)).await.status, 413);
    let long = json!({ "document": { "name": "p", "x": "y".repeat(9 << 20) } });
    assert_eq!(served.ask(&ada, "POST /apps/shop/policies", Some(long)).await.status, 413);
}

#[tokio::test]
async fn who_may_not_is_in_the_audit_whatever_they_say_and_however_often() {
    let (served, ada) = shop().await;
    let vera = served.member(&ada, "vera", "shop", "viewer").await;
    let begin = served.catalog.verify_audit().await.unwrap().entries;
    let delete = "DELETE /apps/shop/policies/orders";
    let long = "x".repeat(2_000);
    for query in ["?x=1", &format!("?reason={long}"), "?reason=%00%1b"] {
        let answer = served.ask(&vera, &format!("{delete}{query}"), None).await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    for _ in 0..200 {
        assert_eq!(served.ask(&vera, delete, None).await.status, 403);
    }
    let entries = served.catalog.audit_since(begin).await.unwrap();
    assert_eq!(entries.len(), 60, "so many a minute");
    assert!(entries.iter().all(|entry| entry.actor == "account:vera"));
    served.clock.advance(Micros::from_secs(60));
    assert_eq!(served.ask(&vera, delete, None).await.status, 403);
    let entries = served.catalog.audit_since(begin + 60).await.unwrap();
    let after: Vec<_> = entries.iter().map(|entry| entry.after.as_deref()).collect();
    assert_eq!(after, [Some(r#"{"unnoted_before":143}"#)]);
    served.catalog.verify_audit().await.unwrap();
}

#[tokio::test]
async fn signing_in_and_out_is_in_the_audit_and_so_is_who_tries_to() {
    let (served, ada) = shop().await;
    let begin = served.catalog.verify_audit().await.unwrap().entries;
    let again = served.signed_in("ada").await;
    for (account, status) in [("ada", 401), ("nobody", 401), ("ada ", 401), ("my password", 401)] {
        let body = json!({ "account": account, "password": "wrong password" });
        let answer = served.ask(&Client::default(), "POST /session", Some(body)).await;
        assert_eq!(answer.status, status);
    }
    let wrong = json!({ "current": "wrong", "password": "another long password" });
    assert_eq!(served.ask(&ada, "PUT /session/password", Some(wrong)).await.status, 422);
    assert_eq!(served.ask(&again, "DELETE /session", None).await.status, 204);
    assert_eq!(served.ask(&ada, "DELETE /sessions", None).await.status, 204);
    let entries = served.catalog.audit_since(begin).await.unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            let AuditEntry { actor, action, target, outcome, .. } = entry;
            [actor.as_str(), action.as_str(), target.as_str(), outcome.as_str()]
        })
        .collect();
    let expected = [
        ["account:ada", "session.create", "ada", "done"],
        ["nobody", "session.create", "ada", "denied"],
        ["nobody", "session.create", "nobody", "denied"],
        ["nobody", "session.create", "", "denied"],
        ["nobody", "session.create", "", "denied"],
        ["account:ada", "session.password", "ada", "denied"],
        ["account:ada", "session.delete", "ada", "done"],
        ["account:ada", "session.delete", "ada", "done"],
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_session_neither_begins_nor_ends_for_show() {
    let (served, ada) = shop().await;
    let sign_in = || Some(json!({ "account": "ada", "password": PASSWORD }));
    let answer = served.ask(&Client::default(), "POST /session?dry_run=true", sign_in()).await;
    assert_eq!((answer.status.as_u16(), answer.headers.get("set-cookie")), (400, None));
    let new = || Some(json!({ "current": PASSWORD, "password": "another long password" }));
    for (what, body) in
        [("DELETE /session", None), ("DELETE /sessions", None), ("PUT /session/password", new())]
    {
        let answer = served.ask(&ada, &format!("{what}?dry_run=true"), body).await;
        assert_eq!(answer.status, 400, "{what}");
    }
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 200);
    served.signed_in("ada").await;
}
