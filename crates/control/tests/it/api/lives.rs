//! Tasks of people, from the first account on.

use serde_json::json;
use sluicegate::Micros;

use crate::api::client::{Client, NOW_S, PASSWORD, Served, document};

#[tokio::test]
async fn from_the_setup_token_to_a_policy_and_a_token() {
    let served = Served::start().await;
    let nobody = Client::default();
    let wrong = json!({ "token": "sgsetup_x", "account": "ada", "password": PASSWORD });
    assert_eq!(served.ask(&nobody, "POST /setup", Some(wrong)).await.status, 403);
    let right = json!({ "token": served.setup_token, "account": "ada", "password": PASSWORD });
    let made = served.ask(&nobody, "POST /setup", Some(right.clone())).await;
    assert_eq!((made.status.as_u16(), &made.body["is_admin"]), (201, &json!(true)));
    assert_eq!(served.ask(&nobody, "POST /setup", Some(right)).await.status, 403, "once");

    let ada = served.signed_in("ada").await;
    let app = json!({ "name": "shop", "description": "The shop" });
    assert_eq!(served.ask(&ada, "POST /apps", Some(app)).await.status, 201);
    let olga = served.member(&ada, "olga", "shop", "owner").await;

    let policy = json!({ "document": document("orders", "10/s") });
    let made = served.ask(&olga, "POST /apps/shop/policies", Some(policy)).await;
    assert_eq!((made.status.as_u16(), &made.body["state"]), (201, &json!("shadow")));
    assert_eq!(
        (&made.headers["etag"], &made.body["created_by"]),
        (&"\"1\"".parse().unwrap(), &json!("account:olga"))
    );
    let activate = "POST /apps/shop/policies/orders/activate?reason=launch";
    let active = served.ask(&olga.at_version(1), activate, None).await;
    assert_eq!((active.status.as_u16(), &active.body["state"]), (200, &json!("active")));
    assert!(active.body["revision"].as_i64() > made.body["revision"].as_i64());
    assert_eq!(active.body["revision"], served.catalog.revision().await.unwrap());

    let machine = served.token(&olga, "shop", &["policy:read", "check"]).await;
    let seen = served.ask(&machine, "GET /apps/shop/policies", None).await;
    assert_eq!(seen.body["items"][0]["name"], "orders");
    let me = served.ask(&machine, "GET /apps/shop/tokens", None).await;
    assert_eq!(me.status, 403);

    let audit = served.ask(&olga, "GET /apps/shop/audit?limit=2", None).await;
    let entries = audit.body["items"].as_array().unwrap();
    assert_eq!(entries[1]["action"], "policy.activate");
    assert_eq!(
        (&entries[1]["reason"], &entries[1]["source"]),
        (&json!("launch"), &json!("192.0.2.1"))
    );
    let verified = served.ask(&ada, "GET /audit/verified", None).await;
    assert_eq!(verified.body["is_complete"], true);
}

#[tokio::test]
async fn a_setup_token_is_good_for_a_quarter_of_an_hour() {
    let served = Served::start().await;
    served.clock.advance(Micros::from_secs(15 * 60));
    let body = json!({ "token": served.setup_token, "account": "ada", "password": PASSWORD });
    assert_eq!(served.ask(&Client::default(), "POST /setup", Some(body)).await.status, 403);
    assert!(!served.catalog.has_accounts().await.unwrap());
}

#[tokio::test]
async fn a_new_setup_token_takes_the_place_of_the_one_before_until_there_is_an_account() {
    let served = Served::start().await;
    let nobody = Client::default();
    let set_up = |token: &str| json!({ "token": token, "account": "ada", "password": PASSWORD });
    let renewed = served.api.renew_setup().await.unwrap().expect("there is no account");
    let before = served.ask(&nobody, "POST /setup", Some(set_up(&served.setup_token))).await;
    assert_eq!(before.status, 403);
    let after = served.ask(&nobody, "POST /setup", Some(set_up(renewed.expose()))).await;
    assert_eq!(after.status, 201);
    assert!(served.api.renew_setup().await.unwrap().is_none());
}

#[tokio::test]
async fn who_signs_in_gets_a_new_session_that_only_browsers_of_this_site_send() {
    let (served, ada) = Served::with_admin().await;
    let body = json!({ "account": "ada", "password": PASSWORD });
    // A session of another person, or one that was slipped in, is not continued.
    let answer = served.ask(&ada, "POST /session", Some(body)).await;
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("__Host-sluicegate=sgs_"), "{set}");
    assert!(set.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{set}");
    assert_ne!(Some(answer.cookie()), ada.cookie);
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 401, "the old one ended");
    let again = Client { cookie: Some(answer.cookie()), ..Client::default() };
    let me = served.ask(&again, "GET /session", None).await;
    assert_eq!((&me.body["actor"], &me.body["is_admin"]), (&json!("account:ada"), &json!(true)));
    served.clock.advance(Micros::from_secs(31 * 60));
    assert_eq!(served.ask(&again, "GET /session", None).await.status, 401, "it was idle");
}

#[tokio::test]
async fn a_sign_in_page_learns_what_it_needs_before_anybody_signs_in() {
    let served = Served::start().await;
    let nobody = Client::default();
    let meta = served.ask(&nobody, "GET /meta", None).await;
    let expected = json!({
        "catalog": "ready", "setup_due": true, "oidc": null,
        "software": env!("CARGO_PKG_VERSION"), "password_chars_min": 12,
    });
    assert_eq!((meta.status.as_u16(), &meta.body), (200, &expected));
    let body = json!({ "token": served.setup_token, "account": "ada", "password": PASSWORD });
    assert_eq!(served.ask(&nobody, "POST /setup", Some(body)).await.status, 201);
    assert_eq!(served.ask(&nobody, "GET /meta", None).await.body["setup_due"], false);
    served.catalog.close().await;
    let away = served.ask(&nobody, "GET /meta", None).await;
    assert_eq!((&away.body["catalog"], &away.body["setup_due"]), (&json!("away"), &json!(null)));
}

#[tokio::test]
async fn a_session_says_until_when_it_lasts_and_polling_does_not_prolong_it() {
    let (served, ada) = Served::with_admin().await;
    let (minute, now) = (60_000, i64::try_from(NOW_S * 1_000).unwrap());
    let until = async |client: &Client| {
        let me = served.ask(client, "GET /session", None).await.body;
        [&me["idle_until"], &me["ends_at"]].map(|at| (at.as_i64().unwrap() - now) / minute)
    };
    let polling = ada.with("sluicegate-passive", "1");
    assert_eq!(until(&ada).await, [30, 720]);
    served.clock.advance(Micros::from_secs(20 * 60));
    assert_eq!(until(&polling).await, [30, 720]);
    assert_eq!(until(&ada).await, [50, 720]);
    let me = served.ask(&ada, "GET /session", None).await.body;
    assert_eq!((&me["name"], &me["has_password"]), (&json!("ada"), &json!(true)));
    for _ in 0..24 {
        served.clock.advance(Micros::from_secs(28 * 60 + 30));
        until(&ada).await;
    }
    assert_eq!(until(&ada).await, [720, 720], "it ends in any case");
    served.clock.advance(Micros::from_secs(16 * 60));
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 401);
}

#[tokio::test]
async fn signing_out_ends_the_session_and_changing_the_password_all_others() {
    let (served, ada) = Served::with_admin().await;
    let other = served.signed_in("ada").await;
    let gone = served.ask(&other, "DELETE /session", None).await;
    assert_eq!(gone.status, 204);
    assert!(gone.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(served.ask(&other, "GET /session", None).await.status, 401);

    let third = served.signed_in("ada").await;
    let wrong = json!({ "current": "not the password", "password": "another long password" });
    assert_eq!(served.ask(&ada, "PUT /session/password", Some(wrong)).await.status, 422);
    let right = json!({ "current": PASSWORD, "password": "another long password" });
    let changed = served.ask(&ada, "PUT /session/password", Some(right)).await;
    assert_eq!(changed.status, 204);
    let ada = Client { cookie: Some(changed.cookie()), ..Client::default() };
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 200);
    assert_eq!(served.ask(&third, "GET /session", None).await.status, 401);
    let fourth = served.signed_in_with("ada", "another long password").await;
    assert_eq!(served.ask(&fourth, "DELETE /sessions", None).await.status, 204);
    assert_eq!(served.ask(&ada, "GET /session", None).await.status, 401);
}

impl Served {
    async fn signed_in_with(&self, account: &str, password: &str) -> Client {
        let body = json!({ "account": account, "password": password });
        let answer = self.ask(&Client::default(), "POST /session", Some(body)).await;
        Client { cookie: Some(answer.cookie()), ..Client::default() }
    }
}

#[tokio::test]
async fn an_app_is_made_what_its_repository_says() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let machine = served.token(&ada, "shop", &["policy:write", "policy:read"]).await;
    let wanted = json!({ "policies": [{ "document": document("a", "1/s") }, { "document": document("b", "1/s") }] });
    let shown =
        served.ask(&machine, "PUT /apps/shop/policies?dry_run=true", Some(wanted.clone())).await;
    assert_eq!(shown.body["policies"][0]["action"], "create");
    let none = served.ask(&machine, "GET /apps/shop/policies", None).await;
    assert_eq!(none.body["items"], json!([]));
    let done = served.ask(&machine, "PUT /apps/shop/policies", Some(wanted)).await;
    assert_eq!(done.status, 200, "{done:?}");
    let seen = served.ask(&machine, "GET /apps/shop/policies?limit=1", None).await;
    assert_eq!((&seen.body["items"][0]["name"], &seen.body["next"]), (&json!("a"), &json!("a")));
    let rest = served.ask(&machine, "GET /apps/shop/policies?limit=2&after=a", None).await;
    assert_eq!((&rest.body["items"][0]["name"], rest.body.get("next")), (&json!("b"), None));
}

#[tokio::test]
async fn what_has_documents_is_shown_a_hundred_at_a_time() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let wanted = (100..201).map(|n| json!({ "document": document(&format!("p{n}"), "1/s") }));
    let wanted = json!({ "policies": wanted.collect::<Vec<_>>() });
    let applied = served.ask(&ada, "PUT /apps/shop/policies", Some(wanted)).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    for path in ["/apps/shop/policies", "/apps/shop/audit"] {
        let first = served.ask(&ada, &format!("GET {path}?limit=1000"), None).await;
        assert_eq!(first.body["items"].as_array().unwrap().len(), 100, "{path}");
        let next = first.body["next"].as_str().unwrap();
        let rest = served.ask(&ada, &format!("GET {path}?limit=1000&after={next}"), None).await;
        let items = rest.body["items"].as_array().unwrap().len();
        assert!((1..100).contains(&items) && rest.body.get("next").is_none(), "{path}: {items}");
    }
}

#[tokio::test]
async fn versions_are_compared_and_come_back() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s"), "state": "active" });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let body = json!({ "document": document("orders", "20/s") });
    let put = "PUT /apps/shop/policies/orders";
    assert_eq!(served.ask(&ada.at_version(1), put, Some(body)).await.status, 200);
    let diff = served.ask(&ada, "GET /apps/shop/policies/orders/diff", None).await;
    let expected =
        json!([{ "pointer": "/rules/0/token_bucket/rate", "before": "10/s", "after": "20/s" }]);
    assert_eq!(diff.body["changes"], expected);
    let back = "POST /apps/shop/policies/orders/rollback";
    let answer = served.ask(&ada.at_version(2), back, Some(json!({ "to": 1 }))).await;
    assert_eq!(
        (&answer.body["version"], &answer.body["document"]),
        (&json!(3), &document("orders", "10/s"))
    );
    let versions = served.ask(&ada, "GET /apps/shop/policies/orders/versions", None).await;
    assert_eq!(versions.body["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        served.ask(&ada, "GET /apps/shop/policies/orders/versions/x", None).await.status,
        404
    );
    let judged = json!({ "document": document("orders", "1/h") });
    let judged = served.ask(&ada, "POST /apps/shop/validate", Some(judged)).await;
    let warning = json!({
        "pointer": "/document/rules", "code": "limit_drops",
        "params": { "before": "10", "after": "1" }, "detail": "the limit drops from 10 to 1",
    });
    assert_eq!(judged.body["warnings"], json!([warning]));
    assert_eq!(served.ask(&ada, "GET /apps/shop/policies/orders", None).await.body["version"], 3);
}

#[tokio::test]
async fn deleted_policies_are_listed_and_restored_from_any_version() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s"), "state": "active" });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let at = "/apps/shop/policies/orders";
    let body = json!({ "document": document("orders", "20/s") });
    let changed =
        served.ask(&ada.at_version(1), &format!("PUT {at}?reason=sale"), Some(body)).await;
    assert_eq!(changed.status, 200);
    let restore = async |client: &Client, body| {
        let answer = served.ask(client, &format!("POST {at}/restore"), Some(body)).await;
        (answer.status.as_u16(), answer.body)
    };
    assert_eq!(restore(&ada, json!({ "to": 1 })).await.0, 409, "it is there");
    assert_eq!(served.ask(&ada.at_version(2), &format!("DELETE {at}"), None).await.status, 204);

    let listed = async |query: &str| {
        let list = served.ask(&ada, &format!("GET /apps/shop/policies{query}"), None).await.body;
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(
        [listed("").await, listed("?state=deleted").await, listed("?state=active").await],
        [0, 1, 0]
    );
    let viewer = served.member(&ada, "vic", "shop", "viewer").await;
    assert_eq!(restore(&viewer, json!({ "to": 1 })).await.0, 403);
    assert_eq!(restore(&ada, json!({ "to": 9 })).await.0, 404);
    assert_eq!(restore(&ada, json!({ "to": 1, "state": "deleted" })).await.0, 422);
    let (status, policy) = restore(&ada, json!({ "to": 1 })).await;
    assert_eq!((status, &policy["state"], &policy["version"]), (200, &json!("shadow"), &json!(4)));
    assert_eq!(policy["document"], document("orders", "10/s"));
    assert_eq!([listed("").await, listed("?state=deleted").await], [1, 0]);

    let diff = served.ask(&ada, &format!("GET {at}/diff?from=2&to=4"), None).await.body;
    let (before, after) = (&diff["before"], &diff["after"]);
    assert_eq!((&before["state"], &before["reason"]), (&json!("active"), &json!("sale")));
    assert_eq!((&after["state"], &after["author"]), (&json!("shadow"), &json!("account:ada")));
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=1000", None).await.body;
    let actions = audit["items"].as_array().unwrap().iter().map(|entry| &entry["action"]);
    assert!(actions.filter(|action| **action == "policy.restore").count() >= 1);
}

#[tokio::test]
async fn the_audit_is_searched_by_actor_action_target_outcome_and_time() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let olga = served.member(&ada, "olga", "shop", "owner").await;
    let vic = served.member(&ada, "vic", "shop", "viewer").await;
    for name in ["orders", "mails"] {
        let new = json!({ "document": document(name, "10/s") });
        assert_eq!(served.ask(&olga, "POST /apps/shop/policies", Some(new)).await.status, 201);
    }
    served.clock.advance(Micros::from_secs(60));
    let denied = served.ask(&vic.at_version(1), "DELETE /apps/shop/policies/orders", None).await;
    assert_eq!(denied.status, 403);
    let found = async |query: &str| {
        let list = served.ask(&ada, &format!("GET /apps/shop/audit?{query}"), None).await.body;
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{query}: {list}"));
        items.iter().map(|entry| entry["action"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("actor=account:olga").await, ["policy.create", "policy.create"]);
    assert_eq!(found("action=policy.create&target=mails").await, ["policy.create"]);
    assert_eq!(found("outcome=denied").await, ["policy.delete"]);
    assert_eq!(
        found("outcome=denied&target=orders").await,
        ["policy.delete"],
        "named as if it was done"
    );
    let later = NOW_S * 1_000 + 60_000;
    assert_eq!(found(&format!("since={later}")).await, ["policy.delete"]);
    let earlier = found(&format!("until={later}&actor=account:olga&limit=1")).await;
    assert_eq!(earlier, ["policy.create"]);
    assert!(found("actor=account:nobody").await.is_empty());
    for wrong in ["outcome=lost", "since=today", "actr=x"] {
        let answer = served.ask(&ada, &format!("GET /audit?{wrong}"), None).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}
