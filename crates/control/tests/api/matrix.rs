//! Who may ask what, asked for real: every route as every kind of client.

use std::collections::BTreeMap;

use serde_json::json;
use sluicegate_control::api::access_table;

use crate::client::{Client, Served, document};

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
    let mut asked = 0;
    for line in lines.skip(1) {
        let row = cells(line);
        let path = row[1].trim_matches('`');
        for (column, cell) in columns.iter().zip(&row).skip(3) {
            // What ends a session is asked with one that may end.
            let ends = path.starts_with("/session") && row[0] != "GET";
            if ends && *column != "nobody" {
                continue;
            }
            let client = &clients[column];
            let what = format!("{} {}?dry_run=true", row[0], fill(path));
            let answer = served.ask(client, &what, body(&row)).await.status.as_u16();
            let is_denied = matches!(answer, 401 | 403);
            // The setup token and the password are wrong here, and that is told by the same status.
            let may = *cell == "✓" && !matches!(path, "/setup" | "/session");
            if may {
                assert!(!is_denied, "{column}: {what}: {answer}");
            } else if *cell != "✓" {
                let expected = if *column == "nobody" { 401 } else { 403 };
                assert_eq!(answer, expected, "{column}: {what}");
            }
            asked += 1;
        }
    }
    assert!(asked > 300, "{asked}");

    // A viewer's every write is in the audit, and so are those of others.
    let entries = served.catalog.audit_since(0).await.unwrap();
    let denied = |actor: &str| {
        let of = entries.iter().filter(|entry| entry.outcome == "denied" && entry.actor == actor);
        of.map(|entry| entry.action.as_str()).collect::<std::collections::BTreeSet<_>>()
    };
    let vera = denied("account:vera");
    for action in [
        "policy.create",
        "policy.delete",
        "member.update",
        "token.create",
        "key.reset",
        "app.delete",
        "account.create",
    ] {
        assert!(vera.contains(action), "{action}: {vera:?}");
    }
    assert!(denied("account:otto").contains("policy.update"));
    served.catalog.verify_audit().await.unwrap();
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
