//! Lists of summaries, and the search over them.

use serde_json::{Value as Json, json};

use crate::api::client::{Client, Served, document};

/// Two apps; `shop` has `pay`, `orders.create`, `orders_list` (shadow), made in this order, and a deleted one.
async fn shop() -> (Served, Client) {
    let (served, ada) = Served::with_admin().await;
    for app in ["bank", "shop"] {
        let body = json!({ "name": app });
        assert_eq!(served.ask(&ada, "POST /apps", Some(body)).await.status, 201);
    }
    for (name, state) in [
        ("pay", "active"),
        ("orders.create", "active"),
        ("orders_list", "shadow"),
        ("old", "shadow"),
    ] {
        served.clock.advance(sluicegate::Micros::from_secs(1));
        let mut document = document(name, "10/s");
        document["overrides"] =
            json!([{ "key": "alice", "rules": [{ "token_bucket": { "rate": "1/s" } }] }]);
        let body = json!({ "document": document, "state": state });
        assert_eq!(served.ask(&ada, "POST /apps/shop/policies", Some(body)).await.status, 201);
    }
    let gone = served.ask(&ada.at_version(1), "DELETE /apps/shop/policies/old", None).await;
    assert_eq!(gone.status, 204);
    (served, ada)
}

fn names(body: &Json) -> Vec<&str> {
    let items = body["items"].as_array().expect("a list");
    items.iter().map(|item| item["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn policies_are_listed_in_short_by_name_state_and_time() {
    let (served, ada) = shop().await;
    for (query, expected, total) in [
        ("", &["orders.create", "orders_list", "pay"][..], 3),
        ("?sort=updated", &["orders_list", "orders.create", "pay"], 3),
        ("?state=shadow", &["orders_list"], 1),
        ("?state=deleted", &["old"], 1),
        ("?q=ORDERS", &["orders.create", "orders_list"], 2),
        // Not a pattern.
        ("?q=s_l", &["orders_list"], 1),
        ("?q=%25", &[], 0),
        ("?sort=updated&q=orders&limit=1", &["orders_list"], 2),
    ] {
        let path = format!("GET /apps/shop/policy-summaries{query}");
        let found = served.ask(&ada, &path, None).await;
        assert_eq!(
            (found.status.as_u16(), names(&found.body)),
            (200, expected.to_vec()),
            "{query}"
        );
        assert_eq!(found.body["total"], total, "{query}");
    }
    let path = "GET /apps/shop/policy-summaries?q=pay";
    let pay = served.ask(&ada, path, None).await.body["items"][0].clone();
    let rules = document("pay", "10/s")["rules"].clone();
    assert_eq!((&pay["outline"]["rules"], &pay["overrides"]), (&rules, &json!(1)));
    assert_eq!(pay["outline"].get("overrides"), None);
    let refused = served.ask(&ada, "GET /apps/shop/policy-summaries?sort=size", None).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn policies_in_short_go_on_page_by_page_in_both_orders() {
    let (served, ada) = shop().await;
    for sort in ["name", "updated"] {
        let all = format!("GET /apps/shop/policy-summaries?sort={sort}");
        let all = served.ask(&ada, &all, None).await.body;
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("GET /apps/shop/policy-summaries?sort={sort}&limit=1{after}");
            let page = served.ask(&ada, &path, None).await.body;
            seen.extend(names(&page).into_iter().map(str::to_owned));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(seen, names(&all), "{sort}");
    }
    let refused =
        served.ask(&ada, "GET /apps/shop/policy-summaries?sort=updated&after=x", None).await;
    assert_eq!(
        (refused.status.as_u16(), &refused.body["errors"][0]["code"]),
        (422, &json!("bad_cursor"))
    );
}

#[tokio::test]
async fn apps_in_short_say_the_role_the_policies_and_the_owners() {
    let (served, ada) = shop().await;
    let olga = served.member(&ada, "olga", "shop", "owner").await;
    let seen = served.ask(&olga, "GET /app-summaries", None).await.body;
    let shop = &seen["items"][0];
    assert_eq!(names(&seen), ["shop"]);
    assert_eq!(
        ["role", "active", "shadow", "owners"].map(|name| shop[name].clone()),
        [json!("owner"), json!(2), json!(1), json!(["olga"])]
    );
    let all = served.ask(&ada, "GET /app-summaries", None).await.body;
    assert_eq!((names(&all), &all["items"][0]["role"]), (vec!["bank", "shop"], &Json::Null));
    assert_eq!(all["items"][0]["updated_at"], Json::Null);
    let machine = served.token(&olga, "shop", &["policy:read"]).await;
    assert_eq!(served.ask(&machine, "GET /app-summaries", None).await.status, 403);
}

#[tokio::test]
async fn a_search_finds_what_one_may_see_and_nothing_else() {
    let (served, ada) = shop().await;
    let bob = served.member(&ada, "bob", "bank", "viewer").await;
    let olga = served.member(&ada, "olga", "shop", "viewer").await;
    let policy = |name: &str| json!({ "app": "shop", "policy": name });
    for (client, query, expected) in [
        (
            &ada,
            "o",
            json!([{ "app": "shop", "policy": null }, policy("orders.create"), policy("orders_list")]),
        ),
        (&olga, "pay", json!([policy("pay")])),
        (&olga, "old", json!([])),
        (&bob, "pay", json!([])),
        (&bob, "", json!([{ "app": "bank", "policy": null }])),
    ] {
        let found = served.ask(client, &format!("GET /search?q={query}"), None).await;
        assert_eq!(found.body["items"], expected, "{query}");
    }
    assert_eq!(served.ask(&Client::default(), "GET /search?q=o", None).await.status, 401);
}

#[tokio::test]
async fn the_latest_changes_of_policies_are_those_of_the_apps_of_the_account() {
    let (served, ada) = shop().await;
    let body = json!({ "document": document("pay", "20/s") });
    let put = "PUT /apps/shop/policies/pay?reason=sale";
    assert_eq!(served.ask(&ada.at_version(1), put, Some(body)).await.status, 200);
    let (first, activate) = (ada.at_version(1), "POST /apps/shop/policies/orders_list/activate");
    assert_eq!(served.ask(&first, activate, None).await.status, 200);
    let words = |body: &Json| {
        let items = body["items"].as_array().expect("a list").iter();
        let words = items.map(|change| {
            let of = |name: &str| change[name].as_str().unwrap_or("-").to_owned();
            format!("{} {} {} {}", of("app"), of("policy"), of("state_before"), of("state"))
        });
        words.collect::<Vec<_>>()
    };
    let all = served.ask(&ada, "GET /changes", None).await.body;
    assert_eq!(
        words(&all),
        [
            "shop old shadow deleted",
            "shop old - shadow",
            "shop orders_list shadow active",
            "shop pay active active",
            "shop orders_list - shadow",
            "shop orders.create - active",
            "shop pay - active",
        ]
    );
    let sale = &all["items"][3];
    assert_eq!((&sale["version"], &sale["reason"]), (&json!(2), &json!("sale")));
    assert_eq!(sale["author"], "account:ada");
    assert_eq!(words(&served.ask(&ada, "GET /changes?limit=1", None).await.body).len(), 1);
    let vic = served.member(&ada, "vic", "bank", "viewer").await;
    assert_eq!(words(&served.ask(&vic, "GET /changes", None).await.body), [""; 0]);
    let token = served.token(&ada, "shop", &["policy:read"]).await;
    assert_eq!(served.ask(&token, "GET /changes", None).await.status, 403);
}

#[tokio::test]
async fn tokens_that_end_soon_are_found_in_all_apps_of_the_account() {
    let (served, ada) = shop().await;
    for (app, name, days) in [("shop", "late", 90), ("shop", "soon", 13), ("bank", "first", 2)] {
        let body = json!({ "name": name, "scopes": ["check"], "expires_in_days": days });
        let made = served.ask(&ada, &format!("POST /apps/{app}/tokens"), Some(body)).await;
        assert_eq!(made.status, 201);
    }
    let body = json!({ "name": "gone", "scopes": ["check"], "expires_in_days": 1 });
    let gone = served.ask(&ada, "POST /apps/shop/tokens", Some(body)).await.body;
    let path = format!("DELETE /apps/shop/tokens/{}", gone["id"].as_str().expect("an id"));
    assert_eq!(served.ask(&ada, &path, None).await.status, 204);
    let vic = served.member(&ada, "vic", "shop", "viewer").await;
    let cho = served.member(&ada, "cho", "bank", "owner").await;
    for (who, query, expected) in [
        (&ada, "", &["first", "soon"][..]),
        (&ada, "?ends_within_days=1", &[]),
        (&ada, "?ends_within_days=90", &["first", "soon", "late"]),
        (&vic, "", &["soon"]),
        (&cho, "", &["first"]),
    ] {
        let found = served.ask(who, &format!("GET /tokens{query}"), None).await.body;
        assert_eq!(names(&found), expected, "{query}");
        assert_eq!(found["total"], expected.len(), "{query}");
        assert!(
            found.to_string().find("hash").is_none() && found.to_string().find("sgt_").is_none()
        );
    }
    for wrong in ["0", "732", "soon"] {
        let path = format!("GET /tokens?ends_within_days={wrong}");
        assert_eq!(served.ask(&ada, &path, None).await.status, 400, "{wrong}");
    }
    let token = served.token(&ada, "shop", &["check", "policy:read"]).await;
    assert_eq!(served.ask(&token, "GET /tokens", None).await.status, 403);
}
