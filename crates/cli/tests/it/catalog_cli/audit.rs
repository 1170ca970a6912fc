//! `sluicegate audit`.

use std::fs;
use std::process::Command;

use crate::catalog_cli::stage::{Stage, finish};

/// A catalog with a few entries.
fn stage() -> Stage {
    let stage = Stage::start();
    for name in ["a", "b"] {
        stage.policy(name, "1/s");
    }
    stage
}

/// Changes the catalog by SQL, as an attacker with access to the database could.
fn harm(stage: &Stage, sql: &str) {
    let script =
        "import sqlite3, sys\nwith sqlite3.connect('catalog.db') as db: db.execute(sys.argv[1])";
    let mut python = Command::new("python3");
    let done = finish(python.args(["-c", script, sql]).current_dir(stage.folder.path()));
    assert_eq!(done.ok(), "");
}

#[test]
fn a_chain_that_holds_is_told_with_its_head() {
    let stage = stage();
    let said = stage.run("audit verify").ok();
    let told = stage.run("audit verify --output json").json();
    let head = told["head"].as_str().unwrap();
    // Two apps, a token and two policies.
    assert_eq!(said, format!("chain intact: 5 entries, head {head}\n"));
    assert_eq!((&told["ok"], &told["entries"]), (&true.into(), &5.into()));
    // The earlier head is still in the chain after it has grown.
    stage.policy("c", "1/s");
    assert_eq!(stage.run(&format!("audit verify --head {head}")).status, Some(0));
    let other = stage
        .run(&format!("audit verify --head {}", head.replace(|c: char| c.is_ascii_digit(), "f")));
    assert_eq!(other.status, Some(1));
    assert!(other.err.starts_with("broken: no entry has the hash "), "{other:?}");
}

#[test]
fn a_chain_that_is_broken_is_told_with_the_first_bad_entry() {
    let stage = stage();
    harm(&stage, "UPDATE audit SET actor = 'account:eve' WHERE seq = 4");
    let ran = stage.run("audit verify");
    let expected = "broken: entry 4 of the audit was changed: it now reads `policy.create` of `a` by `account:eve`\n";
    assert_eq!((ran.status, ran.err.as_str(), ran.out.as_str()), (Some(1), expected, ""));
    let told = stage.run("audit verify --output json");
    assert_eq!((told.status, &told.json()["ok"]), (Some(1), &false.into()));
    harm(&stage, "DELETE FROM audit WHERE seq = 2");
    assert_eq!(stage.run("audit verify").err, "broken: entry 2 of the audit is missing\n");
}

#[test]
fn what_is_exported_can_be_verified_without_the_database() {
    let stage = stage();
    let all = stage.run("audit export").ok();
    assert_eq!(all.lines().count(), 5);
    stage.file("audit.jsonl", &all);
    let verified = stage.run("audit verify").ok();
    assert_eq!(stage.run("audit verify --file audit.jsonl").ok(), verified);
    // An export continues where the previous one ended.
    stage.policy("c", "1/s");
    stage.file("more.jsonl", &stage.run("audit export --after 5").ok());
    let both = stage.shell("cat audit.jsonl more.jsonl | sluicegate audit verify --file -");
    assert_eq!(both.ok(), stage.run("audit verify").ok());
    let part = stage.run("audit verify --file more.jsonl");
    let expected = "error: more.jsonl: entry 1 is not in the file, so the chain cannot be verified; export all \
                    entries, without --app, --since and --after\n";
    assert_eq!((part.status, part.err.as_str()), (Some(2), expected));
    for (from, to) in [
        ("because", "whatever"),
        ("\"seq\":3", "\"seq\":4"),
        ("\"seq\"", "\"more\":1,\"seq\""),
        ("{", ""),
    ] {
        stage.file("audit.jsonl", &all.replacen(from, to, 1));
        let ran = stage.run("audit verify --file audit.jsonl");
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.err.starts_with("broken: "), "{ran:?}");
    }
    stage.file("bank.jsonl", &stage.run("audit export --app bank").ok());
    let bank = fs::read_to_string(stage.folder.path().join("bank.jsonl")).unwrap();
    assert_eq!(bank.lines().count(), 1, "{bank}");
    stage.file("shop.jsonl", &stage.run("audit export --app shop").ok());
    for (app, missing) in [("bank", 1), ("shop", 2)] {
        let part = stage.run(&format!("audit verify --file {app}.jsonl"));
        let expected =
            format!("error: {app}.jsonl: entry {missing} is not in the file, so the chain ");
        assert!(part.status == Some(2) && part.err.starts_with(&expected), "{part:?}");
    }
    assert_eq!(stage.run("audit export --since 2027-01-16").ok(), "");
    let now = stage.run("audit export").ok();
    assert_eq!(stage.run("audit export --since 2027-01-15").ok(), now);
    assert_eq!(stage.run("audit export --since 2027-01-15T08:00:00Z").ok(), now);
    assert_eq!(stage.run("audit export --since 2027-01-15T08:00:01Z").ok(), "");
    assert_eq!(stage.run("audit export --since yesterday").status, Some(2));
}

#[test]
fn many_entries_are_exported_page_by_page() {
    let stage = Stage::start();
    let mut text = "policies:\n".to_owned();
    for number in 0..2_500 {
        text += &format!(
            "  - {{ name: p{number}, rules: [{{ fixed_window: {{ limit: 1, window: 1s }} }}] }}\n"
        );
    }
    stage.file("many.yaml", &text);
    assert_eq!(stage.run("policies apply -f many.yaml --app shop").status, Some(0));
    stage.file("all.jsonl", &stage.run("audit export").ok());
    let verified = stage.run("audit verify --file all.jsonl").ok();
    assert!(verified.starts_with("chain intact: 2503 entries"), "{verified}");
    assert_eq!(stage.shell("sluicegate audit export | head -1 | wc -l").ok().trim(), "1");
}

#[test]
fn no_catalog_is_made_by_looking_for_one_and_no_password_is_shown() {
    let stage = Stage::start();
    for command in ["audit verify", "audit export"] {
        let ran = stage.run(&format!("{command} --catalog sqlite:none.db"));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(!stage.folder.path().join("none.db").exists());
    }
    for url in
        ["mysql://me:hunter2@127.0.0.1:1/x", "mysq://me:hunter2@x/", "postgres://me:hunter2@:x/"]
    {
        let ran = stage.run(&format!("audit verify --catalog {url}"));
        assert_eq!(ran.status, Some(2), "{ran:?}");
        assert!(!ran.err.contains("hunter2"), "{ran:?}");
    }
    let mut help = stage.command("audit verify --help");
    let help = finish(help.env("SLUICEGATE_CATALOG_URL", "mysql://me:hunter2@x/"));
    assert!(
        help.out.contains("SLUICEGATE_CATALOG_URL") && !help.out.contains("hunter2"),
        "{help:?}"
    );
}
