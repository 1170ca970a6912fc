//! The description of the API, and the page that says who may what.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use sluicegate_control::api::{access_table, openapi};

use crate::api::client::{Client, Served};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// The file is `text`; with `SLUICEGATE_WRITE=1` it is made so.
fn assert_file(path: &Path, text: &str) {
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        fs::write(path, text).expect("the file can be written");
    }
    let there = fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == text,
        "{} is not what the code says: SLUICEGATE_WRITE=1 writes it",
        path.display()
    );
}

#[test]
fn the_description_is_the_one_that_is_kept() {
    let text = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    assert_file(&docs("openapi-admin.json"), &text);
}

#[test]
fn the_page_of_roles_has_the_table() {
    let path = docs("roles.md");
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- table -->\n", "<!-- end of table -->");
    let (head, rest) = page.split_once(begin).expect("the page has a place for the table");
    let (_, tail) = rest.split_once(end).expect("the place has an end");
    assert_file(&path, &format!("{head}{begin}{}{end}{tail}", access_table()));
}

#[test]
fn every_schema_that_is_named_is_there() {
    let description = openapi();
    let mut names = Vec::new();
    find(&description, &mut names);
    assert!(names.len() > 50);
    for name in names {
        let name = name.strip_prefix("#/components/schemas/").expect("all are kept there");
        assert!(description["components"]["schemas"].get(name).is_some(), "{name}");
    }
}

fn find<'j>(json: &'j Json, names: &mut Vec<&'j str>) {
    match json {
        Json::Object(members) => {
            names.extend(members.get("$ref").and_then(Json::as_str));
            members.values().for_each(|member| find(member, names));
        }
        Json::Array(items) => items.iter().for_each(|item| find(item, names)),
        _ => {}
    }
}

#[tokio::test]
async fn everybody_may_read_the_description() {
    let served = Served::start().await;
    let answer = served.ask(&Client::default(), "GET /openapi.json", None).await;
    assert_eq!((answer.status.as_u16(), &answer.body), (200, &openapi()));
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn the_schema_of_policies_is_served_and_is_that_of_documents_in_the_description() {
    let served = Served::start().await;
    let schema = served.ask(&Client::default(), "GET /schema/policy.json", None).await.body;
    assert_eq!(schema, sluicegate_policy::schema::document());
    let schemas = &openapi()["components"]["schemas"];
    let document = &schemas["NewPolicy"]["properties"]["document"]["$ref"];
    assert_eq!(document, "#/components/schemas/Document");
    let parts = schema["$defs"]["policy"]["properties"].as_object().unwrap();
    let described = schemas["Document"]["properties"].as_object().unwrap();
    assert!(parts.len() > 5 && parts.keys().eq(described.keys()));
}
