//! The JSON Schema of documents (draft 2020-12), made of the same tables that parse them.
//!
//! The schema accepts what the parser accepts, and more: it knows no time zones and no sums of bytes, and does not
//! require different names of policies.

use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value, json};
use sluicegate_kernel::algorithm::{AlgorithmInfo, algorithms};
use sluicegate_kernel::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, RULES_MAX};
use sluicegate_kernel::param::{Kind, Param};

use crate::document::fields::Word;
use crate::document::{CARRY, ON_KEY_QUOTA, ON_STORE_FAILURE, STATUS_MAX, STATUS_MIN};
use crate::limits::{
    APPS_MAX, BODY_BYTES_MAX, HEADERS_MAX, HOST_BYTES_MAX, HOSTS_MAX, KEY_PARTS_MAX, MATCHES_MAX,
    METHODS_MAX, OVERRIDES_MAX, POLICIES_MAX, TEXT_BYTES_MAX,
};
use crate::policy::EVERY_APP;
use crate::text::{RATE_PATTERN, SPAN_PATTERN};

/// The schema of a whole document. That of a single policy is its `$defs.policy`.
pub fn document() -> Value {
    document_of(algorithms())
}

/// The schema with these algorithms.
pub fn document_of(algorithms: &[AlgorithmInfo]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluicegate policies",
        "type": "object",
        "properties": {
            "policies": {
                "type": "array",
                "maxItems": POLICIES_MAX,
                "items": { "$ref": "#/$defs/policy" },
            },
        },
        "required": ["policies"],
        "additionalProperties": false,
        "$defs": {
            "policy": policy(),
            "request_match": request_match(),
            "name": {
                "type": "string",
                "pattern": alloc::format!("^[a-z0-9._-]{{1,{NAME_BYTES_MAX}}}$"),
            },
            "rate": {
                "description": "Permits, or bytes in a unit, per period.",
                "type": "string",
                "pattern": RATE_PATTERN,
                "examples": ["100/s", "5/200ms", "10/min", "64KiB/s"],
            },
            "duration": {
                "description": "A whole number and a unit, up to 366 days.",
                "type": "string",
                "pattern": SPAN_PATTERN,
                "examples": ["250ms", "1s", "5m", "1h", "1d"],
            },
            "path": { "type": "string", "maxLength": TEXT_BYTES_MAX, "pattern": "^/[^?#]*$" },
            "rules": rules(),
            "rule": rule(algorithms),
            "overflow": overflow(),
        },
    })
}

fn policy() -> Value {
    json!({
        "description": "Limits of one resource.",
        "type": "object",
        "properties": {
            "name": {
                "description": "What requests and metrics call it; unique in all documents.",
                "$ref": "#/$defs/name",
            },
            "apps": {
                "description": "Apps that may use it; `*`: every app. Default: in a catalog its own app, in a file every app.",
                "type": "array",
                "minItems": 1,
                "maxItems": APPS_MAX,
                "uniqueItems": true,
                "items": { "anyOf": [{ "$ref": "#/$defs/name" }, { "const": EVERY_APP }] },
            },
            "rules": { "$ref": "#/$defs/rules" },
            "overflow": { "$ref": "#/$defs/overflow" },
            "on_store_failure": {
                "description": "Decision while the store is unavailable. Default: local.",
                "enum": words(&ON_STORE_FAILURE),
            },
            "on_overload": {
                "description": "What happens to a request while the store is overloaded: it is \
                                refused, or retried for up to 10s. Default: refuse.",
                "oneOf": [
                    { "const": "refuse" },
                    {
                        "type": "object",
                        "properties": { "wait": { "$ref": "#/$defs/duration" } },
                        "required": ["wait"],
                        "additionalProperties": false,
                    },
                ],
            },
            "on_key_quota": {
                "description": "What happens to new keys while a memory store has no room for them, \
                                because it holds the maximum number of keys of this policy, or of \
                                all: they share one budget, or are refused, to be retried after \
                                1 s. Default: share.",
                "enum": words(&ON_KEY_QUOTA),
            },
            "leases": leases(),
            "match": matcher(),
            "key": key(),
            "overrides": overrides(),
            "carry": {
                "description": "What happens to usage when a rule changes. Default: usage.",
                "enum": words(&CARRY),
            },
        },
        "required": ["name", "rules"],
        "additionalProperties": false,
        "if": hands_out_permits(),
        "then": { "not": { "required": ["match"] } },
    })
}

/// Policies with a rule, also of an override, that hands out permits: they take `acquire`, and nothing is held back.
fn hands_out_permits() -> Value {
    let rules = json!({
        "properties": { "rules": { "contains": { "required": ["concurrency"] } } },
        "required": ["rules"],
    });
    json!({ "anyOf": [
        rules,
        { "properties": { "overrides": { "contains": rules } }, "required": ["overrides"] },
    ] })
}

fn leases() -> Value {
    json!({
        "description": "Whether servers may hold permits of busy keys and decide from them without the store: \
                        where the rules allow it, never, or within bounds. Default: auto.",
        "oneOf": [
            { "enum": ["auto", "off"] },
            {
                "type": "object",
                "properties": {
                    "max_share": {
                        "description": "Most of the least limit that one server holds, 1% to 50%. Default: 5%.",
                        "type": "string",
                        "pattern": "^([1-9]|[1-4][0-9]|50)%$",
                        "examples": ["10%"],
                    },
                    "term": {
                        "description": "Longest time that a lease lasts, 100ms to 2s. Default: 2s.",
                        "$ref": "#/$defs/duration",
                    },
                },
                "additionalProperties": false,
            },
        ],
    })
}

fn overrides() -> Value {
    json!({
        "description": "Keys with their own rules, instead of the rules of the policy.",
        "type": "array",
        "maxItems": OVERRIDES_MAX,
        "items": {
            "type": "object",
            "properties": {
                "key": {
                    "description": "The exact key.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": KEY_BYTES_MAX,
                },
                "until": {
                    "description": "When the override ends and the rules of the policy hold \
                                    again, in UTC. Default: never.",
                    "type": "string",
                    "pattern": "^(19[7-9][0-9]|20[0-9]{2})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
                },
                "rules": { "$ref": "#/$defs/rules" },
            },
            "required": ["key", "rules"],
            "additionalProperties": false,
        },
    })
}

fn matcher() -> Value {
    json!({
        "description": "Requests it applies to, for gateways that send attributes, not names. In a list: \
                        requests of any of its items.",
        "anyOf": [
            { "$ref": "#/$defs/request_match" },
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MATCHES_MAX,
                "items": { "$ref": "#/$defs/request_match" },
            },
        ],
    })
}

fn request_match() -> Value {
    let mut object = conditions();
    object["properties"]["except"] = json!({
        "description": "Requests that it does not apply to, by `host`, `path` and `method`. Default: none.",
        "type": "array",
        "minItems": 1,
        "maxItems": MATCHES_MAX,
        "items": conditions(),
    });
    object
}

/// `host`, `path` and `method`, at least one of them.
fn conditions() -> Value {
    json!({
        "type": "object",
        "properties": {
            "host": {
                "description": "Names in small letters, or all below one: `*.example.com`. Default: every host.",
                "type": "array",
                "minItems": 1,
                "maxItems": HOSTS_MAX,
                "uniqueItems": true,
                "items": {
                    "type": "string",
                    "maxLength": HOST_BYTES_MAX,
                    "pattern": r"^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$",
                },
            },
            "path": {
                "description": "The whole path, its beginning up to a `/`, or its first characters. \
                                Default: every path.",
                "type": "object",
                "properties": {
                    "exact": { "$ref": "#/$defs/path" },
                    "prefix": { "$ref": "#/$defs/path" },
                    "starts_with": { "$ref": "#/$defs/path" },
                },
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": false,
            },
            "method": {
                "description": "Methods in capital letters. Default: every method.",
                "type": "array",
                "minItems": 1,
                "maxItems": METHODS_MAX,
                "uniqueItems": true,
                "items": { "type": "string", "pattern": "^[A-Z0-9!#$%&'*+.^_`|~-]{1,128}$" },
            },
        },
        "minProperties": 1,
        "additionalProperties": false,
    })
}

fn key() -> Value {
    json!({
        "description": "Attributes that form the key. Default: one budget shared by all requests.",
        "type": "array",
        "minItems": 1,
        "maxItems": KEY_PARTS_MAX,
        "uniqueItems": true,
        "items": {
            "type": "string",
            "pattern": "^(remote_ip|path|method|user_agent|status|host|\
                        header:[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128})$",
        },
    })
}

fn rules() -> Value {
    json!({
        "description": "Decided together: unless all rules allow, nothing is charged.",
        "type": "array",
        "minItems": 1,
        "maxItems": RULES_MAX,
        "items": { "$ref": "#/$defs/rule" },
        "if": { "minItems": 2 },
        "then": { "items": { "required": ["name"] } },
    })
}

fn rule(algorithms: &[AlgorithmInfo]) -> Value {
    let mut properties = Map::new();
    let name = json!({
        "description": "Unique in its list. Default for a single rule: its algorithm.",
        "$ref": "#/$defs/name",
    });
    properties.insert("name".into(), name);
    for AlgorithmInfo { name, about, params } in algorithms {
        properties.insert((*name).into(), algorithm(about, params));
    }
    let one_of: Vec<_> = algorithms.iter().map(|info| json!({ "required": [info.name] })).collect();
    json!({
        "description": "One limit: an algorithm with its parameters.",
        "type": "object",
        "properties": properties,
        "oneOf": one_of,
        "additionalProperties": false,
    })
}

fn algorithm(about: &str, params: &[Param]) -> Value {
    let properties: Map<String, Value> =
        params.iter().map(|param| (param.name.into(), parameter(param))).collect();
    let required: Vec<_> =
        params.iter().filter(|param| param.default.is_none()).map(|param| param.name).collect();
    json!({
        "description": about,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn parameter(param: &Param) -> Value {
    let Param { name: _, kind, default, about } = param;
    let mut schema = match kind {
        Kind::Rate => json!({ "$ref": "#/$defs/rate" }),
        Kind::Span => json!({ "$ref": "#/$defs/duration" }),
        Kind::Permits { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::WordOrPermits { words, max } => json!({
            "anyOf": [{ "enum": words }, { "type": "integer", "minimum": 0, "maximum": max }],
        }),
        Kind::Factor { min, max } => {
            json!({ "type": "number", "exclusiveMinimum": min, "maximum": max })
        }
        Kind::TimeZone => json!({ "type": "string", "examples": ["UTC", "Europe/Berlin"] }),
    };
    let description = match default {
        Some(default) => alloc::format!("{about} Default: {default}."),
        None => (*about).into(),
    };
    schema["description"] = description.into();
    schema
}

fn overflow() -> Value {
    let one = |name: &str, schema: Value| {
        json!({
            "type": "object",
            "properties": { name: schema },
            "required": [name],
            "additionalProperties": false,
        })
    };
    let text = json!({ "type": "string", "minLength": 1, "maxLength": TEXT_BYTES_MAX });
    let response = json!({
        "type": "object",
        "properties": {
            "status": { "type": "integer", "minimum": STATUS_MIN, "maximum": STATUS_MAX },
            "body": { "type": "string", "maxLength": BODY_BYTES_MAX },
            "headers": {
                "type": "object",
                "maxProperties": HEADERS_MAX,
                "additionalProperties": text,
            },
        },
        "required": ["status", "body"],
        "additionalProperties": false,
    });
    let tag = json!({ "$ref": "#/$defs/name" });
    let degrade = json!({ "oneOf": [one("response", response), one("tag", tag)] });
    json!({
        "description": "What happens to requests over the limit. Default: reject.",
        "oneOf": [
            { "enum": ["reject", "shadow"] },
            one("queue", one("max_wait", json!({ "$ref": "#/$defs/duration" }))),
            one("degrade", degrade),
            one("divert", one("target", text)),
        ],
    })
}

fn words<T>(words: &[Word<T>]) -> Vec<&'static str> {
    words.iter().map(|known| known.word).collect()
}
