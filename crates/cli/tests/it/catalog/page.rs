//! `docs/catalog.md` leads from nothing to a decision: its script runs, and prints what the page shows.

use std::fs;
use std::process::Command;

use crate::catalog::stage::Node;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/catalog.md");

#[test]
fn the_page_leads_from_a_setup_token_to_a_decision() {
    let page = fs::read_to_string(PAGE).unwrap();
    let section = page.split("\n## From nothing to a decision\n").nth(1).unwrap();
    let blocks = |language: &str| {
        section.split(&format!("\n```{language}\n")).nth(1).unwrap().split("\n```").next().unwrap()
    };
    let serve = blocks("sh");
    assert_eq!(serve, "sluicegate serve --catalog sqlite:sluicegate.db");
    let node = Node::start("sqlite:DIR/sluicegate.db", "");
    let walk = section.split("\n```sh\n").nth(2).unwrap().split("\n```").next().unwrap();
    let walk = walk
        .replace("127.0.0.1:8080", &node.address("http").to_string())
        .replace("127.0.0.1:8082", &node.address("admin").to_string());
    let ran = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &walk])
        .env("SETUP", node.setup_token())
        .current_dir(node.folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    let decided = printed.rfind("{\"allowed\"").map(|begin| &printed[begin..]);
    assert_eq!(decided, Some(blocks("json")), "{printed}");
}
