//! The OpenAPI 3.1 description of this wire, made from the tables that requests are read by.

mod others;

use std::sync::LazyLock;

use sluicegate_text::fields::{Field, FieldKind};
use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, Header, InfoBuilder, Object, ObjectBuilder, OneOfBuilder, OpenApi,
    OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required, Response, ResponseBuilder,
    Schema,
};

use super::auth::{AUTH, AUTH_POLICY};
use super::codec::{
    DecisionBody, Explained, Operation, ProblemDocument, RefusalProblem, SettledBody,
};
use super::deny::STATUSES;
use others::AuthBy;

/// The path of the description.
pub(super) const PATH: &str = "/v1/openapi.json";

/// The description.
pub(super) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = describe().to_pretty_json().expect("texts and numbers are always JSON");
        text.push('\n');
        text
    });
    &TEXT
}

fn describe() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Sluicegate")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Decides whether a request is allowed now, must wait, or is refused. A refusal has \
             status 200, unless you ask for `?deny=429`. An invalid request gets a problem \
             (RFC 9457) that names the field.",
        ))
        .license(Some(utoipa::openapi::License::new("Apache-2.0 OR MIT")))
        .build();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(bodies())
        .schema("Check", request(Operation::Check))
        .schema("BatchAnswer", batch_answer())
        .security_scheme(BEARER, bearer())
        .security_scheme(GATEWAY, gateway())
        .build();
    let mut paths = PathsBuilder::new();
    for operation in Operation::ALL {
        let item = PathItem::new(HttpMethod::Post, described(operation));
        paths = paths.path(operation.path(), item);
    }
    let paths = paths
        .path("/json", PathItem::new(HttpMethod::Post, others::by_descriptors()))
        .path(AUTH, PathItem::new(HttpMethod::Get, others::auth(AuthBy::Match)))
        .path(AUTH_POLICY, PathItem::new(HttpMethod::Get, others::auth(AuthBy::Policy)))
        .path(PATH, PathItem::new(HttpMethod::Get, others::document()))
        .path("/healthcheck", PathItem::new(HttpMethod::Get, others::healthcheck()))
        .path("/livez", PathItem::new(HttpMethod::Get, others::live()))
        .path("/readyz", PathItem::new(HttpMethod::Get, others::ready()))
        .build();
    OpenApiBuilder::new().info(info).components(Some(components)).paths(paths).build()
}

/// The bodies of answers, and the types in them.
fn bodies() -> Vec<(String, RefOr<Schema>)> {
    fn of<T: ToSchema>() -> Vec<(String, RefOr<Schema>)> {
        let mut bodies = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut bodies);
        bodies
    }
    [
        of::<DecisionBody<'_>>(),
        of::<SettledBody<'_>>(),
        of::<Explained<'_>>(),
        of::<ProblemDocument<'_>>(),
        of::<RefusalProblem<'_>>(),
    ]
    .concat()
}

/// A token of the catalog, as clients send it.
fn bearer() -> SecurityScheme {
    let what = "An app token from the catalog. `catalog.tokens_required` and the listen address \
                decide whether a token is required. The request counts as made by the app of \
                the token.";
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(what));
    SecurityScheme::Http(bearer.build())
}

/// The token of a gateway, in a header field of its own.
fn gateway() -> SecurityScheme {
    let what = "Token of the gateway; `Authorization` belongs to its client.";
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(
        "X-Sluicegate-Token",
        what,
    )))
}

/// A token, or none where none is required.
fn by_token(operation: OperationBuilder, scheme: &str) -> OperationBuilder {
    let token = SecurityRequirement::new(scheme, Vec::<String>::new());
    operation.security(token).security(SecurityRequirement::default())
}

/// The description of the refusal of a host that is not one of this machine.
const OTHER_HOST: &str = "On a loopback address: `Host` is neither local nor one of \
                          `server.allowed_hosts`.";

fn described(operation: Operation) -> Described {
    let (id, summary) = summary(operation);
    let body = RequestBodyBuilder::new()
        .content(JSON, Content::new(Some(request(operation))))
        .required(Some(Required::True))
        .build();
    let forbidden = "The policy is not available to this app (`code` is 0), the token lacks the \
                     scope, or it belongs to another app.";
    let mut described = OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .request_body(Some(body))
        .response("200", with_budget_headers(operation, answer(operation)))
        .response("401", challenged(problem("Missing or invalid token.")))
        .response(
            "400",
            problem("Invalid request; the detail names the field and what is permitted."),
        )
        .response("403", problem(forbidden))
        .response("404", problem("Unknown policy."))
        .response("408", problem("Timeout while reading the body."))
        .response("413", problem("The body exceeds 64 KiB."))
        .response("415", problem("The body is not `application/json`."))
        .response("421", problem(OTHER_HOST));
    if operation.may_deny() {
        let refused = "Only with `?deny=429`: the request was refused.";
        let otherwise = "Only with another status in `deny`: the request was refused.";
        let nobody = "Store unavailable. With `?deny=429` also: refused without the store, by \
                      `on_store_failure: deny`, or as the store did not decide in time (`shed`).";
        let either = OneOfBuilder::new().item(schema("Refusal")).item(schema("Problem"));
        let either = RefOr::T(Schema::from(either.build()));
        let forbidden = format!("{forbidden} With `?deny=403` also: the request was refused.");
        described = described
            .parameter(deny())
            .response(
                "429",
                with_budget_headers(operation, answered(refused, PROBLEM, schema("Refusal"))),
            )
            .response("403", answered(&forbidden, PROBLEM, either.clone()))
            .response("503", answered(nobody, PROBLEM, either))
            .response("default", answered(otherwise, PROBLEM, schema("Refusal")));
    } else {
        described = described.response("503", problem("Store unavailable."));
    }
    if operation == Operation::Settle {
        described = described.response("409", problem("Already settled; nothing was changed."));
    }
    by_token(described, BEARER).build()
}

const fn summary(operation: Operation) -> (&'static str, &'static str) {
    match operation {
        Operation::Check => ("check", "Take permits, or be refused."),
        Operation::Batch => ("checkBatch", "Up to 100 checks, each on its own or all or nothing."),
        Operation::AtMost => {
            ("atMost", "Take as many permits as are left, up to `cost`; see `granted`.")
        }
        Operation::Peek => (
            "peek",
            "Show what the rules say to a check, without taking permits. `overflow` does not apply: over the limit \
             it is a refusal, also where a check is delayed or passes in shadow.",
        ),
        Operation::Refund => ("refund", "Give permits back, never above the limit."),
        Operation::Reset => ("reset", "Reset the usage of a key."),
        Operation::Acquire => ("acquire", "Acquire a permit of a `concurrency` rule."),
        Operation::Renew => ("renew", "Extend a permit by another `ttl`."),
        Operation::Release => ("release", "Release a permit."),
        Operation::Settle => ("settle", "Correct a charge to the actual cost, once per id."),
        Operation::Explain => (
            "explain",
            "Show which rules apply to a request, and the result of each. As for `peek`, `overflow` does not \
                 apply to it.",
        ),
    }
}

fn answer(operation: Operation) -> Response {
    let (what, name) = match operation {
        Operation::Batch => ("Results, in the order of the checks.", "BatchAnswer"),
        Operation::Settle => ("The settlement.", "Settlement"),
        Operation::Explain => ("What the rules say to a check, and why.", "Explanation"),
        _ => ("The decision, allowed or refused.", "Decision"),
    };
    answered(what, JSON, schema(name))
}

fn answered(what: &str, media_type: &str, body: RefOr<Schema>) -> Response {
    ResponseBuilder::new().description(what).content(media_type, Content::new(Some(body))).build()
}

fn problem(what: &str) -> Response {
    answered(what, PROBLEM, schema("Problem"))
}

/// Adds the challenge to `answer`.
fn challenged(mut answer: Response) -> Response {
    let mut header = Header::new(Object::with_type(Type::String));
    header.description = Some("`Bearer`, with the error code of the token (RFC 6750).".to_owned());
    answer.headers.insert("WWW-Authenticate".to_owned(), RefOr::T(header));
    answer
}

/// Adds the header fields about the budget to `answer`, if `operation` has them.
fn with_budget_headers(operation: Operation, mut answer: Response) -> Response {
    if operation.tells() {
        for (name, what, is_text) in FIELDS {
            let kind = if is_text { Type::String } else { Type::Integer };
            let mut header = Header::new(Object::with_type(kind));
            header.description = Some(what.to_owned());
            answer.headers.insert(name.to_owned(), RefOr::T(header));
        }
    }
    answer
}

fn deny() -> Parameter {
    let (least, most) = STATUSES.into_inner();
    let status = ObjectBuilder::new().schema_type(Type::Integer);
    let status = status.minimum(Some(least)).maximum(Some(most));
    ParameterBuilder::new()
        .name("deny")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("Status of a refusal; default 200."))
        .schema(Some(status))
        .build()
}

/// The schema of the body of `operation`.
fn request(operation: Operation) -> Schema {
    let form = operation.form();
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
        .examples([serde_json::from_str::<serde_json::Value>(form.example)
            .expect("the example of a form is an object")]);
    for field in form.fields {
        object = object.property(field.name(), value(*field));
    }
    for field in operation.required() {
        object = object.required(field.name());
    }
    object.into()
}

/// The schema of a field.
fn value(field: Field) -> RefOr<Schema> {
    let object = ObjectBuilder::new().description(Some(meaning(field)));
    let typed = |kind: Type| match field.may_be_null() {
        true => SchemaType::Array(vec![kind, Type::Null]),
        false => SchemaType::Type(kind),
    };
    match field.kind() {
        FieldKind::Whole { min, max } => {
            let object = object.schema_type(typed(Type::Integer));
            object.minimum(Some(min)).maximum(Some(max)).into()
        }
        FieldKind::Text { bytes_max } => {
            let object = object.schema_type(typed(Type::String));
            object.min_length(Some(1)).max_length(bytes_max).into()
        }
        FieldKind::Flag => object.schema_type(typed(Type::Boolean)).into(),
        FieldKind::Raw => ArrayBuilder::new()
            .items(schema("Check"))
            .min_items(Some(1))
            .max_items(Some(super::codec::CHECKS_MAX))
            .description(Some(meaning(field)))
            .into(),
    }
}

const fn meaning(field: Field) -> &'static str {
    match field {
        Field::Policy => "Name of the policy.",
        Field::Key => {
            "Key of the budget; omitted or `null`: one shared budget. At most 1024 bytes."
        }
        Field::App => "The calling app; some policies are restricted to certain apps.",
        Field::Cost => "Number of permits; default 1.",
        Field::MaxWaitMs => {
            "Maximum wait. If a check can pass within it, the permits are reserved and \
             `wait_us` tells how long to wait. Not all algorithms can reserve; others set \
             `retry_after_us`. An `acquire` is answered when it has a permit, or after this wait; \
             its rule needs a `queue`."
        }
        Field::Id => {
            "Identifier, at most 1024 bytes. The server generates one for a permit without an id."
        }
        Field::Charged => "Permits charged before.",
        Field::ActualCost => "Actual cost in permits.",
        Field::Checks => "The checks.",
        Field::Atomic => "Whether to charge all checks or none; default `false`.",
        Field::At => {
            "A steady load of requests of one permit, such as `500/s`. The answer then has \
             `endurance`."
        }
        Field::AtUs | Field::Op | Field::MaxWaitUs | Field::Document => "",
    }
}

fn batch_answer() -> Schema {
    let either = OneOfBuilder::new().item(schema("Decision")).item(schema("Problem")).build();
    let answers = ArrayBuilder::new()
        .items(RefOr::T(either.into()))
        .max_items(Some(super::codec::CHECKS_MAX))
        .description(Some(
            "In the order of the checks. For a refused atomic batch: only the check \
                           that was refused.",
        ));
    let boolean = ObjectBuilder::new().schema_type(Type::Boolean);
    let integer = || ObjectBuilder::new().schema_type(Type::Integer);
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("answers", answers)
        .property(
            "allowed",
            boolean.description(Some("Atomic batch only: whether all checks passed.")),
        )
        .property("code", integer().description(Some("Atomic batch only: 1 or -1.")))
        .property(
            "refused",
            integer().description(Some(
                "Refused atomic batch only: index of the check that was refused, from 0. Nothing \
                 is charged.",
            )),
        )
        .required("answers")
        .into()
}

fn schema(name: &str) -> RefOr<Schema> {
    Ref::from_schema_name(name).into()
}

/// Header fields about the budget: the name, the description, and whether it is text.
const FIELDS: [(&str, &str, bool); 6] = [
    ("RateLimit-Policy", "The limits: `\"burst\";q=100;w=60`.", true),
    ("RateLimit", "What is left of the tightest limit: `\"burst\";r=50;t=30`.", true),
    (
        "Retry-After",
        "Seconds until a refused request can pass, also of one that passed in shadow; absent if it never can.",
        false,
    ),
    ("X-RateLimit-Limit", "The limit; sent if `http.headers` has `x-ratelimit`.", false),
    ("X-RateLimit-Remaining", "Permits left.", false),
    ("X-RateLimit-Reset", "Seconds until the budget is full, or the request can pass.", false),
];

/// The names of the security schemes.
const BEARER: &str = "token";
const GATEWAY: &str = "gatewayToken";

const JSON: &str = "application/json";
const PROBLEM: &str = sluicegate::internals::http::problem::MEDIA_TYPE;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use serde_json::Value;

    use super::*;

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

    fn parsed() -> Value {
        serde_json::from_str(text()).expect("it is JSON")
    }

    #[test]
    fn the_committed_description_is_what_the_code_says() {
        if std::env::var_os("SLUICEGATE_WRITE").is_some() {
            fs::write(COMMITTED, text()).unwrap();
        }
        let anew = "SLUICEGATE_WRITE=1 cargo test -p sluicegate-server --lib openapi";
        let committed = fs::read_to_string(COMMITTED).unwrap_or_default();
        assert!(committed == text(), "docs/openapi.json is old, write it anew: {anew}");
    }

    #[test]
    fn it_is_openapi_3_1_and_has_every_path() {
        let document = parsed();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        let paths = document["paths"].as_object().unwrap();
        for operation in Operation::ALL {
            assert!(paths[operation.path()]["post"]["responses"]["200"].is_object());
        }
        for path in [AUTH, AUTH_POLICY] {
            assert!(paths[path]["get"]["responses"]["429"].is_object());
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_a_name_of_its_own() {
        fn walk<'v>(value: &'v Value, see: &mut impl FnMut(&'v str, &'v Value)) {
            match value {
                Value::Object(members) => {
                    for (name, member) in members {
                        see(name, member);
                        walk(member, see);
                    }
                }
                Value::Array(members) => members.iter().for_each(|member| walk(member, see)),
                _ => {}
            }
        }
        let document = parsed();
        let (mut references, mut ids) = (BTreeSet::new(), Vec::new());
        walk(&document, &mut |name, value| match (name, value.as_str()) {
            ("$ref", Some(to)) => drop(references.insert(to.trim_start_matches('#'))),
            ("operationId", Some(id)) => ids.push(id),
            _ => {}
        });
        assert!(references.len() >= 5, "{references:?}");
        for to in references {
            assert!(document.pointer(to).is_some(), "{to} leads nowhere");
        }
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
    }
}
