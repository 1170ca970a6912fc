//! The output in `docs/gitops.md` and `docs/audit.md` is that of the program.

use serde_json::json;
use sluicegate_control::catalog::PolicyState;

use crate::catalog_cli::stage::{Stage, by};

const GITOPS: &str = include_str!("../../../../../docs/gitops.md");
const AUDIT: &str = include_str!("../../../../../docs/audit.md");

/// The policies and the log with which the pages begin.
fn stage() -> Stage {
    let stage = Stage::start();
    for (name, burst) in [("orders", 10), ("search", 3)] {
        let document = json!({
            "name": name, "key": ["remote_ip"], "match": { "path": { "prefix": format!("/{name}") } },
            "rules": [{ "token_bucket": { "rate": "2/s", "burst": burst } }],
        });
        stage
            .wait(stage.catalog.create_policy(&by(), "shop", &document, PolicyState::Active))
            .unwrap();
    }
    let requests = |address: &str, count, path: &str| {
        let line = format!(
            "{address} - - [17/May/2015:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 9 \"-\" \"-\"\n"
        );
        line.repeat(count)
    };
    let log = [("10.0.0.1", 8, "/orders"), ("10.0.0.2", 3, "/search"), ("10.0.0.3", 1, "/")];
    stage.file(
        "access.log",
        &log.map(|(address, count, path)| requests(address, count, path)).concat(),
    );
    stage.file(
        "limits.csv",
        "name,apps,max_permits,rate,created_by,updated_by\npay,\"shop,bank\",20,5,ada,bob\n",
    );
    stage
}

fn check(page: &str, commands_min: usize) {
    let stage = stage();
    let mut commands = 0;
    for block in page.split("```console\n$ ").skip(1) {
        let (block, _) = block.split_once("\n```").expect("a block ends");
        let (command, shown) = block.split_once('\n').expect("a command and what it prints");
        let ran = stage.shell(command);
        let said = format!("{}{}", ran.out, ran.err);
        assert_eq!(without_hashes(said.trim_end()), shown, "{command}");
        commands += 1;
    }
    assert!(commands >= commands_min, "{commands} commands");
}

/// `text` with an ellipsis in place of each SHA-256.
fn without_hashes(text: &str) -> String {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(is_hex) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !is_hex(c)).unwrap_or(from.len());
        plain.push_str(before);
        plain.push_str(if end == 64 { "…" } else { &from[..end] });
        rest = &from[end..];
    }
    plain + rest
}

#[test]
fn what_the_page_of_policies_shows_is_printed() {
    check(GITOPS, 9);
}

#[test]
fn what_the_page_of_the_audit_shows_is_printed() {
    check(AUDIT, 4);
}
