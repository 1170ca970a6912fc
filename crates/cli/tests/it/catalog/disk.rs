//! A SQLite catalog whose disk is full for a moment.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

use serde_json::{Value, json};
use sluicegate_testkit::need;

use crate::catalog::stage::{ADMIN, Node, PASSWORD, Who, ask, policy, until};

/// More failures than there are connections.
const FAILURES: usize = 20;

#[test]
fn a_catalog_whose_disk_was_full_takes_sign_ins_and_edits_as_soon_as_there_is_room() {
    let node = need!(Node::start_on_small_disk());
    let ada = node.set_up();
    assert_eq!(node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" })).0, 201);
    let mut names = 0;
    let mut create = || {
        names += 1;
        let new = json!({ "document": policy(&format!("p{names}"), 1), "state": "active" });
        node.admin(&ada, "POST", "/apps/shop/policies", &new)
    };
    assert_eq!(create().0, 201);
    assert!(is_measured(&node, "sluicegate_catalog_writable 1"));

    fill(&node);
    let mut failures = 0;
    while failures < FAILURES {
        // There may be room left in the files of the database.
        match create() {
            (201, _) => {}
            (503, problem) => {
                failures += 1;
                assert!(!problem.to_string().contains("depth"), "{problem}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sign_in(&node), 503);
    assert!(is_measured(&node, "sluicegate_catalog_writable 0"));
    assert!(is_measured(&node, "sluicegate_catalog_up 1"));
    assert_eq!(ask(node.address("admin"), &Who::default(), "GET", "/readyz", "").unwrap().0, 200);
    assert_eq!(node.limit("p1"), Some(1));

    fs::remove_file(node.on_small_disk("filling")).unwrap();
    // Also if nobody changes anything.
    until(|| is_measured(&node, "sluicegate_catalog_writable 1"));
    for _ in 0..FAILURES {
        let (status, made) = create();
        assert_eq!(status, 201, "{made}");
    }
    assert_eq!(sign_in(&node), 200);
    let (status, verified) = node.admin(&ada, "GET", "/audit/verified", &Value::Null);
    assert_eq!(status, 200, "{verified}");
}

/// Writes until there is no room left.
fn fill(node: &Node) {
    let mut filling = File::create(node.on_small_disk("filling")).unwrap();
    for size in [65_536, 4_096, 1] {
        let bytes = vec![b'x'; size];
        loop {
            match filling.write_all(&bytes) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn sign_in(node: &Node) -> u16 {
    let body = json!({ "account": ADMIN, "password": PASSWORD });
    node.admin(&Who::default(), "POST", "/session", &body).0
}

fn is_measured(node: &Node, line: &str) -> bool {
    let metrics = ask(node.address("admin"), &Who::default(), "GET", "/metrics", "");
    metrics.expect("it answers").2.lines().any(|measured| measured == line)
}
