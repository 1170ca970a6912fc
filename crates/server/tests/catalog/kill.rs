//! A node that is killed again and again while its rules are changed.

use serde_json::{Value, json};

use crate::stage::{Node, policy};

/// Edits in all, and after how many each time the node is killed while the next is under way.
const EDITS: u64 = 1_000;
const KILLED_AFTER: u64 = 97;

#[test]
fn what_was_acknowledged_is_there_whenever_the_node_is_killed() {
    let mut node = Node::start("sqlite:DIR/catalog.db", "");
    let mut ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 1), "state": "active" });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    let path = "/apps/shop/policies/orders";
    let (mut version, mut kills) = (1, 0);
    // The limits that were acknowledged, by the version that each became.
    let mut acknowledged = vec![(1, 1)];
    for edit in 0..EDITS {
        let change = json!({ "document": policy("orders", edit + 2) });
        let is_killed = edit % KILLED_AFTER == KILLED_AFTER - 1;
        let reply = std::thread::scope(|scope| {
            let ada = ada.of_version(version);
            let (node, change) = (&node, &change);
            let asking = scope.spawn(move || node.try_admin(&ada, "PUT", path, change));
            if is_killed {
                // Between nothing and all of an edit.
                for _ in 0..edit * 500 {
                    std::hint::spin_loop();
                }
                node.kill_at_once();
            }
            asking.join().unwrap()
        });
        match reply {
            Some((status, changed)) => {
                assert_eq!(status, 200, "{changed}");
                version = changed["version"].as_i64().unwrap();
                acknowledged.push((version, edit + 2));
            }
            None => assert!(is_killed, "edit {edit} was not answered"),
        }
        if is_killed {
            kills += 1;
            node.restart();
            ada = node.sign_in();
            let (_, now) = node.admin(&ada, "GET", path, &Value::Null);
            let found = now["version"].as_i64().unwrap();
            assert!((version..=version + 1).contains(&found), "{found} after {version}");
            version = found;
        }
    }
    assert_eq!(kills, EDITS / KILLED_AFTER);
    for (version, limit) in acknowledged {
        let (_, kept) =
            node.admin(&ada, "GET", &format!("{path}/versions/{version}"), &Value::Null);
        assert_eq!(kept["document"], policy("orders", limit), "version {version}");
    }
    let (status, verified) = node.admin(&ada, "GET", "/audit/verified", &Value::Null);
    assert_eq!(status, 200, "{verified}");
}
