//! Descriptions of this wire's other paths: for gateways, documentation and health checks.

use utoipa::openapi::path::{
    Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{Content, ObjectBuilder, RefOr, Required, ResponseBuilder};

use super::{BEARER, GATEWAY, JSON, OTHER_HOST, answered, by_token, challenged, problem};

/// The policies that a gateway asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthBy {
    /// All policies whose `match` guards the request.
    Match,
    /// The policy in the path.
    Policy,
}

pub(super) fn auth(by: AuthBy) -> Described {
    let (id, summary) = match by {
        AuthBy::Match => ("authByMatch", "Forward-auth with all policies whose `match` applies."),
        AuthBy::Policy => ("authByPolicy", "Forward-auth with one policy."),
    };
    let mut described = OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .description(Some(
            "The gateway describes the original request in `X-Original-URI` and \
             `X-Original-Method`, or in `X-Forwarded-Uri`, `-Method`, `-Host` and `-For`. They are \
             accepted only from `http.trusted_peers`. All methods behave the same.",
        ))
        .parameter(text("app", ParameterIn::Query, "The app that the gateway acts for."))
        .parameter(text(
            "deny",
            ParameterIn::Query,
            "Status of a refusal, 400 to 599; default 429.",
        ))
        .response(
            "200",
            ResponseBuilder::new().description("Allowed. `X-Sluicegate-Verdict` has the details. `X-Sluicegate-Permit` is the permit of a policy with a `concurrency` rule, as the body that releases it."),
        )
        .response("429", problem("Refused; see `X-Sluicegate-Verdict` and `Retry-After`."))
        .response("403", problem("Refused, with `?deny=403`; any other status likewise."))
        .response("400", problem("Invalid client request."))
        .response("421", problem(OTHER_HOST))
        .response(
            "500",
            problem("Invalid gateway request, untrusted gateway, or invalid gateway token."),
        )
        .response("503", problem("Store unavailable."));
    if by == AuthBy::Policy {
        described = described.parameter(text("policy", ParameterIn::Path, "Name of the policy."));
    }
    by_token(described, GATEWAY).build()
}

fn text(name: &str, place: ParameterIn, what: &str) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(what))
        .schema(Some(ObjectBuilder::new().schema_type(SchemaType::Type(Type::String))))
        .build()
}

pub(super) fn by_descriptors() -> Described {
    let free = || Content::new(Some(ObjectBuilder::new().schema_type(Type::Object)));
    let plain = |what: &str| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        answered(what, "text/plain", RefOr::T(text.into()))
    };
    let over = "Over the limit.";
    let described = OperationBuilder::new()
        .operation_id(Some("rateLimitJson"))
        .summary(Some("Envoy's rate limit service (v3) as JSON; `GET` and `PUT` work too."))
        .request_body(Some(RequestBodyBuilder::new().content(JSON, free()).build()))
        .response(
            "200",
            ResponseBuilder::new()
                .description("Within the limit, or over it under `shadow`, `degrade` or `divert`.")
                .content(JSON, free()),
        )
        .response("429", ResponseBuilder::new().description(over).content(JSON, free()))
        .response("400", plain("Invalid request."))
        .response("401", challenged(plain("Missing or invalid token.")))
        .response(
            "403",
            plain("The policy is not available to this app, or the token lacks the scope."),
        )
        .response("404", plain("Unknown policy."))
        .response("408", plain("Timeout while reading the body."))
        .response("413", plain("The body exceeds 64 KiB."))
        .response("415", plain("A browser page sent a body that is not `application/json`."))
        .response("421", problem(OTHER_HOST))
        .response("503", plain("Store unavailable."));
    by_token(described, BEARER).build()
}

pub(super) fn document() -> Described {
    let object = ObjectBuilder::new().schema_type(Type::Object);
    OperationBuilder::new()
        .operation_id(Some("openapi"))
        .summary(Some("This description."))
        .response("200", answered("OpenAPI 3.1.", JSON, RefOr::T(object.into())))
        .response("400", problem("`Host` is missing or given twice."))
        .response("421", problem(OTHER_HOST))
        .build()
}

pub(super) fn live() -> Described {
    let text = ObjectBuilder::new().schema_type(Type::String);
    OperationBuilder::new()
        .operation_id(Some("live"))
        .summary(Some("Liveness: `ok` while the process runs."))
        .response("200", answered("Alive.", "text/plain", RefOr::T(text.into())))
        .response("400", problem("`Host` is missing or given twice."))
        .build()
}

pub(super) fn ready() -> Described {
    let text = || RefOr::T(ObjectBuilder::new().schema_type(Type::String).into());
    OperationBuilder::new()
        .operation_id(Some("ready"))
        .summary(Some("Readiness: `ok` until the server shuts down."))
        .response("200", answered("Ready.", "text/plain", text()))
        .response("400", problem("`Host` is missing or given twice."))
        .response("503", answered("Shutting down.", "text/plain", text()))
        .build()
}

pub(super) fn healthcheck() -> Described {
    let text = || RefOr::T(ObjectBuilder::new().schema_type(Type::String).into());
    OperationBuilder::new()
        .operation_id(Some("healthcheck"))
        .summary(Some("`OK` until the server shuts down, like envoyproxy/ratelimit."))
        .response("200", answered("Running.", "text/plain", text()))
        .response("503", answered("Shutting down.", "text/plain", text()))
        .build()
}
