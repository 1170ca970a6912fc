//! A SQLite catalog whose disk is full for a moment, or whose file is moved away.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

use serde_json::{Value, json};
use sluicegate_testkit::need;

use crate::catalog::stage::{ADMIN, Node, PASSWORD, Who, ask, policy, until};
use crate::program::program;

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
        // The files of the database may still have room.
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
    // This must hold even if no change is attempted.
    until(|| is_measured(&node, "sluicegate_catalog_writable 1"));
    for _ in 0..FAILURES {
        let (status, made) = create();
        assert_eq!(status, 201, "{made}");
    }
    assert_eq!(sign_in(&node), 200);
    let (status, verified) = node.admin(&ada, "GET", "/audit/verified", &Value::Null);
    assert_eq!(status, 200, "{verified}");
}

#[test]
fn a_catalog_whose_file_was_moved_away_is_not_there_until_it_is_put_back() {
    let node = Node::start("sqlite:DIR/catalog.db", "");
    let ada = node.set_up();
    assert_eq!(node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" })).0, 201);
    until(|| status(&node).contains("\ncatalog: ok, revision "));
    let (file, away) = (node.folder.path().join("catalog.db"), node.folder.path().join("away.db"));
    fs::rename(&file, &away).unwrap();
    // This must hold even if no change is attempted.
    until(|| is_measured(&node, "sluicegate_catalog_up 0"));
    assert!(is_measured(&node, "sluicegate_catalog_writable 0"));
    let told = status(&node);
    assert!(told.contains("\ncatalog: unavailable; policies of revision "), "{told}");
    assert!(node.told().contains("catalog.db: the file was moved or removed while it was open"));
    // A write to it would be lost.
    let (refused, problem) = node.admin(&ada, "POST", "/apps", &json!({ "name": "lost" }));
    assert_eq!(refused, 503, "{problem}");
    fs::rename(&away, &file).unwrap();
    until(|| is_measured(&node, "sluicegate_catalog_up 1"));
    assert_eq!(node.admin(&ada, "POST", "/apps", &json!({ "name": "lost" })).0, 201);
    assert!(is_measured(&node, "sluicegate_catalog_writable 1"));
}

/// The output of `sluicegate status`.
fn status(node: &Node) -> String {
    let to = format!("http://{}", node.address("admin"));
    let ran = program().args(["status", "--to", &to]).output().expect("the program is built");
    String::from_utf8(ran.stdout).expect("it prints text")
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
