//! Permits that are held: listed, and released for their holders.

use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value as Json, json};
use sluicegate::PermitId;
use sluicegate_control::api::BudgetError;

use crate::api::client::{Answer, Client, Served, document};

const AT: &str = "POST /apps/shop/policies/slots/keys";

/// Starts an API with the policies `slots`, whose key `slots` has 101 permits of 2, and `orders`, which has none.
async fn with_policies() -> (Served, Client) {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    for name in ["slots", "orders"] {
        let new = json!({ "document": document(name, "10/s") });
        served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    }
    (served, ada)
}

fn id(permit: u128) -> String {
    PermitId(permit).to_string()
}

/// Returns the status and the code of an error.
fn failed(answer: &Answer) -> (u16, &Json) {
    (answer.status.as_u16(), &answer.body["code"])
}

async fn entries(served: &Served, ada: &Client) -> Vec<Json> {
    let audit = served.ask(ada, "GET /apps/shop/audit?action=key.release", None).await;
    audit.body["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_first_hundred_are_listed_with_the_totals_of_all() {
    let (served, ada) = with_policies().await;
    let vic = served.member(&ada, "vic", "shop", "viewer").await;
    let key = Some(json!({ "key": "slots" }));
    let listed = served.ask(&vic, &format!("{AT}/permits"), key).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let items = listed.body["items"].as_array().unwrap();
    assert_eq!(items.len(), 100);
    let first = json!({ "permit": id(1), "cost": 2, "lapses_after_us": 30_000_000 });
    assert_eq!(items[0], first);
    let totals = ["total", "held", "waiting"].map(|name| listed.body[name].as_u64().unwrap());
    assert_eq!(totals, [101, 202, 3]);
    let other = served.ask(&vic, &format!("{AT}/permits"), Some(json!({ "key": null }))).await;
    assert_eq!(other.body["items"], json!([]));
    let orders = "POST /apps/shop/policies/orders/keys";
    for (what, body) in
        [("permits", json!({ "key": "slots" })), ("release", json!({ "key": "slots", "id": "a" }))]
    {
        let none = served.ask(&ada, &format!("{orders}/{what}"), Some(body)).await;
        assert_eq!(failed(&none), (409, &json!("no_permits")), "{none:?}");
    }
    served.budgets.2.store(true, Relaxed);
    let away = served.ask(&vic, &format!("{AT}/permits"), Some(json!({ "key": "slots" }))).await;
    assert_eq!(failed(&away), (503, &json!("store_unavailable")));
    assert!(entries(&served, &ada).await.is_empty());
}

#[tokio::test]
async fn a_release_is_audited_first_and_a_viewer_makes_none() {
    let (served, ada) = with_policies().await;
    let vic = served.member(&ada, "vic", "shop", "viewer").await;
    let release = |permit: &str| Some(json!({ "key": "slots", "permit": permit }));
    let refused = served.ask(&vic, &format!("{AT}/release"), release(&id(7))).await;
    assert_eq!(refused.status, 403);
    let tried = served.ask(&ada, &format!("{AT}/release?dry_run=true"), release(&id(7))).await;
    assert_eq!((tried.status.as_u16(), &tried.body["total"]), (200, &json!(101)));
    // The digits may be capitals, and what is not among the first hundred is found as well.
    let capitals = id(101).to_uppercase();
    let done = served.ask(&ada, &format!("{AT}/release?reason=stuck"), release(&capitals)).await;
    assert_eq!((done.status.as_u16(), &done.body["total"]), (200, &json!(100)), "{done:?}");
    let audit = entries(&served, &ada).await;
    let outcomes: Vec<_> = audit.iter().map(|entry| &entry["outcome"]).collect();
    assert_eq!(outcomes, ["done", "denied"]);
    let after: Json = serde_json::from_str(audit[0]["after"].as_str().unwrap()).unwrap();
    assert_eq!(after, json!({ "key": "slots", "permits": 2, "permit": id(101) }));
    assert_eq!(audit[0]["reason"], "stuck");
    // A permit that is not held any more, one that never was, and the name of one.
    for body in [
        json!({ "key": "slots", "permit": id(101) }),
        json!({ "key": "slots", "permit": id(1 << 100) }),
        json!({ "key": "slots", "id": "job-7" }),
        json!({ "key": null, "permit": id(7) }),
    ] {
        for query in ["?dry_run=true", ""] {
            let none = served.ask(&ada, &format!("{AT}/release{query}"), Some(body.clone())).await;
            assert_eq!(failed(&none), (404, &json!("permit_not_held")), "{none:?}");
        }
    }
    assert_eq!(entries(&served, &ada).await.len(), 2, "a permit that is not held is no change");
}

#[tokio::test]
async fn a_release_that_was_not_made_has_failed_in_the_audit_and_may_come_again() {
    let (served, ada) = with_policies().await;
    let release = |permit| Some(json!({ "key": "slots", "permit": id(permit) }));
    // Its holder releases it between the look and the release.
    let gone = served.ask(&ada, &format!("{AT}/release"), release(1)).await;
    assert_eq!(failed(&gone), (404, &json!("permit_not_held")));
    let outcomes = async || {
        let entries = entries(&served, &ada).await.into_iter();
        let outcomes: Vec<_> = entries.map(|entry| entry["outcome"].clone()).collect();
        outcomes
    };
    assert_eq!(outcomes().await, ["failed", "done"]);
    served.budgets.2.store(true, Relaxed);
    let away = served.ask(&ada, &format!("{AT}/release"), release(2)).await;
    assert_eq!(failed(&away), (503, &json!("store_unavailable")));
    assert_eq!(outcomes().await, ["failed", "failed", "done"]);
    served.budgets.2.store(false, Relaxed);
    let again = ada.with("idempotency-key", "r1");
    let error = BudgetError { reason: "no answer".to_owned(), is_perhaps_done: false };
    *served.budgets.3.lock().unwrap() = Some(error);
    assert_eq!(served.ask(&again, &format!("{AT}/release"), release(3)).await.status, 503);
    // The same request once more finds no permit, and is answered as the first time.
    for _ in 0..2 {
        let done = served.ask(&again, &format!("{AT}/release"), release(4)).await;
        assert_eq!(done.status, 200, "{done:?}");
    }
    let calls = served.budgets.0.lock().unwrap().clone();
    let released = format!("release slots slots {}", id(4));
    assert_eq!(calls.iter().filter(|call| **call == released).count(), 1);
}

#[tokio::test]
async fn hostile_input_is_refused_and_named() {
    let (served, ada) = with_policies().await;
    let hex = id(7);
    for (body, pointer) in [
        (json!({ "key": "slots" }), "/permit"),
        (json!({ "key": "slots", "permit": hex, "id": "a" }), "/permit"),
        (json!({ "key": "slots", "permit": format!("{hex}0") }), "/permit"),
        (json!({ "key": "slots", "permit": &hex[1..] }), "/permit"),
        (json!({ "key": "slots", "permit": format!("+{}", &hex[1..]) }), "/permit"),
        (json!({ "key": "slots", "permit": format!("0x{}", &hex[2..]) }), "/permit"),
        (json!({ "key": "slots", "permit": "\u{202e}\n".repeat(200) }), "/permit"),
        (json!({ "key": "slots", "permit": 7 }), "/permit"),
        (json!({ "key": "slots", "id": "" }), "/id"),
        (json!({ "key": "slots", "id": "x".repeat(1_025) }), "/id"),
        (json!({ "key": "x".repeat(1_025), "id": "a" }), "/key"),
        (json!({ "id": "a" }), ""),
        (json!({ "key": "slots", "id": "a", "more": 1 }), "/more"),
    ] {
        let answer = served.ask(&ada, &format!("{AT}/release"), Some(body.clone())).await;
        let found = (answer.status.as_u16(), &answer.body["errors"][0]["pointer"]);
        assert_eq!(found, (422, &json!(pointer)), "{body}: {:?}", answer.body);
        assert!(answer.body.to_string().len() < 1_000, "{:?}", answer.body);
    }
    let long = Some(json!({ "key": "x".repeat(1_025) }));
    let refused = served.ask(&ada, &format!("{AT}/permits"), long).await;
    assert_eq!(refused.body["errors"][0]["pointer"], "/key");
    let none = Some(json!({ "key": "slots" }));
    let none = served.ask(&ada, "POST /apps/shop/policies/none/keys/permits", none).await;
    assert_eq!(none.status, 404);
    let calls = served.budgets.0.lock().unwrap().clone();
    assert!(calls.is_empty(), "{calls:?}");
}
