//! `sluicegate policies diff`.

use serde_json::json;
use sluicegate_control::access::Scope;

use crate::catalog_cli::stage::Stage;

const CHANGED: &str = "
policies:
  - name: keep
    rules: [{ token_bucket: { rate: 1/s } }]
  - name: change
    apps: [shop]
    rules: [{ token_bucket: { rate: 2/s } }]
  - name: new
    rules: [{ token_bucket: { rate: 1/s } }]
";

fn stage() -> Stage {
    let stage = Stage::start();
    for name in ["keep", "change", "drop"] {
        stage.policy(name, "1/s");
    }
    stage.file("new.yaml", CHANGED);
    stage
}

#[test]
fn a_difference_is_told_field_by_field_and_by_the_exit_status() {
    let stage = stage();
    let ran = stage.run("policies diff -f new.yaml --app shop");
    let expected = r#"~ change
    apps: nothing becomes ["shop"]
    rules[0].token_bucket.rate: "1/s" becomes "2/s"
- drop
+ new
shop: 1 to create, 1 to change, 1 to delete, 1 to keep
"#;
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (Some(1), expected, ""));
    let told = stage.run("policies diff -f new.yaml --app shop --output json").json();
    assert_eq!(told["equal"], false);
    assert_eq!(told["counts"], json!({ "create": 1, "update": 1, "delete": 1, "keep": 1 }));
    assert_eq!(told["policies"][0]["policy"], "change");
    assert_eq!(told["policies"][0]["changes"][1]["pointer"], "/rules/0/token_bucket/rate");
}

#[test]
fn a_token_that_only_reads_is_enough() {
    let stage = stage();
    stage.file("token", &stage.token("shop", &[Scope::PolicyRead]));
    assert_eq!(
        stage.run("policies diff -f new.yaml --app shop --token-file token").status,
        Some(1)
    );
    let refused = stage.run("policies apply -f new.yaml --app shop --token-file token");
    assert_eq!(refused.status, Some(1));
    assert_eq!(
        refused.err,
        "error: nothing was applied: permission denied: the token lacks the scope `policy:write`\n"
    );
}

#[test]
fn trouble_is_another_exit_status_than_a_difference() {
    let stage = stage();
    stage.file("bad/a.yaml", "policies: [{ name: A }]");
    stage.file("bad/b.yaml", "policies: [{ name: b, rules: [{ token_bucket: { rate: fast } }] }]");
    let ran = stage.run("policies diff -f bad --app shop");
    assert_eq!(ran.status, Some(2));
    for line in [
        "bad/a.yaml:1:20: policies[0].name: invalid name `A`",
        "bad/b.yaml:1:55: policies[0] (b).rules[0].token_bucket.rate: ",
    ] {
        assert!(ran.err.contains(line), "{ran:?}");
    }
    let told = stage.run("policies diff -f bad --app shop --output json").json();
    assert_eq!(told["errors"][0]["file"], "bad/a.yaml");
    assert_eq!(told["errors"][0]["path"], "policies[0].name");
    assert_eq!((&told["errors"][0]["line"], &told["errors"][0]["column"]), (&1.into(), &20.into()));
    for command in [
        "policies diff -f nowhere --app shop",
        "policies diff -f new.yaml --app shop --to http://127.0.0.1:9",
        "policies diff -f new.yaml --app bank",
    ] {
        let ran = stage.run(command);
        assert_eq!(ran.status, Some(2), "{command}");
        assert!(ran.err.starts_with("error: "), "{ran:?}");
    }
}
