//! Permissions with real requests: every route as every kind of client.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sluicegate_control::api::access_table;

use crate::api::client::{Client, Served, document};

#[tokio::test]
async fn every_route_answers_every_client_as_the_table_says() {
    let (served, ada) = Served::with_admin().await;
    for app in ["app", "other"] {
        served.ask(&ada, "POST /apps", Some(json!({ "name": app }))).await;
    }
    let mut clients = BTreeMap::from([("nobody", Client::default()), ("admin", ada.clone())]);
    clients.insert("viewer", served.member(&ada, "vera", "app", "viewer").await);
    clients.insert("owner", served.member(&ada, "olga", "app", "owner").await);
    clients.insert("other app's owner", served.member(&ada, "otto", "other", "owner").await);
    for scope in ["check", "refund", "policy:read", "policy:write"] {
        clients.insert(scope, served.token(&ada, "app", &[scope]).await);
    }

    let table = access_table();
    let mut lines = table.lines();
    let columns = cells(lines.next().unwrap());
    let (mut asked, mut refused) = (0, BTreeSet::new());
    for line in lines.skip(1) {
        let row = cells(line);
        let path = row[1].trim_matches('`');
        for (column, cell) in columns.iter().zip(&row).skip(3) {
            let mut client = clients[column].clone();
            if path.ends_with("/whatif") {
                client.content_type = Some("application/x-sluicegate-whatif");
            }
            let client = &client;
            let what = format!("{} {}?dry_run=true", row[0], fill(path));
            let answer = served.ask(client, &what, body(&row)).await.status.as_u16();
            let is_denied = matches!(answer, 401 | 403);
            if *cell == "✓" {
                assert!(!is_denied, "{column}: {what}: {answer}");
                assert!(!matches!(answer, 405 | 415 | 500..), "{column}: {what}: {answer}");
            } else {
                let expected = if *column == "nobody" { 401 } else { 403 };
                assert_eq!(answer, expected, "{column}: {what}");
                if row[0] != "GET" && *column != "nobody" {
                    refused.insert((*column, row[2].to_owned()));
                }
            }
            asked += 1;
        }
    }
    assert!(asked > 300, "{asked}");

    // Every denied write of an authenticated client is in the audit.
    let mut entries = Vec::new();
    served.catalog.verify_audit_with(|entry| entries.push(entry.clone())).await.unwrap();
    let denied = entries.iter().filter(|entry| entry.outcome == "denied");
    let denied: BTreeSet<_> =
        denied.map(|entry| (column(&entry.actor), entry.action.clone())).collect();
    refused.retain(|(_, action)| {
        !matches!(
            action.as_str(),
            "policy.validate"
                | "policy.import"
                | "policy.whatif"
                | "key.read"
                | "key.explain"
                | "key.permits"
        )
    });
    assert!(refused.len() > 100, "{}", refused.len());
    assert_eq!(denied, refused);
}

#[tokio::test]
async fn of_another_app_nobody_learns_whether_it_is_there() {
    let (served, ada) = Served::with_admin().await;
    for app in ["app", "other"] {
        served.ask(&ada, "POST /apps", Some(json!({ "name": app }))).await;
    }
    let policy = json!({ "document": document("secret", "1/s") });
    served.ask(&ada, "POST /apps/app/policies", Some(policy)).await;
    let otto = served.member(&ada, "otto", "other", "owner").await;
    for path in
        ["", "/policies", "/policies/secret", "/policies/none", "/members", "/tokens", "/audit"]
    {
        let there = served.ask(&otto, &format!("GET /apps/app{path}"), None).await;
        let none = served.ask(&otto, &format!("GET /apps/none{path}"), None).await;
        assert_eq!((there.status.as_u16(), &there.body), (403, &none.body), "{path}");
        assert_eq!(none.status, 403);
    }
    let apps = served.ask(&otto, "GET /apps", None).await;
    assert_eq!(apps.body["items"].as_array().unwrap().len(), 1);
    let through_own = served.ask(&otto, "GET /apps/other/policies/secret", None).await;
    assert_eq!(through_own.status, 404);
}

/// Returns the column of the table for an actor as the audit names it.
fn column(actor: &str) -> &'static str {
    let columns = [
        ("account:vera", "viewer"),
        ("account:olga", "owner"),
        ("account:otto", "other app's owner"),
        ("token:app/check#", "check"),
        ("token:app/refund#", "refund"),
        ("token:app/policy-read#", "policy:read"),
        ("token:app/policy-write#", "policy:write"),
    ];
    columns.iter().find(|(begin, _)| actor.starts_with(begin)).expect("it is one of them").1
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

fn fill(path: &str) -> String {
    path.replace("{app}", "app")
        .replace("{policy}", "p")
        .replace("{account}", "vera")
        .replace("{token}", "t")
        .replace("{version}", "1")
}

fn body(row: &[&str]) -> Option<serde_json::Value> {
    (row[0] != "GET" && row[0] != "DELETE").then(|| json!({}))
}
