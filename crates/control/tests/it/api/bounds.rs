//! Limits on changes, and requests that are refused rather than taken for something else.

use std::num::NonZeroU32;

use serde_json::json;
use sluicegate::{Clock as _, Micros};
use sluicegate_control::api::damaged_total;

use crate::api::client::{Client, PASSWORD, Served, document};

async fn shop_of(changes_per_minute: u32) -> (Served, Client) {
    let changes = NonZeroU32::new(changes_per_minute).expect("some can be made");
    let (served, ada) = Served::with_admin_of(|api| api.with_changes_per_minute(changes)).await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    (served, ada)
}

#[tokio::test]
async fn one_account_or_token_changes_so_much_in_a_minute_and_the_next_is_told_when() {
    let (served, ada) = shop_of(2).await;
    let machine = served.token(&ada, "shop", &["policy:write"]).await;
    let create = async |client: &Client, name: usize| {
        let body = json!({ "document": document(&format!("p{name}"), "1/s") });
        served.ask(client, "POST /apps/shop/policies", Some(body)).await
    };
    for name in 0..20 {
        assert_eq!(create(&machine, name).await.status, 201, "{name}");
    }
    let refused = create(&machine, 20).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "30");
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("20 changes at once and 2 a minute"), "{detail}");
    assert_eq!(
        served.ask(&machine, "PUT /apps/shop/policies?dry_run=true", None).await.status,
        429
    );
    assert_eq!(create(&ada, 20).await.status, 201, "another one may");
    served.clock.advance(Micros::from_secs(30));
    assert_eq!(create(&machine, 21).await.status, 201);
    assert_eq!(create(&machine, 22).await.status, 429);
    // Ada used four changes before, and got one back.
    for name in 30..47 {
        create(&ada, name).await;
    }
    assert_eq!(create(&ada, 50).await.status, 429);
    let body = json!({ "account": "ada", "password": PASSWORD });
    assert_eq!(served.ask(&Client::default(), "POST /session", Some(body)).await.status, 429);
    assert_eq!(served.ask(&ada, "DELETE /session", None).await.status, 204, "she may leave");
}

#[tokio::test]
async fn an_app_takes_so_many_bytes_in_an_hour() {
    let (served, ada) = shop_of(1_000).await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "bank" }))).await;
    let large = "x".repeat(7 << 20);
    let write = async |client: &Client, app: &str| {
        let body = json!({ "document": { "name": "p", "x": large } });
        served.ask(client, &format!("POST /apps/{app}/policies"), Some(body)).await.status.as_u16()
    };
    for expected in [422, 422, 429] {
        assert_eq!(write(&ada, "shop").await, expected);
    }
    assert_eq!(write(&ada, "bank").await, 422);
    served.clock.advance(Micros::from_secs(60 * 60));
    assert_eq!(write(&served.signed_in("ada").await, "shop").await, 422);
}

#[tokio::test]
async fn what_a_caller_sent_is_worked_on_beside_the_thread_that_answers_requests() {
    let (served, ada) = shop_of(100).await;
    let new = json!({ "document": document("orders", "10/s") });
    assert_eq!(served.ask(&ada, "POST /apps/shop/policies", Some(new)).await.status, 201);
    let key = json!({ "key": "alice" });
    let peek = "POST /apps/shop/policies/orders/keys/peek";
    assert_eq!(served.ask(&ada, peek, Some(key)).await.status, 200);
    let threads = served.budgets.1.lock().unwrap();
    assert!(!threads.is_empty() && !threads.contains(&std::thread::current().id()));
}

#[tokio::test]
async fn a_version_is_an_etag_to_the_letter() {
    let (served, ada) = shop_of(100).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let put = async |tag: &str| {
        let body = json!({ "document": document("orders", "11/s") });
        let client = ada.with("if-match", tag);
        served.ask(&client, "PUT /apps/shop/policies/orders", Some(body)).await.status.as_u16()
    };
    for tag in
        ["1", "\"1", "1\"", "+1", "\"+1\"", "\"01\"", " \"1\"x", "W/\"1\"", "\"1\", \"1\"", "*"]
    {
        assert_eq!(put(tag).await, 400, "{tag}");
    }
    let twice = ada.at_version(1).with("if-match", "\"1\"");
    let body = json!({ "document": document("orders", "11/s") });
    let twice = served.ask(&twice, "PUT /apps/shop/policies/orders", Some(body)).await;
    assert_eq!(twice.status, 400);
    assert_eq!(put("\"1\"").await, 200);
}

#[tokio::test]
async fn names_that_are_steps_of_a_path_and_text_that_turns_around_are_refused() {
    let (served, ada) = shop_of(100).await;
    for name in [".", ".."] {
        let app = served.ask(&ada, "POST /apps", Some(json!({ "name": name }))).await;
        assert_eq!(
            (app.status.as_u16(), &app.body["errors"][0]["pointer"]),
            (422, &json!("/name"))
        );
        let policy = Some(json!({ "document": document(name, "1/s") }));
        let policy = served.ask(&ada, "POST /apps/shop/policies", policy).await;
        assert_eq!(policy.body["errors"][0]["pointer"], "/document/name", "{policy:?}");
    }
    assert_eq!(served.ask(&ada, "POST /apps", Some(json!({ "name": "..." }))).await.status, 201);
    for turn in ["%E2%80%AE", "%E2%81%A6", "%D8%9C", "%E2%80%8F"] {
        let post = format!("POST /apps?reason=a{turn}b");
        let answer = served.ask(&ada, &post, Some(json!({ "name": "bank" }))).await;
        assert_eq!(answer.status, 422, "{turn}: {answer:?}");
        assert_eq!(answer.body["errors"][0]["pointer"], "/reason");
    }
    let hebrew = "POST /apps?reason=%D7%A9%D7%9C%D7%95%D7%9D";
    assert_eq!(served.ask(&ada, hebrew, Some(json!({ "name": "bank" }))).await.status, 201);
}

#[tokio::test]
async fn every_refusal_is_a_problem() {
    let (served, ada) = shop_of(100).await;
    let foreign = ada.with("host", "admin.example").with("sec-fetch-site", "cross-site");
    let body = || Some(json!({ "name": "evil" }));
    for (client, what, status) in
        [(&foreign, "POST /apps", 403), (&ada, "POST /nothing", 404), (&ada, "PATCH /session", 405)]
    {
        let answer = served.ask(client, what, body()).await;
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{what}");
        assert_eq!(answer.body["status"], status, "{what}");
    }
}

#[tokio::test]
async fn a_foreign_origin_is_refused_whatever_the_request_says_of_its_site() {
    let (served, ada) = shop_of(100).await;
    let client = ada.with("host", "admin.example");
    for (site, origin, expected) in [
        ("none", Some("https://evil.example"), 403),
        ("none", Some("null"), 403),
        (" none", Some("https://evil.example"), 403),
        ("cross-site", Some("https://evil.example"), 403),
        ("same-site", Some("https://evil.example"), 403),
        ("none", Some("https://admin.example"), 201),
        ("same-origin", Some("https://admin.example"), 201),
        ("none", None, 201),
    ] {
        let mut client = client.with("sec-fetch-site", site);
        if let Some(origin) = origin {
            client = client.with("origin", origin);
        }
        let name = format!("app{}", served.clock.now().get());
        served.clock.advance(Micros::from_secs(1));
        let answer = served.ask(&client, "POST /apps", Some(json!({ "name": name }))).await;
        assert_eq!(answer.status, expected, "{site} {origin:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_forged_entry_of_the_audit_stops_changes_and_sign_ins_and_says_so() {
    let (served, ada) = shop_of(100).await;
    let before = damaged_total();
    served
        .harm(
            "INSERT INTO audit SELECT seq + 1, at, actor, source, action, app, target, outcome, \
             reason, before_change, after_change, hash FROM audit \
             WHERE seq = (SELECT audit_seq FROM head)",
        )
        .await;
    let sign_in = json!({ "account": "ada", "password": PASSWORD });
    let create = json!({ "name": "bank" });
    for (client, what, body) in [
        (&Client::default(), "POST /session", Some(sign_in.clone())),
        (&ada, "POST /apps", Some(create.clone())),
    ] {
        let answer = served.ask(client, what, body).await;
        assert_eq!(answer.status, 500, "{what}: {answer:?}");
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains("sign-in are disabled"), "{what}: {detail}");
        assert!(detail.contains("`sluicegate audit verify`"), "{what}: {detail}");
    }
    let verified = served.ask(&ada, "GET /audit/verified", None).await;
    let broken = verified.body["broken"].as_str().expect("it is broken");
    assert!(broken.contains("beyond the head"), "{broken}");
    assert!(damaged_total() >= before + 3);
    assert_eq!(served.ask(&ada, "GET /apps", None).await.status, 200, "a session goes on");
    served.harm("DELETE FROM audit WHERE seq > (SELECT audit_seq FROM head)").await;
    assert_eq!(served.ask(&ada, "POST /apps", Some(create)).await.status, 201);
    assert_eq!(served.ask(&Client::default(), "POST /session", Some(sign_in)).await.status, 200);
    let verified = served.ask(&ada, "GET /audit/verified", None).await;
    assert_eq!(verified.body["is_complete"], true);
}
