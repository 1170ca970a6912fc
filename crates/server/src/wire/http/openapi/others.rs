//! What this wire answers beside its verbs: gateways, and those who look around.

use utoipa::openapi::path::{
    Operation as Described, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{Content, ObjectBuilder, RefOr, Required, ResponseBuilder};

use super::{BEARER, GATEWAY, JSON, OTHER_HOST, answered, by_token, challenged, problem};

/// Which policies a gateway asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthBy {
    /// All whose `match` guards the request.
    Match,
    /// The one in the path.
    Policy,
}

pub(super) fn auth(by: AuthBy) -> Described {
    let (id, summary) = match by {
        AuthBy::Match => ("authByMatch", "Forward-auth, by all policies whose `match` fits."),
        AuthBy::Policy => ("authByPolicy", "Forward-auth, by one policy."),
    };
    let mut described = OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .description(Some(
            "The request in question is told by `X-Original-URI` and `X-Original-Method`, or by \
             `X-Forwarded-Uri`, `-Method`, `-Host` and `-For`, and believed of `http.trusted_peers`. \
             Every method asks the same.",
        ))
        .parameter(text("app", ParameterIn::Query, "The application that the gateway stands for."))
        .parameter(text("deny", ParameterIn::Query, "The status of a refusal: 429, or 403."))
        .response("200", ResponseBuilder::new().description("It may pass. `X-Sluicegate-Verdict` says how."))
        .response("429", problem("It is refused; `X-Sluicegate-Verdict` and `Retry-After` say more."))
        .response("403", problem("The same, with `?deny=403`."))
        .response("400", problem("The client's request makes no sense."))
        .response("421", problem(OTHER_HOST))
        .response("500", problem("The gateway's question makes no sense, or it is not trusted, or its token is not good."))
        .response("503", problem("The store does not answer."));
    if by == AuthBy::Policy {
        described = described.parameter(text("policy", ParameterIn::Path, "The policy's name."));
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
    let over = "The same, over the limit.";
    let described = OperationBuilder::new()
        .operation_id(Some("rateLimitJson"))
        .summary(Some("Envoy's rate limit service (v3) as JSON; `GET` and `PUT` do the same."))
        .request_body(Some(RequestBodyBuilder::new().content(JSON, free()).build()))
        .response(
            "200",
            ResponseBuilder::new().description("Within the limit.").content(JSON, free()),
        )
        .response("429", ResponseBuilder::new().description(over).content(JSON, free()))
        .response("400", plain("The request makes no sense."))
        .response("401", challenged(plain("A token is required, or the one shown is not good.")))
        .response(
            "403",
            plain("The policy that is named is not for this app, or the token is not for this."),
        )
        .response("404", plain("There is no such policy."))
        .response("408", plain("The body did not come in time."))
        .response("413", plain("The body is longer than 64 KiB."))
        .response("415", plain("A page asks, and does not say `application/json`."))
        .response("421", problem(OTHER_HOST))
        .response("503", plain("The store does not answer."));
    by_token(described, BEARER).build()
}

pub(super) fn document() -> Described {
    let object = ObjectBuilder::new().schema_type(Type::Object);
    OperationBuilder::new()
        .operation_id(Some("openapi"))
        .summary(Some("This description."))
        .response("200", answered("OpenAPI 3.1.", JSON, RefOr::T(object.into())))
        .response("400", problem("`Host` is missing, or there twice."))
        .response("421", problem(OTHER_HOST))
        .build()
}

pub(super) fn live() -> Described {
    let text = ObjectBuilder::new().schema_type(Type::String);
    OperationBuilder::new()
        .operation_id(Some("live"))
        .summary(Some("`ok` while the process answers."))
        .response("200", answered("It does.", "text/plain", RefOr::T(text.into())))
        .response("400", problem("`Host` is missing, or there twice."))
        .build()
}

pub(super) fn healthcheck() -> Described {
    let text = || RefOr::T(ObjectBuilder::new().schema_type(Type::String).into());
    OperationBuilder::new()
        .operation_id(Some("healthcheck"))
        .summary(Some("`OK` until the server stops, as envoyproxy/ratelimit says it."))
        .response("200", answered("It answers.", "text/plain", text()))
        .response("503", answered("The server is stopping.", "text/plain", text()))
        .build()
}
