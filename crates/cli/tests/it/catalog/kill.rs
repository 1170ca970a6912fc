//! A node that is killed again and again while its rules are changed.

use serde_json::{Value, json};
use sluicegate::{Clock, MonotonicClock};
use sluicegate_testkit::{SqlKind, SqlServer, need};

use crate::catalog::stage::{Node, Who, policy};

/// Number of edits, and number of edits between two kills, each during an edit.
const EDITS: u64 = 1_000;
const KILLED_AFTER: u64 = 20;

/// The policy that is edited.
const POLICY: &str = "/apps/shop/policies/orders";

#[test]
fn what_was_acknowledged_is_there_whenever_the_node_is_killed() {
    edit("sqlite:DIR/catalog.db");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_whenever_a_node_of_postgresql_is_killed() {
    edit(&need!(SqlServer::shared(SqlKind::Postgres).await).database().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_whenever_a_node_of_mariadb_is_killed() {
    edit(&need!(SqlServer::shared(SqlKind::MariaDb).await).database().unwrap());
}

fn edit(url: &str) {
    let mut node = Node::start(url, "versions_max = 10000\n");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 1), "state": "active" });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    // The limit of each acknowledged version.
    let (mut version, mut acknowledged) = (1, vec![(1, 1)]);
    let (mut took_us, mut kills) = (0, 0);
    for edit in 0..EDITS {
        let limit = edit + 2;
        let is_killed = edit % KILLED_AFTER == KILLED_AFTER - 1;
        // The kill comes at any time between the beginning and the end of an edit.
        let kill_after = is_killed.then_some(took_us * kills / (EDITS / KILLED_AFTER));
        let begun = MonotonicClock.now();
        match change(&node, &ada.of_version(version), limit, kill_after) {
            Some((status, changed)) => {
                assert_eq!(status, 200, "{changed}");
                version = changed["version"].as_i64().unwrap();
                acknowledged.push((version, limit));
            }
            None => assert!(is_killed, "edit {edit} was not answered"),
        }
        if is_killed {
            kills += 1;
            node.restart();
            let found = settled(&node, &ada);
            assert!((version..=version + 1).contains(&found), "{found} after {version}");
            version = found;
        } else {
            took_us = MonotonicClock.now().get() - begun.get();
        }
    }
    assert_eq!(kills, EDITS / KILLED_AFTER);
    for (version, limit) in acknowledged {
        let (_, kept) =
            node.admin(&ada, "GET", &format!("{POLICY}/versions/{version}"), &Value::Null);
        assert_eq!(kept["document"], policy("orders", limit), "version {version}");
    }
    let (status, verified) = node.admin(&ada, "GET", "/audit/verified", &Value::Null);
    assert_eq!(status, 200, "{verified}");
}

/// Changes the limit and returns the answer, if there is one. With `kill_after`, the node is killed that many µs after
/// the request was sent.
fn change(node: &Node, who: &Who, limit: u64, kill_after: Option<u64>) -> Option<(u16, Value)> {
    let document = json!({ "document": policy("orders", limit) });
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| node.try_admin(who, "PUT", POLICY, &document));
        if let Some(span_us) = kill_after {
            let begun = MonotonicClock.now();
            while MonotonicClock.now().get() - begun.get() < span_us {
                std::hint::spin_loop();
            }
            node.kill_at_once();
        }
        asking.join().unwrap()
    })
}

/// The version after the database has finished the edit of the killed node: a dry run of a change waits for it.
fn settled(node: &Node, who: &Who) -> i64 {
    let path = format!("{POLICY}?dry_run=true");
    let document = json!({ "document": policy("orders", 1) });
    let version = || node.admin(who, "GET", POLICY, &Value::Null).1["version"].as_i64().unwrap();
    loop {
        let found = version();
        // Waits for the lock, and compares the version after it.
        let (status, said) =
            node.admin(&who.of_version(found), "PUT", &format!("{path}&force=true"), &document);
        if status == 200 {
            return found;
        }
        assert_eq!(status, 412, "{said}");
    }
}
