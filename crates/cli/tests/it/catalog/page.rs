//! `docs/catalog.md` leads from nothing to a decision: its scripts run, and print what the page shows.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::catalog::stage::Node;

const PAGE: &str = include_str!("../../../../../docs/catalog.md");
const PASSWORD: &str = "correct horse battery staple";

/// The block of `language` below a heading, after `skipped` others.
fn block(heading: &str, language: &str, skipped: usize) -> &'static str {
    let section = PAGE.split(&format!("\n{heading}\n")).nth(1).unwrap();
    let block = section.split(&format!("\n```{language}\n")).nth(1 + skipped).unwrap();
    block.split("\n```").next().unwrap()
}

/// The output of the script for a client of `node`, in which `sluicegate` is the program.
fn run(node: &Node, script: &str) -> String {
    let script = script
        .replace("127.0.0.1:8080", &node.address("http").to_string())
        .replace("127.0.0.1:8082", &node.address("admin").to_string());
    let program = env!("CARGO_BIN_EXE_sluicegate");
    let mut shell = Command::new("bash")
        .args(["-euo", "pipefail", "-c"])
        .arg(format!("sluicegate() {{ {program} \"$@\"; }}\n{script}"))
        .env("SETUP", node.setup_token())
        .env("XDG_CONFIG_HOME", node.folder.path().join("config"))
        .env("SLUICEGATE_URL", format!("http://{}", node.address("http")))
        .env("SLUICEGATE_ADMIN_URL", format!("http://{}", node.address("admin")))
        .current_dir(node.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The first command asks for the password.
    shell.stdin.take().unwrap().write_all(format!("{PASSWORD}\n").as_bytes()).ok();
    let ran = shell.wait_with_output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}");
    printed
}

#[test]
fn five_commands_lead_from_a_setup_token_to_a_decision() {
    let begin = "## From nothing to a decision";
    assert_eq!(block(begin, "sh", 0), "sluicegate serve --catalog sqlite:sluicegate.db");
    let node = Node::start("sqlite:DIR/sluicegate.db", "");
    let script = block(begin, "sh", 1);
    assert_eq!(script.lines().filter(|line| line.starts_with("sluicegate ")).count(), 5);
    fs::create_dir(node.folder.path().join("init")).unwrap();
    run(&node, "sluicegate init init && cp init/policies.yaml .");
    let printed = run(&node, script);
    assert_eq!(printed.lines().last(), Some(block(begin, "text", 0)), "{printed}");
    let mode = fs::metadata(node.folder.path().join("web.token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The page also adds Bea.
    let bea = "sluicegate accounts create bea\nsluicegate members set bea --app shop --role owner";
    let said = run(&node, bea);
    assert!(said.ends_with("bea is now an owner of shop\n"), "{said}");
}

#[test]
fn the_script_of_the_page_does_the_same_by_the_api() {
    let node = Node::start("sqlite:DIR/sluicegate.db", "");
    let section = "### The same by the API";
    let printed = run(&node, block(section, "sh", 0));
    let decided = printed.rfind("{\"allowed\"").map(|begin| &printed[begin..]);
    assert_eq!(decided, Some(block(section, "json", 0)), "{printed}");
}
