//! What the API answers, as OpenAPI 3.1: made of the table of routes.

use serde_json::{Map, Value as Json, json};
use utoipa::{PartialSchema, ToSchema};

use super::PREFIX;
use super::budgets::Budget;
use super::handlers::{accounts, apps, keys, policies, sessions, tokens};
use super::problem::ProblemBody;
use super::table::{ROUTES, Route};
use crate::access::{Action, Rule};
use crate::audit::{Entry, Verified};
use crate::catalog::{AccountView, App, AppliedAll, Member, Node, PolicyVersion, PolicyView};

/// The description.
pub fn openapi() -> Json {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate admin",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Policies, and who may change them.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": super::who::COOKIE },
                "token": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(route: &Route) -> Json {
    let problem = json!({
        "description": "What went wrong.",
        "content": { "application/problem+json": { "schema": schema("Problem") } },
    });
    let mut answer = json!({ "description": route.action.summary() });
    if let Some(name) = route.answers {
        answer["content"] = json!({ "application/json": { "schema": schema(name) } });
    }
    let mut operation = json!({
        "operationId": format!("{}_{}", route.method.as_str().to_lowercase(), id(route.path)),
        "summary": route.action.summary(),
        "parameters": parameters(route),
        "responses": { route.status.to_string(): answer, "default": problem },
    });
    if let Some(name) = route.asks {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema(name) } },
        });
    }
    operation["security"] = match route.action.rule() {
        Rule::Everybody => json!([]),
        Rule::InApp(_, Some(_)) => json!([{ "session": [] }, { "token": [] }]),
        _ => json!([{ "session": [] }]),
    };
    operation
}

fn id(path: &str) -> String {
    let words = path.split(['/', '.', '{', '}']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

fn parameters(route: &Route) -> Vec<Json> {
    let parameter = |place: &str, name: &str, kind: &str, is_required: bool, what: &str| {
        json!({
            "in": place, "name": name, "required": is_required,
            "schema": { "type": kind }, "description": what,
        })
    };
    let mut all: Vec<_> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| parameter("path", name, "string", true, "By its name."))
        .collect();
    if route.action.writes() {
        all.push(parameter("query", "reason", "string", false, "Why, for the audit."));
    }
    if route.action.can_be_shown() {
        all.push(parameter("query", "dry_run", "boolean", false, "Only says what it would do."));
        all.push(parameter("query", "force", "boolean", false, "Does it in spite of warnings."));
        let again = "A name for this request: sent again, it is done once.";
        all.push(parameter("header", "Idempotency-Key", "string", false, again));
    }
    if route.is_called_back {
        let page = "What the provider gave the browser for this.";
        all.push(parameter("query", "code", "string", false, page));
        all.push(parameter("query", "state", "string", true, "What the provider was given."));
        all.push(parameter("query", "error", "string", false, "Why the provider gave no code."));
    }
    if route.is_versioned {
        let tag = "The `ETag` of what is to be changed.";
        all.push(parameter("header", "If-Match", "string", true, tag));
    }
    if route.action == Action::ApplyPolicies {
        let tag = "The `ETag` of a dry run: applies what it showed, or nothing.";
        all.push(parameter("header", "If-Match", "string", false, tag));
    }
    if let Some(list) = LISTS.iter().find(|(list, _)| route.answers == Some(list)) {
        all.push(parameter("query", "after", "string", false, "`next` of the page before."));
        let limit = match list.0 {
            "Policies" | "Versions" | "Entries" => "1 to 100, which it is if not said.",
            _ => "1 to 1000; 100 if not said.",
        };
        all.push(parameter("query", "limit", "integer", false, limit));
    }
    if route.answers == Some("Diffs") {
        all.push(parameter("query", "from", "integer", false, "A version; the one before `to`."));
        all.push(parameter("query", "to", "integer", false, "A version; the one that holds."));
    }
    all
}

/// Lists, and what they are of.
const LISTS: [(&str, &str); 8] = [
    ("Accounts", "Account"),
    ("Apps", "App"),
    ("Members", "Member"),
    ("Policies", "Policy"),
    ("Versions", "Version"),
    ("Tokens", "Token"),
    ("Entries", "Entry"),
    ("Nodes", "Node"),
];

fn schema(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schemas() -> Json {
    let mut all = Map::new();
    add::<ProblemBody<'_>>(&mut all);
    add::<Budget>(&mut all);
    add::<sessions::SetUp>(&mut all);
    add::<sessions::SignIn>(&mut all);
    add::<sessions::NewPassword>(&mut all);
    add::<sessions::Me>(&mut all);
    add::<accounts::NewAccountBody>(&mut all);
    add::<accounts::AccountChangeBody>(&mut all);
    add::<apps::NewApp>(&mut all);
    add::<apps::AppChange>(&mut all);
    add::<apps::MemberRole>(&mut all);
    add::<policies::NewPolicy>(&mut all);
    add::<policies::PolicyDocument>(&mut all);
    add::<policies::WantedPolicies>(&mut all);
    add::<policies::RollBack>(&mut all);
    add::<tokens::NewTokenBody>(&mut all);
    add::<keys::Key>(&mut all);
    add::<keys::Grant>(&mut all);
    add::<AccountView>(&mut all);
    add::<App>(&mut all);
    add::<Member>(&mut all);
    add::<PolicyView>(&mut all);
    add::<PolicyVersion>(&mut all);
    add::<policies::Validated>(&mut all);
    add::<policies::Diffs>(&mut all);
    add::<AppliedAll>(&mut all);
    add::<tokens::TokenMade>(&mut all);
    add::<Entry>(&mut all);
    add::<Verified>(&mut all);
    add::<Node>(&mut all);
    for (list, item) in LISTS {
        let items = json!({ "type": "array", "items": schema(item) });
        let next = json!({ "type": "string", "description": "What to ask for as `after`." });
        let list_schema = json!({
            "type": "object",
            "properties": { "items": items, "next": next },
            "required": ["items"],
        });
        all.insert(list.to_owned(), list_schema);
    }
    Json::Object(all)
}

fn add<T: ToSchema + PartialSchema>(all: &mut Map<String, Json>) {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    for (name, schema) in schemas {
        let schema = serde_json::to_value(schema).expect("a schema is always JSON");
        all.insert(name, schema);
    }
}
