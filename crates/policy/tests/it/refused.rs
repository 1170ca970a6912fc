//! Documents that are not policies, each with all its errors; and odd ones that are.

use std::path::Path;

use serde_json::{Value, json};
use sluicegate_policy::Policy;

fn read(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let text = std::fs::read_to_string(path).expect("the file is there");
    serde_json::from_str(&text).expect("it is a list")
}

#[test]
fn what_is_no_policy_is_refused_with_each_place_and_problem() {
    let all = read("refused.json");
    assert!(all.len() > 130, "only {}", all.len());
    for entry in all {
        let text = entry["text"].as_str().expect("a text");
        let refused = Policy::parse_one(text).expect_err(text);
        let found: Vec<_> = refused.errors().iter().map(ToString::to_string).collect();
        assert_eq!(json!(found), entry["errors"], "{text}");
    }
}

#[test]
fn every_form_of_leases_and_of_match_is_accepted() {
    let all = read("accepted.json");
    assert!(all.len() > 15, "only {}", all.len());
    for document in all {
        let text = document.to_string();
        assert!(Policy::parse_one(&text).is_ok(), "{text}: {:?}", Policy::parse_one(&text));
    }
}

#[test]
fn the_example_of_the_page_is_a_policy() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/document.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, example) = page.split_once("```json\n").expect("there is an example");
    let (document, _) = example.split_once("```").expect("it ends");
    let policy = Policy::parse_one(document).expect("it is a policy");
    assert_eq!((policy.name(), policy.overrides().count()), ("orders.create", 1));
}
