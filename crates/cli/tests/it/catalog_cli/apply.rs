//! `sluicegate policies apply`.

use serde_json::json;
use sluicegate_control::audit::AuditFilter;
use sluicegate_control::catalog::{Page, PolicyState};

use crate::catalog_cli::stage::{Stage, by, document};

const TWO: &str = "
policies:
  - name: orders
    rules: [{ token_bucket: { rate: 2/s } }]
  - name: search
    rules: [{ token_bucket: { rate: 1/s } }]
";

#[test]
fn files_become_the_policies_of_the_app_all_in_one_change() {
    let stage = Stage::start();
    stage.policy("orders", "1/s");
    stage.policy("old", "1/s");
    stage.file("two.yaml", TWO);
    let revision = stage.wait(stage.catalog.revision()).unwrap();
    let shown = stage.run("policies apply -f two.yaml --app shop --dry-run").ok();
    let lines = "- old\n~ orders\n    rules[0].token_bucket.rate: \"1/s\" becomes \"2/s\"\n+ search (active)\n";
    let counted = "1 created, 1 changed, 1 deleted, 0 unchanged\n";
    assert_eq!(shown, format!("{lines}shop: dry run, nothing applied: {counted}"));
    assert_eq!(stage.wait(stage.catalog.revision()).unwrap(), revision);
    let mut apply = stage.command("policies apply -f two.yaml --app shop");
    let done =
        crate::catalog_cli::stage::finish(apply.args(["--reason", "more & more: 100%"])).ok();
    assert_eq!(done, format!("{lines}shop: {counted}"));
    assert_eq!(stage.wait(stage.catalog.revision()).unwrap(), revision + 1);
    let names: Vec<_> = stage.policies().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["orders", "search"]);
    let entries =
        stage.wait(stage.catalog.audit(&AuditFilter::default(), &Page::default())).unwrap();
    assert_eq!(entries[0].reason, "more & more: 100%");
    assert!(entries[0].actor.starts_with("token:shop/ci#"), "{}", entries[0].actor);
    let again = stage.run("policies apply -f two.yaml --app shop --output json").json();
    assert_eq!(
        (&again["applied"], &again["policies"][0]["action"]),
        (&false.into(), &"keep".into())
    );
    stage.file("two.yaml", &TWO.replace("2/s", "3/s"));
    let told = stage.run("policies apply -f two.yaml --app shop --output json").json();
    assert_eq!(
        (&told["applied"], &told["policies"][0]["action"]),
        (&true.into(), &"update".into())
    );
}

#[test]
fn standard_input_is_a_document_too() {
    let stage = Stage::start();
    stage.file("two.yaml", TWO);
    let ran = stage.shell("sluicegate policies apply -f - --app shop < two.yaml").ok();
    assert!(ran.ends_with("shop: 2 created, 0 changed, 0 deleted, 0 unchanged\n"), "{ran}");
}

#[test]
fn what_the_server_refuses_is_told_with_the_file_and_the_path_and_nothing_is_applied() {
    let stage = Stage::start();
    let bank = document("pay", "1/s");
    stage.wait(stage.catalog.create_policy(&by(), "bank", &bank, PolicyState::Active)).unwrap();
    stage.file("p/a.yaml", TWO);
    let rules = "rules: [{ token_bucket: { rate: 1/s } }]";
    stage.file(
        "p/b.yaml",
        &format!("policies: [{{ name: b, {rules} }}, {{ name: c, apps: [shop, shpo], {rules} }}]"),
    );
    stage.file(
        "p/c.json",
        r#"{ "policies": [{ "name": "pay", "rules": [{ "token_bucket": { "rate": "1/s" } }] }] }"#,
    );
    let ran = stage.run("policies apply -f p --app shop");
    let expected = "\
p/b.yaml: policies[1].apps[1]: app `shpo` not found
p/c.json: policies[0].name: `pay` is already the name of another app's policy
error: nothing was applied: the server rejected the policies
";
    assert_eq!((ran.status, ran.err.as_str(), ran.out.as_str()), (Some(1), expected, ""));
    let told = stage.run("policies apply -f p --app shop --output json");
    assert_eq!(told.status, Some(1));
    let errors = json!([
        { "file": "p/b.yaml", "path": "policies[1].apps[1]", "problem": "app `shpo` not found" },
        { "file": "p/c.json", "path": "policies[0].name", "problem": "`pay` is already the name of another app's policy" },
    ]);
    assert_eq!((&told.json()["errors"], &told.json()["applied"]), (&errors, &false.into()));
    assert!(stage.policies().is_empty());
}

#[test]
fn what_locks_somebody_out_is_warned_of_and_done_when_forced() {
    let stage = Stage::start();
    stage.policy("orders", "100/s");
    stage.file(
        "less.yaml",
        "policies: [{ name: orders, rules: [{ token_bucket: { rate: 1/s } }] }]",
    );
    let warned = stage.run("policies apply -f less.yaml --app shop");
    let expected = "\
warning: less.yaml: policies[0].rules: the limit drops from 100 to 1
error: nothing was applied: use --force to ignore the warnings
";
    assert_eq!((warned.status, warned.err.as_str()), (Some(1), expected));
    assert_eq!(stage.policies()[0].version, 1);
    assert_eq!(stage.run("policies apply -f less.yaml --app shop --force").status, Some(0));
    assert_eq!(stage.policies()[0].version, 2);
}

#[test]
fn all_policies_are_deleted_only_by_force() {
    let stage = Stage::start();
    stage.policy("orders", "1/s");
    stage.policy("search", "1/s");
    stage.file("none.yaml", "policies: []");
    let warned = stage.run("policies apply -f none.yaml --app shop");
    let expected = "\
warning: no policies: all 2 of the app would be deleted
error: nothing was applied: use --force to ignore the warnings
";
    assert_eq!((warned.status, warned.err.as_str()), (Some(1), expected));
    assert_eq!(stage.policies().len(), 2);
    assert_eq!(stage.run("policies apply -f none.yaml --app shop --force").status, Some(0));
    assert!(stage.policies().is_empty());
    assert_eq!(
        stage.run("policies apply -f none.yaml --app shop").status,
        Some(0),
        "nothing is lost"
    );
}

#[test]
fn a_change_whose_answer_was_lost_is_made_once() {
    let stage = Stage::start();
    stage.file("two.yaml", TWO);
    stage.lose_answers(1);
    let told = stage.run("policies apply -f two.yaml --app shop --output json").json();
    assert_eq!(
        (&told["applied"], &told["policies"][0]["action"]),
        (&true.into(), &"create".into())
    );
    stage.file("two.yaml", &TWO.replace("2/s", "3/s"));
    stage.lose_changes(2);
    assert_eq!(stage.run("policies apply -f two.yaml --app shop").status, Some(0));
    let versions: Vec<_> = stage.policies().iter().map(|view| view.version).collect();
    assert_eq!(versions, [2, 1]);
    stage.file("two.yaml", TWO);
    stage.lose_changes(3);
    let lost = stage.run("policies apply -f two.yaml --app shop");
    assert_eq!(lost.status, Some(1), "{lost:?}");
    assert_eq!(stage.policies()[0].version, 2);
}

#[test]
fn what_somebody_else_does_meanwhile_is_not_undone() {
    let stage = Stage::start();
    stage.file("two.yaml", TWO);
    stage.meddle();
    let ran = stage.run("policies apply -f two.yaml --app shop");
    let expected = "error: nothing was applied: the policies have changed meanwhile; check again \
                    with `policies diff`\n";
    assert_eq!((ran.status, ran.err.as_str()), (Some(1), expected));
    let names = || stage.policies().into_iter().map(|view| view.name).collect::<Vec<_>>();
    assert_eq!(names(), ["meddled"]);
    let again = stage.run("policies apply -f two.yaml --app shop").ok();
    assert!(again.starts_with("- meddled\n"), "{again}");
    assert_eq!(names(), ["orders", "search"]);
}
