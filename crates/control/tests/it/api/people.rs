//! Accounts, their sessions and roles, and their audit entries.

use serde_json::{Value as Json, json};
use sluicegate::Micros;

use crate::api::client::{Client, NOW_S, PASSWORD, Served, document};

/// An app with an owner and a viewer.
async fn shop() -> (Served, Client, Client) {
    let (served, ada) = Served::with_admin().await;
    assert_eq!(served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await.status, 201);
    let olga = served.member(&ada, "olga", "shop", "owner").await;
    served.member(&ada, "vic", "shop", "viewer").await;
    (served, ada, olga)
}

fn names(body: &Json) -> Vec<&str> {
    let items = body["items"].as_array().expect("a list");
    items.iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn the_last_owner_is_removed_only_by_force_and_the_audit_says_so() {
    let (served, ada, olga) = shop().await;
    let member = "/apps/shop/members/olga";
    let viewer = json!({ "role": "viewer" });
    for (what, body) in
        [(format!("DELETE {member}"), None), (format!("PUT {member}"), Some(viewer.clone()))]
    {
        let warned = served.ask(&olga, &what, body).await;
        assert_eq!(warned.status, 409, "{what}");
        assert_eq!(warned.body["warnings"][0]["code"], "no_owner_left", "{what}");
    }
    let again = served.ask(&olga, &format!("PUT {member}"), Some(json!({ "role": "owner" }))).await;
    assert_eq!(again.status, 204, "nothing is lost");
    let forced = served.ask(&ada, &format!("PUT {member}?force=true"), Some(viewer)).await;
    assert_eq!(forced.status, 204);
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=1", None).await;
    let after: Json =
        serde_json::from_str(audit.body["items"][0]["after"].as_str().unwrap()).unwrap();
    assert_eq!(after, json!({ "value": "viewer", "forced": ["no_owner_left"] }));
}

#[tokio::test]
async fn a_change_that_was_not_forced_does_not_say_so() {
    let (served, ada, _) = shop().await;
    let policy = json!({ "document": document("orders", "10/s"), "state": "active" });
    assert_eq!(
        served.ask(&ada, "POST /apps/shop/policies?force=true", Some(policy)).await.status,
        201
    );
    let less = json!({ "document": document("orders", "1/s") });
    let put = "PUT /apps/shop/policies/orders?force=true";
    assert_eq!(served.ask(&ada.at_version(1), put, Some(less)).await.status, 200);
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=2", None).await;
    let after = |place: usize| {
        let text = audit.body["items"][place]["after"].as_str().expect("a value");
        serde_json::from_str::<Json>(text).expect("it is JSON")
    };
    assert_eq!(after(0)["forced"], json!(["limit_drops"]));
    assert_eq!((&after(1)["forced"], &after(1)["version"]), (&Json::Null, &json!(1)));
    let verified = served.ask(&ada, "GET /audit/verified", None).await;
    assert_eq!(verified.body["is_complete"], true, "{}", verified.body);
}

#[tokio::test]
async fn members_have_their_roles_since_they_got_them() {
    let (served, ada, olga) = shop().await;
    served.clock.advance(Micros::from_secs(60));
    let role = json!({ "role": "owner" });
    assert_eq!(served.ask(&olga, "PUT /apps/shop/members/vic", Some(role)).await.status, 204);
    let bank = json!({ "name": "bank", "owners": ["vic"] });
    assert_eq!(served.ask(&ada, "POST /apps", Some(bank)).await.status, 201);
    let now = i64::try_from(NOW_S * 1_000).unwrap() + 60_000;
    let members = served.ask(&ada, "GET /apps/shop/members", None).await;
    assert_eq!(
        members.body["items"],
        json!([
            { "account": "olga", "role": "owner", "since": now - 60_000, "by": "given" },
            { "account": "vic", "role": "owner", "since": now, "by": "given" },
        ])
    );
    let members = served.ask(&ada, "GET /apps/bank/members", None).await;
    assert_eq!(members.body["items"][0]["since"], now);
}

#[tokio::test]
async fn people_find_those_with_whom_they_share_an_app() {
    let (served, ada, olga) = shop().await;
    let lone = json!({ "name": "lone-wolf", "subject": "https://id.example.org|7" });
    assert_eq!(served.ask(&ada, "POST /accounts", Some(lone)).await.status, 201);
    let found = async |client: &Client, q: &str| {
        let answer = served.ask(client, &format!("GET /people?q={q}"), None).await;
        assert_eq!(answer.status, 200);
        answer.body
    };
    assert_eq!(names(&found(&olga, "").await), ["olga", "vic"]);
    assert_eq!(names(&found(&olga, "WOLF").await), Vec::<&str>::new());
    assert_eq!(names(&found(&ada, "l").await), ["lone-wolf", "olga"]);
    assert_eq!(names(&found(&ada, "%25").await), Vec::<&str>::new());
    assert_eq!(served.ask(&Client::default(), "GET /people", None).await.status, 401);
}

#[tokio::test]
async fn sessions_are_seen_by_their_own_and_ended_by_administrators() {
    let (served, ada, olga) = shop().await;
    served.clock.advance(Micros::from_secs(60));
    let other = served.signed_in("olga").await;
    let own = served.ask(&other, "GET /sessions", None).await;
    let current = |body: &Json| -> Vec<bool> {
        let items = body["items"].as_array().expect("a list");
        items.iter().map(|item| item["is_current"].as_bool().expect("it is said")).collect()
    };
    assert_eq!(current(&own.body), [true, false], "the latest first");
    assert_eq!(own.body["items"][0]["source"], "192.0.2.1");
    let of = "/accounts/olga/sessions";
    assert_eq!(served.ask(&olga, &format!("GET {of}"), None).await.status, 403);
    assert_eq!(current(&served.ask(&ada, &format!("GET {of}"), None).await.body), [false, false]);
    let account = served.ask(&ada, "GET /accounts/olga", None).await;
    let now = i64::try_from(NOW_S * 1_000).unwrap() + 60_000;
    assert_eq!(
        (&account.body["last_sign_in_at"], &account.body["subject"]),
        (&json!(now), &Json::Null)
    );
    assert_eq!(served.ask(&olga, &format!("DELETE {of}"), None).await.status, 403);
    assert_eq!(served.ask(&ada, &format!("DELETE {of}"), None).await.status, 204);
    assert_eq!(served.ask(&olga, "GET /session", None).await.status, 401);
    assert_eq!(served.ask(&ada, "GET /accounts/nobody/sessions", None).await.status, 404);
    assert_eq!(served.ask(&ada, "DELETE /accounts/nobody/sessions", None).await.status, 404);
    // A session ends without use, and is not shown then.
    served.clock.advance(Micros::from_secs(31 * 60));
    let ada = served.signed_in("ada").await;
    assert_eq!(current(&served.ask(&ada, "GET /sessions", None).await.body), [true]);
}

#[tokio::test]
async fn a_revoked_token_says_by_whom_and_its_entry_has_its_name() {
    let (served, ada, olga) = shop().await;
    for days in [14, 15] {
        let new = json!({ "name": "gateway", "scopes": ["check"], "expires_in_days": days });
        assert_eq!(served.ask(&olga, "POST /apps/shop/tokens", Some(new)).await.status, 201);
    }
    served.clock.advance(Micros::from_secs(1));
    let tokens = served.ask(&olga, "GET /apps/shop/tokens", None).await.body;
    let soon = |place: usize| tokens["items"][place]["ends_soon"].clone();
    assert_eq!([soon(0), soon(1)], [json!(true), json!(false)]);
    let id = tokens["items"][0]["id"].as_str().unwrap();
    assert_eq!(served.ask(&ada, &format!("DELETE /apps/shop/tokens/{id}"), None).await.status, 204);
    assert_eq!(served.ask(&ada, &format!("DELETE /apps/shop/tokens/{id}"), None).await.status, 404);
    let tokens = served.ask(&olga, "GET /apps/shop/tokens", None).await.body;
    let revoked = &tokens["items"][0];
    assert_eq!(
        (&revoked["revoked_by"], &revoked["ends_soon"]),
        (&json!("account:ada"), &json!(false))
    );
    assert_eq!(tokens["items"][1]["revoked_by"], Json::Null);
    let entry = &served.ask(&ada, "GET /audit?action=token.revoke", None).await.body["items"][0];
    assert_eq!(
        (&entry["before"], entry["target"].as_str()),
        (&json!(r#"{"name":"gateway"}"#), Some(id))
    );
}

#[tokio::test]
async fn a_broken_chain_says_where_and_a_whole_one_can_be_verified_from_any_entry() {
    let (served, ada, _) = shop().await;
    let whole = served.ask(&ada, "GET /audit/verified", None).await.body;
    assert_eq!(whole["is_complete"], true);
    let entries = served.ask(&ada, "GET /audit", None).await.body;
    let third =
        &entries["items"].as_array().unwrap().iter().find(|entry| entry["seq"] == 3).unwrap();
    let hash = third["hash"].as_str().unwrap();
    let from = format!("GET /audit/verified?from_seq=3&from_hash={hash}");
    assert_eq!(served.ask(&ada, &from, None).await.body, whole);
    for bad in ["from_seq=3", "from_hash=00", "from_seq=-1", &format!("from_hash={hash}")] {
        let refused = served.ask(&ada, &format!("GET /audit/verified?{bad}"), None).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body["code"]),
            (400, &json!("bad_chain_start")),
            "{bad}"
        );
    }
    let other = "f".repeat(64);
    let other = format!("GET /audit/verified?from_seq=3&from_hash={other}");
    let broken = served.ask(&ada, &other, None).await.body;
    assert!(broken["broken"].as_str().unwrap().contains("entry 4"), "{broken}");
    served.harm("UPDATE audit SET reason = 'another' WHERE seq = 2").await;
    let broken = served.ask(&ada, "GET /audit/verified", None).await;
    assert_eq!((broken.status.as_u16(), &broken.body["is_complete"]), (200, &json!(false)));
    assert!(
        broken.body["broken"].as_str().unwrap().starts_with("entry 2 of the audit was changed")
    );
    assert_eq!(
        served.ask(&ada, &from, None).await.body["is_complete"],
        true,
        "what is behind it is whole"
    );
}

#[tokio::test]
async fn the_audit_is_exported_whole_in_lines() {
    let (served, ada, olga) = shop().await;
    for place in 0..120 {
        let change = json!({ "description": format!("{place}") });
        let changed =
            served.ask(&ada.at_version(place + 1), "PATCH /apps/shop", Some(change)).await;
        assert_eq!(changed.status, 200);
    }
    let export = served.ask(&ada, "GET /audit/export", None).await;
    assert_eq!(export.headers["content-type"], "application/jsonl");
    let mut chain = sluicegate_control::audit::Chain::default();
    let lines = export
        .body
        .as_str()
        .expect("lines")
        .lines()
        .map(|line| serde_json::from_str(line).expect("an entry"));
    lines.for_each(|entry| chain.add(&entry).expect("the chain holds"));
    assert!(chain.verified().entries > 120);
    assert_eq!(served.ask(&olga, "GET /audit/export", None).await.status, 403);
}

#[tokio::test]
async fn administrators_see_the_configuration() {
    let settings = json!({ "server": { "workers": 2 } });
    let (served, ada) = Served::with_admin_of(|api| api.with_settings(settings.clone())).await;
    let shown = served.ask(&ada, "GET /settings", None).await;
    assert_eq!(shown.body, json!({ "configuration": settings }));
    let body = json!({ "name": "shop" });
    assert_eq!(served.ask(&ada, "POST /apps", Some(body)).await.status, 201);
    let olga = served.member(&ada, "olga", "shop", "owner").await;
    assert_eq!(served.ask(&olga, "GET /settings", None).await.status, 403);
}

#[tokio::test]
async fn a_name_that_is_not_there_is_told_with_the_one_that_was_meant() {
    let (served, ada, olga) = shop().await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    for (client, what, detail) in [
        (&ada, "GET /apps/shpo", "no app `shpo`; did you mean `shop`?"),
        (&ada, "GET /apps/bank/policies", "no app `bank`"),
        (&ada, "GET /accounts/olgaa", "no account `olgaa`; did you mean `olga`?"),
        (&olga, "GET /apps/shop/policies/order", "no policy `order`; did you mean `orders`?"),
        (&olga, "GET /apps/shop/policies/x", "no policy `x`"),
        (
            &olga,
            "GET /apps/shop/traffic?policy=ordres",
            "no policy `ordres`; did you mean `orders`?",
        ),
    ] {
        let answer = served.ask(client, what, None).await;
        let found = (answer.status.as_u16(), answer.body["detail"].as_str().unwrap_or_default());
        assert_eq!(found, (404, detail), "{what}");
    }
    let other = served.ask(&olga, "GET /apps/shpo", None).await;
    assert_eq!(other.status, 403, "an account without a role in the app does not learn of it");
    assert!(!other.body.to_string().contains("shop"), "{other:?}");
}

#[tokio::test]
async fn a_token_that_is_not_good_is_told_why() {
    let (served, _, olga) = shop().await;
    let ci = served.token(&olga, "shop", &["policy:read"]).await;
    let detail = async |client: &Client| {
        let answer = served.ask(client, "GET /apps/shop", None).await;
        assert_eq!(answer.headers["www-authenticate"], r#"Bearer error="invalid_token""#);
        answer.body["detail"].as_str().unwrap_or_default().to_owned()
    };
    let unknown = Client { token: Some("sgt_none".to_owned()), ..Client::default() };
    assert_eq!(detail(&unknown).await, "authorization: invalid token: unknown or revoked");
    let bare = Client::default().with("authorization", ci.token.as_deref().unwrap());
    assert_eq!(
        detail(&bare).await,
        "authorization: no token: write `Authorization: Bearer TOKEN`, once"
    );
    served.clock.advance(Micros::from_secs(31 * 24 * 60 * 60));
    assert_eq!(detail(&ci).await, "authorization: the token has expired; create another");
}

#[tokio::test]
async fn a_setup_token_after_the_setup_is_told_so() {
    let (served, _) = Served::with_admin().await;
    let body = json!({ "token": served.setup_token, "account": "bea", "password": PASSWORD });
    let answer = served.ask(&Client::default(), "POST /setup", Some(body)).await;
    assert_eq!(answer.status, 403);
    let detail = answer.body["detail"].as_str().unwrap();
    assert!(detail.starts_with("the setup is done: there are accounts; sign in"), "{detail}");
}
