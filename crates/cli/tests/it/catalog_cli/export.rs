//! `sluicegate policies export`.

use std::fs;

use serde_json::json;
use sluicegate_control::access::Scope;
use sluicegate_control::catalog::{PolicyAt, PolicyState};

use crate::catalog_cli::stage::{Stage, by, document};

#[test]
fn what_is_exported_is_a_document_and_applying_it_changes_nothing() {
    let stage = Stage::start();
    stage.policy("orders", "10/s");
    let strange = json!({
        "name": "strange", "match": { "path": { "prefix": "/a" }, "method": ["GET"] },
        "key": ["remote_ip"], "on_store_failure": "deny", "leases": "off",
        "rules": [
            { "name": "warm", "smooth_warmup": { "rate": "5/s", "warmup": "3s", "cold_factor": 3.5 } },
            { "name": "daily", "fixed_window": { "limit": 4_294_967_295_u32, "calendar": "day", "time_zone": "Europe/Berlin" } },
        ],
        "overflow": { "degrade": { "response": {
            "status": 503, "headers": { "x-a": "no" }, "body": "one: #two\n  - 'three'\ttab \u{e9} \u{1F600}\n",
        } } },
    });
    let catalog = &stage.catalog;
    stage.wait(catalog.create_policy(&by(), "shop", &strange, PolicyState::Shadow)).unwrap();
    let text = stage.run("policies export --app shop").ok();
    assert!(text.starts_with("policies:\n- name: orders\n  rules:\n"), "{text}");
    assert!(text.contains("# shadow: refuses nothing\n- name: strange\n"), "{text}");
    assert!(text.contains("\n  on_store_failure: deny\n  leases: "), "{text}");
    stage.file("all.yaml", &text);
    stage.file("all.json", &stage.run("policies export --app shop --output json").ok());
    for file in ["all.yaml", "all.json"] {
        let diff = stage.run(&format!("policies diff -f {file} --app shop"));
        assert_eq!(diff.ok(), "shop: 0 to create, 0 to change, 0 to delete, 2 to keep\n");
        let applied = stage.run(&format!("policies apply -f {file} --app shop"));
        assert_eq!(applied.ok(), "shop: nothing to do\n");
    }
    let states: Vec<_> = stage.policies().iter().map(|view| (view.version, view.state)).collect();
    assert_eq!(states, [(1, PolicyState::Active), (1, PolicyState::Shadow)], "nothing was changed");
}

#[test]
fn a_directory_has_a_file_for_each_policy_and_is_applied_as_it_is() {
    let stage = Stage::start();
    for name in ["orders", ".hidden", "a.b"] {
        stage.policy(name, "10/s");
    }
    let said = stage.run("policies export --app shop -f policies").ok();
    assert_eq!(said, "3 policies of shop written to policies\n");
    let mut names: Vec<_> = fs::read_dir(stage.folder.path().join("policies"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["%2ehidden.yaml", "a.b.yaml", "orders.yaml"]);
    assert_eq!(stage.run("policies diff -f policies --app shop").status, Some(0));
    // A second export, after one policy has changed.
    stage.wait(async {
        let changed = document("orders", "20/s");
        stage
            .catalog
            .change_policy(&by(), &PolicyAt::new("shop", "orders", 1), &changed)
            .await
            .unwrap()
    });
    assert_eq!(stage.run("policies diff -f policies --app shop").status, Some(1));
    let told = stage.run("policies export --app shop -f policies --output json").json();
    let expected =
        json!({ "app": "shop", "directory": "policies", "policies": [".hidden", "a.b", "orders"] });
    assert_eq!(told, expected);
    assert_eq!(stage.run("policies diff -f policies --app shop").status, Some(0));
}

#[test]
fn a_directory_with_other_documents_is_left_as_it_is() {
    let stage = Stage::start();
    stage.policy("orders", "10/s");
    stage.file("policies/old.yaml", "policies: []\n");
    stage.file("policies/README.md", "none of them");
    let ran = stage.run("policies export --app shop -f policies");
    assert_eq!(ran.status, Some(1));
    assert!(
        ran.err.starts_with("error: policies/old.yaml is not one of these policies"),
        "{ran:?}"
    );
    assert!(!stage.folder.path().join("policies/orders.yaml").exists());
}

#[test]
fn more_policies_than_a_page_are_all_exported() {
    let stage = Stage::start();
    let mut text = "policies:\n".to_owned();
    for number in 0..250 {
        text += &format!(
            "  - {{ name: p{number:03}, rules: [{{ fixed_window: {{ limit: 1, window: 1s }} }}] }}\n"
        );
    }
    stage.file("many.yaml", &text);
    let counted = "shop: 250 created, 0 changed, 0 deleted, 0 unchanged\n";
    assert!(stage.run("policies apply -f many.yaml --app shop").ok().ends_with(counted));
    assert_eq!(stage.run("policies export --app shop").ok().matches("- name: ").count(), 250);
    assert_eq!(stage.run("policies diff -f many.yaml --app shop").status, Some(0));
}

#[test]
fn who_has_no_right_or_no_token_is_told() {
    let stage = Stage::start();
    let mut command = stage.command("policies export --app shop");
    let none = crate::catalog_cli::stage::finish(command.env_remove("SLUICEGATE_TOKEN"));
    assert_eq!(none.status, Some(1));
    assert!(none.err.contains("no token and no login for 127.0.0.1:"), "{none:?}");
    let forbidden = stage.run("policies export --app bank");
    assert_eq!(forbidden.err, "error: permission denied\n");
    // The file takes precedence over the variable.
    let token = stage.token("bank", &[Scope::PolicyRead]);
    stage.file("token", &format!("{token}\n"));
    assert_eq!(stage.run("policies export --app bank --token-file token").ok(), "policies: []\n");
    let lost = stage.run("policies export --app shop --token-file nowhere");
    assert!(lost.err.starts_with("error: cannot read nowhere"), "{lost:?}");
    let elsewhere = stage.run("policies export --app ../bank");
    assert_eq!(elsewhere.status, Some(2));
}
