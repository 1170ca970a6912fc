//! The README's way from nothing to a decision, as it is written there.

use std::fs;
use std::process::Command;

use crate::catalog::stage::Node;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");

#[test]
fn from_a_setup_token_to_a_check_it_is_as_the_readme_says() {
    let readme = fs::read_to_string(README).unwrap();
    let section = readme.split("\n## Rules that belong to somebody\n").nth(1).unwrap();
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
