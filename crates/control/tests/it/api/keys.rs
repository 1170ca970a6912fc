//! Live budgets.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::json;
use sha2::Digest as _;
use sluicegate_control::api::BudgetError;

use crate::api::client::{Served, document};

#[tokio::test]
async fn what_is_done_to_a_budget_is_audited_first() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let at = "/apps/shop/policies/orders/keys";
    let key = || Some(json!({ "key": "alice" }));
    let seen = served.ask(&ada, &format!("POST {at}/peek"), key()).await;
    assert_eq!((seen.status.as_u16(), &seen.body["remaining"]), (200, &json!(10)));
    served.ask(&ada, &format!("POST {at}/reset?reason=mistake"), key()).await;
    let grant = Some(json!({ "key": "alice", "permits": 5 }));
    served.ask(&ada, &format!("POST {at}/grant?dry_run=true"), grant.clone()).await;
    served.ask(&ada, &format!("POST {at}/grant"), grant).await;
    let done = served.budgets.0.lock().unwrap().clone();
    let expected = ["peek", "look", "reset", "peek", "look", "grant"].map(|what| match what {
        "grant" => "grant orders alice 5".to_owned(),
        what => format!("{what} orders alice"),
    });
    assert_eq!(done, expected);
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=2", None).await;
    assert_eq!(audit.body["items"][0]["after"], r#"{"key":"alice","permits":5}"#);
    assert_eq!(
        (&audit.body["items"][1]["action"], &audit.body["items"][1]["reason"]),
        (&json!("key.reset"), &json!("mistake"))
    );

    for (body, pointer) in [
        (json!({ "key": "x".repeat(1_025), "permits": 1 }), "/key"),
        (json!({ "key": "x", "permits": 0 }), "/permits"),
        (json!({ "key": "x", "permits": -1 }), "/permits"),
        (json!({ "key": "x", "permits": 2_147_483_649_u64 }), "/permits"),
    ] {
        let answer = served.ask(&ada, &format!("POST {at}/grant"), Some(body)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["errors"][0]["pointer"]),
            (422, &json!(pointer))
        );
    }
    let none = served.ask(&ada, "POST /apps/shop/policies/none/keys/peek", key()).await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn what_the_store_did_not_do_has_failed_in_the_audit() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    served.budgets.2.store(true, Relaxed);
    for (action, body) in
        [("reset", json!({ "key": "alice" })), ("grant", json!({ "key": "alice", "permits": 5 }))]
    {
        let at = format!("POST /apps/shop/policies/orders/keys/{action}");
        let answer = served.ask(&ada, &at, Some(body)).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        let at = format!("GET /apps/shop/audit?action=key.{action}");
        let audit = served.ask(&ada, &at, None).await;
        let entries = audit.body["items"].as_array().unwrap();
        assert_eq!((entries.len(), &entries[0]["outcome"]), (1, &json!("failed")), "{action}");
    }
    let failed = served.ask(&ada, "GET /apps/shop/audit?outcome=failed", None).await;
    assert_eq!(failed.body["items"].as_array().unwrap().len(), 2);
    // A new request is then carried out.
    served.budgets.2.store(false, Relaxed);
    let grant = json!({ "key": "alice", "permits": 5 });
    let again = ada.with("idempotency-key", "g1");
    let at = "POST /apps/shop/policies/orders/keys/grant";
    assert_eq!(served.ask(&again, at, Some(grant)).await.status, 200);
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=1", None).await;
    assert_eq!(audit.body["items"][0]["outcome"], "done");
}

#[tokio::test]
async fn a_grant_that_comes_again_is_granted_once() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let at = "/apps/shop/policies/orders/keys";
    let again = ada.with("idempotency-key", "g1");
    let grant = || Some(json!({ "key": "alice", "permits": 5 }));
    for _ in 0..2 {
        let granted = served.ask(&again, &format!("POST {at}/grant"), grant()).await;
        assert_eq!(granted.status, 200, "{granted:?}");
    }
    let done = served.budgets.0.lock().unwrap().clone();
    assert_eq!(done.iter().filter(|what| *what == "grant orders alice 5").count(), 1, "{done:?}");
    let other = json!({ "key": "alice", "permits": 6 });
    let other = served.ask(&again, &format!("POST {at}/grant"), Some(other)).await;
    assert_eq!(other.status, 422);
}

#[tokio::test]
async fn a_grant_that_failed_may_come_again_unless_it_was_perhaps_granted() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let at = "POST /apps/shop/policies/orders/keys/grant";
    for (is_perhaps_done, grants) in [(false, 2), (true, 1)] {
        let key = format!("perhaps-{is_perhaps_done}");
        let repeatable = ada.with("idempotency-key", &key);
        let grant = || Some(json!({ "key": key, "permits": 5 }));
        let error = BudgetError { reason: "no answer".to_owned(), is_perhaps_done };
        *served.budgets.3.lock().unwrap() = Some(error);
        assert_eq!(served.ask(&repeatable, at, grant()).await.status, 503);
        for _ in 0..2 {
            assert_eq!(served.ask(&repeatable, at, grant()).await.status, 200);
        }
        // A store that is away when a request comes again does not make it a new one.
        served.budgets.2.store(true, Relaxed);
        assert_eq!(served.ask(&repeatable, at, grant()).await.status, 503);
        served.budgets.2.store(false, Relaxed);
        assert_eq!(served.ask(&repeatable, at, grant()).await.status, 200);
        let calls = served.budgets.0.lock().unwrap().clone();
        let granted = format!("grant orders {key} 5");
        assert_eq!(calls.iter().filter(|call| **call == granted).count(), grants, "{calls:?}");
    }
}

#[tokio::test]
async fn what_a_key_would_meet_is_explained_and_bad_questions_are_refused() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s") });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let of_policy = "POST /apps/shop/policies/orders/keys/explain";
    let of_app = "POST /apps/shop/explain";
    let request = json!({ "method": "GET", "path": "/a" });
    for (what, body) in [
        (of_policy, json!({ "key": "alice", "cost": 3 })),
        (of_policy, json!({ "key": null })),
        (of_app, json!({ "request": request })),
    ] {
        let answer = served.ask(&ada, what, Some(body)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["code"]),
            (404, &json!("no_policy_guards"))
        );
    }
    let asked = served.budgets.0.lock().unwrap().clone();
    let expected = [
        r#"explain shop Some("orders") Some("alice") None 3"#,
        r#"explain shop Some("orders") None None 1"#,
        r#"explain shop None None Some("/a") 1"#,
    ];
    assert_eq!(asked, expected);
    served.budgets.0.lock().unwrap().clear();
    let of_policy_try = "POST /apps/shop/policies/orders/keys/try";
    for query in ["?dry_run=true", ""] {
        let tried = format!("{of_policy_try}{query}");
        served.ask(&ada, &tried, Some(json!({ "key": "alice" }))).await;
    }
    let asked = served.budgets.0.lock().unwrap().clone();
    let looked = r#"explain shop Some("orders") Some("alice") None 1"#;
    assert_eq!(asked, [looked, r#"try Some("orders") Some("alice") 1"#]);
    let audit = served.ask(&ada, "GET /apps/shop/audit?action=key.try", None).await;
    let entries = audit.body["items"].as_array().unwrap().iter();
    let outcomes: Vec<_> = entries.map(|entry| &entry["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "done"], "it was noted first, and then not done");
    // A rule that checks cannot charge is refused before the audit, also in a dry run.
    for query in ["?dry_run=true", ""] {
        let tried = format!("{of_policy_try}{query}");
        let answer = served.ask(&ada, &tried, Some(json!({ "key": "slots" }))).await;
        let said = (answer.status.as_u16(), &answer.body["code"]);
        assert_eq!(said, (409, &json!("try_of_concurrency")));
    }
    let audit = served.ask(&ada, "GET /apps/shop/audit?action=key.try", None).await;
    assert_eq!(audit.body["items"].as_array().unwrap().len(), 2);
    for (what, body, pointer) in [
        (of_policy, json!({ "key": "x".repeat(1_025) }), "/key"),
        (of_policy, json!({ "cost": 0 }), "/cost"),
        (of_policy, json!({ "key": "a", "request": request }), "/request"),
        (of_app, json!({}), "/request"),
        (of_app, json!({ "request": { "port": 1 } }), "/request/port"),
    ] {
        let answer = served.ask(&ada, what, Some(body)).await;
        let found = (answer.status.as_u16(), &answer.body["errors"][0]["pointer"]);
        assert_eq!(found, (422, &json!(pointer)), "{:?}", answer.body);
    }
    let none =
        served.ask(&ada, "POST /apps/shop/policies/none/keys/explain", Some(json!({}))).await;
    assert_eq!(none.status, 404);
    let shared =
        served.ask(&ada, "POST /apps/shop/policies/orders/keys/peek", Some(json!({}))).await;
    assert_eq!(shared.status, 422, "whose budget it is has to be said");
    let shared = json!({ "key": null });
    let shared = served.ask(&ada, "POST /apps/shop/policies/orders/keys/peek", Some(shared)).await;
    assert_eq!(shared.status, 200);
}

#[tokio::test]
async fn a_boost_is_a_version_of_the_policy_with_an_override_that_ends() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    let new = json!({ "document": document("orders", "10/s"), "state": "active" });
    served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    let at = "POST /apps/shop/policies/orders/keys/boost";
    let until = "2027-01-15T09:00:00Z";
    let body = || json!({ "key": "alice", "factor": 3, "until": until });
    let tried = served.ask(&ada, &format!("{at}?dry_run=true"), Some(body())).await;
    assert_eq!((tried.status.as_u16(), &tried.body["version"]), (200, &json!(2)), "{tried:?}");
    let made = served.ask(&ada, &format!("{at}?reason=sale"), Some(body())).await;
    let rules = json!([{ "token_bucket": { "rate": "30/s" } }]);
    assert_eq!(
        (&made.body["version"], &made.body["document"]["overrides"]),
        (&json!(2), &json!([{ "key": "alice", "until": until, "rules": rules }]))
    );
    let audit = served.ask(&ada, "GET /apps/shop/audit?limit=1", None).await;
    assert_eq!(
        (&audit.body["items"][0]["action"], &audit.body["items"][0]["reason"]),
        (&json!("key.boost"), &json!("sale"))
    );

    let wrong_rules = json!([{ "token_bucket": { "rate": "0/s" } }]);
    for (change, pointer) in [
        (json!({ "key": "" }), "/key"),
        (json!({ "key": "x".repeat(1_025) }), "/key"),
        (json!({ "factor": 1 }), "/factor"),
        (json!({ "until": "tomorrow" }), "/until"),
        (json!({ "factor": null, "rules": wrong_rules }), "/rules/0/token_bucket/rate"),
    ] {
        let mut body = body();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = served.ask(&ada, at, Some(body)).await;
        let place = &answer.body["errors"][0]["pointer"];
        assert_eq!((answer.status.as_u16(), place), (422, &json!(pointer)), "{answer:?}");
    }
    let latest = served.ask(&ada, "GET /apps/shop/policies/orders", None).await;
    assert_eq!(latest.body["version"], 2, "nothing wrong was saved");
}

#[tokio::test]
async fn the_answers_that_are_kept_have_nothing_by_which_a_password_could_be_guessed() {
    let (served, ada) = Served::with_admin().await;
    let key = "5f3a1c02-8d1e-4a7b-9a55-7c1d0f6b2e90";
    let body = json!({ "name": "bea", "password": "correct horse battery" });
    let made = served.ask(&ada.with("idempotency-key", key), "POST /accounts", Some(body)).await;
    assert_eq!(made.status, 201, "{made:?}");
    let dump = std::fs::read(served.dir.path().join("catalog.db")).unwrap();
    let wal = std::fs::read(served.dir.path().join("catalog.db-wal")).unwrap_or_default();
    let kept = [dump, wal].concat();
    let has = |text: &[u8]| kept.windows(text.len()).any(|part| part == text);
    let hash = format!("{:x}", sha2::Sha256::digest(key));
    assert!(has(hash.as_bytes()), "what the client sent again is known by its hash");
    assert!(!has(key.as_bytes()), "without the key, the hash of the request is of no use");
}
