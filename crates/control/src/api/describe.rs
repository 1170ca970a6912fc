//! The description of the API in OpenAPI 3.1, generated from the table of routes.

use serde_json::{Map, Value as Json, json};
use utoipa::{PartialSchema, ToSchema};

use super::PREFIX;
use super::boost::Boost;
use super::budgets::{
    Budget, ExplainRequest, ExplainedKey, HeldPermits, KeyOutlook, LeasedPermits, RuleOutlook,
};
use super::handlers::{
    SignInFailure, accounts, apps, audit, import, keys, meta, permits, policies, refused, sessions,
    tokens, traffic, whatif,
};
use super::parameters::{LISTS, Parameter, parameters};
use super::problem::ProblemBody;
use super::request::{LOG, YAML};
use super::route::Route;
use super::table::ROUTES;
use crate::access::AccessRule;
use crate::api::sightings::SeenFleet;
use crate::audit::AuditEntry;
use crate::catalog::{
    AccountView, App, AppSummary, AppliedAll, Hit, Member, Node, POLICY_SCHEMA, PolicyChange,
    PolicySummary, PolicyVersion, PolicyView, SessionView,
};
use crate::limits::{IDEMPOTENCY_KEY_BYTES_MAX, PAGE_MAX, PAGE_OF_DOCUMENTS_MAX, TEXT_CHARS_MAX};
use crate::traffic::EVENT_RESULTS;

/// Returns the OpenAPI document.
pub fn openapi() -> Json {
    let mut paths = Map::new();
    for (route, _) in ROUTES {
        let path = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate admin",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Manages policies, apps, accounts and tokens.",
            "license": { "name": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "session": { "type": "apiKey", "in": "cookie", "name": super::principal::COOKIE },
                "token": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(route: &Route) -> Json {
    let problem = json!({
        "description": "An error.",
        "content": { "application/problem+json": { "schema": schema("Problem") } },
    });
    let mut answer = json!({ "description": route.action.summary() });
    let yaml = json!({ "schema": { "type": "string", "description": "The policy as YAML." } });
    if let Some(name) = route.answers {
        answer["content"] = json!({ "application/json": { "schema": schema(name) } });
    }
    if route.gives_yaml() {
        answer["content"][YAML] = yaml.clone();
    }
    let parameters = parameters(route).into_iter();
    let parameters: Vec<_> = parameters.map(|parameter| described(route, parameter)).collect();
    let mut operation = json!({
        "operationId": format!("{}_{}", route.method.as_str().to_lowercase(), id(route.path)),
        "summary": route.action.summary(),
        "parameters": parameters,
        "responses": { route.status.to_string(): answer, "default": problem },
    });
    if let Some(name) = route.asks {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema(name) } },
        });
    }
    if route.takes_log() {
        let what = "A line of JSON (`WhatIf`), then an access log, plain or gzip. At most 32 MiB.";
        let body = json!({ "schema": { "type": "string", "description": what } });
        operation["requestBody"]["content"] = json!({ LOG: body });
    }
    if route.takes_yaml() {
        operation["requestBody"]["content"][YAML] = yaml;
    }
    operation["security"] = match route.action.rule() {
        AccessRule::Everybody => json!([]),
        AccessRule::InApp(_, Some(_)) => json!([{ "session": [] }, { "token": [] }]),
        _ => json!([{ "session": [] }]),
    };
    operation
}

fn id(path: &str) -> String {
    let words = path.split(['/', '.', '{', '}']).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

fn described(route: &Route, (place, name, kind, is_required, what): Parameter<'_>) -> Json {
    let mut schema = json!({ "type": kind });
    if let (Json::Object(schema), Json::Object(bounds)) = (&mut schema, bounds(route, name)) {
        schema.extend(bounds);
    }
    json!({
        "in": place, "name": name, "required": is_required,
        "schema": schema, "description": what,
    })
}

/// Returns the values that the server accepts for a parameter: none of these is a reason for 400.
fn bounds(route: &Route, name: &str) -> Json {
    match name {
        "limit"
            if matches!(route.answers, Some("Policies" | "Versions" | "Entries" | "Changes")) =>
        {
            json!({ "minimum": 1, "maximum": PAGE_OF_DOCUMENTS_MAX })
        }
        "limit" => json!({ "minimum": 1, "maximum": PAGE_MAX }),
        "reason" => json!({ "maxLength": TEXT_CHARS_MAX }),
        "Idempotency-Key" => json!({
            "minLength": 1, "maxLength": IDEMPOTENCY_KEY_BYTES_MAX, "pattern": "^[!-~]+$",
        }),
        "If-Match" => json!({ "pattern": "^\"(0|[1-9][0-9]{0,17})\"$" }),
        // The `state` of a sign-in is not a policy's.
        "state" if route.is_called_back => json!({}),
        "state" if route.asks == Some("NewPolicy") => json!({ "enum": ["shadow", "active"] }),
        "state" => json!({ "enum": ["shadow", "active", "deleted"] }),
        "sort" => json!({ "enum": ["name", "updated"] }),
        "outcome" => json!({ "enum": ["done", "denied", "failed"] }),
        "step" => json!({ "enum": ["10s", "5m"] }),
        "result" => json!({ "enum": EVENT_RESULTS }),
        "since" | "until" => json!({ "minimum": 0, "maximum": EXACT_MAX }),
        "from" | "to" | "from_seq" => json!({ "minimum": 1, "maximum": EXACT_MAX }),
        "from_hash" => json!({ "pattern": "^[0-9a-f]{64}$" }),
        "ends_within_days" => json!({ "minimum": 1, "maximum": 731 }),
        _ => json!({}),
    }
}

/// The largest whole number that every reader of JSON keeps exact.
const EXACT_MAX: i64 = (1 << 53) - 1;

fn schema(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn add_traffic(all: &mut Map<String, Json>) {
    add::<Node>(all);
    add::<SeenFleet>(all);
    add::<traffic::Traffic>(all);
    add::<traffic::TrafficOverview>(all);
    add::<refused::RefusedKeys>(all);
    add::<refused::Rollout>(all);
    add::<whatif::WhatIfQuestion>(all);
    add::<whatif::DraftPolicy>(all);
    add::<whatif::Compared>(all);
}

fn add_imports(all: &mut Map<String, Json>) {
    add::<import::ImportText>(all);
    add::<import::ImportPreview>(all);
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
    add::<policies::Restore>(&mut all);
    add::<tokens::NewTokenBody>(&mut all);
    add::<keys::KeyParam>(&mut all);
    add::<keys::Grant>(&mut all);
    add::<permits::Release>(&mut all);
    add::<HeldPermits>(&mut all);
    add::<Boost>(&mut all);
    add::<keys::Explain>(&mut all);
    add::<ExplainRequest>(&mut all);
    add::<ExplainedKey>(&mut all);
    add::<RuleOutlook>(&mut all);
    add::<LeasedPermits>(&mut all);
    add::<KeyOutlook>(&mut all);
    add::<AccountView>(&mut all);
    add::<App>(&mut all);
    add::<Member>(&mut all);
    add::<PolicyView>(&mut all);
    add::<PolicySummary>(&mut all);
    add::<AppSummary>(&mut all);
    add::<Hit>(&mut all);
    add::<PolicyVersion>(&mut all);
    add::<policies::Validated>(&mut all);
    add::<policies::Diffs>(&mut all);
    add_imports(&mut all);
    add::<AppliedAll>(&mut all);
    add::<tokens::TokenMade>(&mut all);
    add::<tokens::EndingTokens>(&mut all);
    add::<PolicyChange>(&mut all);
    add::<AuditEntry>(&mut all);
    add::<audit::VerifiedPart>(&mut all);
    add::<SessionView>(&mut all);
    add::<accounts::Person>(&mut all);
    add::<meta::Settings>(&mut all);
    add::<SignInFailure>(&mut all);
    add::<meta::Meta>(&mut all);
    add_traffic(&mut all);
    add_policy_document(&mut all);
    for (list, item) in LISTS {
        let items = json!({ "type": "array", "items": schema(item) });
        let next = json!({ "type": "string", "description": "Cursor to pass as `after`." });
        let mut list_schema = json!({
            "type": "object",
            "properties": { "items": items, "next": next },
            "required": ["items"],
        });
        if list == "PolicySummaries" {
            let total =
                json!({ "type": "integer", "description": "How many there are on all pages." });
            list_schema["properties"]["total"] = total;
            list_schema["required"] = json!(["items", "total"]);
        }
        all.insert(list.to_owned(), list_schema);
    }
    Json::Object(all)
}

/// The schema of a policy document's policy and of its parts, as `policies schema` prints it.
fn add_policy_document(all: &mut Map<String, Json>) {
    let mut document = sluicegate_policy::schema::document();
    let Json::Object(parts) = document["$defs"].take() else { unreachable!("it has parts") };
    for (part, mut schema) in parts {
        rename_parts(&mut schema);
        all.insert(component(&part), schema);
    }
}

/// Returns the name of a part of the document's schema in this description.
fn component(part: &str) -> String {
    match part {
        "policy" => POLICY_SCHEMA.to_owned(),
        part => format!("{POLICY_SCHEMA}.{part}"),
    }
}

fn rename_parts(schema: &mut Json) {
    match schema {
        Json::Object(members) => {
            for (name, member) in members {
                match member.as_str().and_then(|text| text.strip_prefix("#/$defs/")) {
                    Some(part) if name == "$ref" => {
                        *member = format!("#/components/schemas/{}", component(part)).into();
                    }
                    _ => rename_parts(member),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(rename_parts),
        _ => {}
    }
}

fn add<T: ToSchema + PartialSchema>(all: &mut Map<String, Json>) {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    for (name, schema) in schemas {
        let schema = serde_json::to_value(schema).expect("a schema is always JSON");
        all.insert(name, schema);
    }
}
