//! The description of the API, and the page of permissions.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sluicegate_control::api::{access_table, openapi};

use crate::api::client::{Client, Served, document};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Asserts that the file is `text`; with `SLUICEGATE_WRITE=1` it is written.
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

/// Returns the smallest and largest values of a parameter, or all its words.
fn ends_of(schema: &Json) -> Vec<String> {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().filter_map(Json::as_str).map(str::to_owned).collect();
    }
    let ends = ["minimum", "maximum"].into_iter().filter_map(|end| schema[end].as_i64());
    ends.map(|number| number.to_string()).collect()
}

/// A generated client sends what the description permits.
#[tokio::test]
async fn a_query_within_the_bounds_of_the_description_is_never_the_reason_for_400() {
    let (served, ada) = Served::with_admin().await;
    let body = json!({ "name": "shop" });
    assert_eq!(served.ask(&ada, "POST /apps", Some(body)).await.status, 201);
    let body = json!({ "document": document("p", "1/s"), "state": "active" });
    assert_eq!(served.ask(&ada, "POST /apps/shop/policies", Some(body)).await.status, 201);
    let description = openapi();
    let mut tried = 0;
    for (path, operations) in description["paths"].as_object().expect("paths") {
        let Some(parameters) = operations["get"]["parameters"].as_array() else { continue };
        // A stream does not end, and a sign-in by a provider is not begun here.
        if path.ends_with("/stream") || path.contains("/oidc") {
            continue;
        }
        let path = path.strip_prefix("/v1/admin").expect("all begin so");
        let path = path.replace("{app}", "shop").replace("{policy}", "p").replace("{version}", "1");
        for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
            let name = parameter["name"].as_str().expect("a name");
            // Numbers of versions and entries are of things that may not be there.
            let alone = !matches!(name, "from" | "to" | "from_seq" | "from_hash");
            for value in ends_of(&parameter["schema"]).iter().filter(|_| alone) {
                let answer = served.ask(&ada, &format!("GET {path}?{name}={value}"), None).await;
                assert_eq!(answer.status, 200, "{path}?{name}={value}: {}", answer.body);
                tried += 1;
            }
        }
    }
    assert!(tried > 40, "{tried} queries");
}

#[tokio::test]
async fn a_list_is_no_object_and_a_whole_number_may_have_a_point() {
    let (served, ada) = Served::with_admin().await;
    let listed = served.ask(&ada, "POST /apps", Some(json!(["listed"]))).await;
    assert_eq!(
        (listed.status.as_u16(), listed.body["errors"][0]["pointer"].as_str()),
        (422, Some(""))
    );
    let detail = listed.body["errors"][0]["detail"].as_str().unwrap_or_default();
    assert!(detail.starts_with("invalid type: sequence, expected an object"), "{detail}");
    assert_eq!(served.ask(&ada, "GET /apps/listed", None).await.status, 404);

    let body = json!({ "name": "shop" });
    assert_eq!(served.ask(&ada, "POST /apps", Some(body)).await.status, 201);
    let wanted = json!({ "policies": [[document("p", "1/s"), "active"]] });
    let applied = served.ask(&ada, "PUT /apps/shop/policies", Some(wanted)).await;
    assert_eq!(applied.status, 422, "{}", applied.body);
    let token = json!({ "name": "t", "scopes": ["check"], "expires_in_days": 3.0 });
    let made = served.ask(&ada, "POST /apps/shop/tokens", Some(token)).await;
    assert_eq!(made.status, 201, "{}", made.body);
}

#[tokio::test]
async fn a_query_has_the_parameters_of_its_operation_and_no_other() {
    let (served, ada) = Served::with_admin().await;
    served.ask(&ada, "POST /apps", Some(json!({ "name": "shop" }))).await;
    for (path, operations) in openapi()["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap();
            let of_query = parameters.iter().filter(|parameter| parameter["in"] == "query");
            let names: Vec<_> =
                of_query.map(|parameter| parameter["name"].as_str().unwrap()).collect();
            // The provider sends what it likes.
            if path.ends_with("/oidc/callback") {
                continue;
            }
            let path = path.trim_start_matches("/v1/admin").replace("{app}", "shop");
            for other in ["from_hash", "lmit"] {
                if names.contains(&other) {
                    continue;
                }
                let question = format!("{} {path}?{other}=1", method.to_uppercase());
                let answer = served.ask(&ada, &question, None).await;
                let problem = answer.body["detail"].as_str().unwrap();
                assert_eq!(answer.status, 400, "{question}: {problem}");
                assert!(
                    problem.contains(&format!("unknown field `{other}`")),
                    "{question}: {problem}"
                );
                assert!(names.iter().all(|name| problem.contains(name)), "{question}: {problem}");
            }
        }
    }
}
