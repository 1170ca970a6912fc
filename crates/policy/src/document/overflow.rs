//! `overflow`: a word, or a map of one entry.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::fields::{Fields, either, given_twice, line, name, text, too_many_bytes};
use crate::attribute::is_token;
use crate::error::At;
use crate::finding;
use crate::limits::{BODY_BYTES_MAX, HEADERS_MAX, TEXT_BYTES_MAX};
use crate::node::DocumentNode;
use crate::policy::{Fallback, HeaderPairs, Overflow};
use crate::quoted::quoted;
use crate::text::{span, whole};

/// The statuses that a fallback may have: final ones, RFC 9110.
pub(crate) const STATUS_MIN: u64 = 200;
pub(crate) const STATUS_MAX: u64 = 599;

pub(super) fn overflow(node: &DocumentNode, at: &At<'_>) -> Option<Overflow> {
    match node {
        DocumentNode::Text(word) => match word.as_str() {
            "reject" => Some(Overflow::Reject),
            "shadow" => Some(Overflow::Shadow),
            "queue" => at.report(finding!(
                "queue_without_wait",
                "missing maximum wait: expected `{{ queue: {{ max_wait: 500ms }} }}`"
            )),
            "degrade" => at.report(finding!(
                "degrade_without_fallback",
                "missing fallback: expected `{{ degrade: {{ tag: cached }} }}`"
            )),
            "divert" => at.report(finding!(
                "divert_without_target",
                "missing target: expected `{{ divert: {{ target: NAME }} }}`"
            )),
            _ => at.expected(WANTED, node),
        },
        DocumentNode::Map(entries) if entries.len() == 1 => {
            let (kind, node) = &entries[0];
            let at_kind = at.field(kind);
            match kind.as_str() {
                "queue" => queue(node, &at_kind),
                "degrade" => degrade(node, &at_kind).map(Overflow::Degrade),
                "divert" => divert(node, &at_kind),
                "reject" | "shadow" => {
                    at.report(finding!("word_alone", "expected the word `{kind}` alone", kind))
                }
                _ => at_kind.report(finding!(
                    "unknown_overflow",
                    "unknown overflow, expected {wanted}",
                    wanted = WANTED
                )),
            }
        }
        _ => at.expected(WANTED, node),
    }
}

fn queue(node: &DocumentNode, at: &At<'_>) -> Option<Overflow> {
    let fields = Fields::read(node, at, &["max_wait"])?;
    let at = at.field("max_wait");
    let wanted = "a duration such as `500ms`";
    let max_wait = match fields.required("max_wait", wanted, &at)? {
        DocumentNode::Text(text) | DocumentNode::Number(text) => at.ok(span(text))?,
        other => return at.expected(wanted, other),
    };
    Some(Overflow::Queue { max_wait })
}

fn divert(node: &DocumentNode, at: &At<'_>) -> Option<Overflow> {
    let fields = Fields::read(node, at, &["target"])?;
    let at = at.field("target");
    let node = fields.required("target", "a target", &at)?;
    Some(Overflow::Divert { target: line(node, &at, "a target", TEXT_BYTES_MAX)?.into() })
}

fn degrade(node: &DocumentNode, at: &At<'_>) -> Option<Fallback> {
    let fields = Fields::read(node, at, &["response", "tag"])?;
    match (fields.get("response"), fields.get("tag")) {
        (Some(node), None) => response(node, &at.field("response")),
        (None, Some(node)) => name(node, &at.field("tag")).map(|tag| Fallback::Tag(tag.into())),
        _ => at.report(either("response", "tag")),
    }
}

fn response(node: &DocumentNode, at: &At<'_>) -> Option<Fallback> {
    let fields = Fields::read(node, at, &["status", "body", "headers"])?;
    let status = {
        let at = at.field("status");
        fields.required("status", "a status", &at).and_then(|node| status(node, &at))
    };
    let body = {
        let at = at.field("body");
        fields.required("body", "a text", &at).and_then(|node| body(node, &at))
    };
    let headers = match fields.get("headers") {
        Some(node) => headers(node, &at.field("headers")),
        None => Some(Box::default()),
    };
    Some(Fallback::Response { status: status?, body: body?.into(), headers: headers? })
}

fn status(node: &DocumentNode, at: &At<'_>) -> Option<u16> {
    let DocumentNode::Number(number) = node else {
        return at.expected("a status such as 503", node);
    };
    let status = at.ok(whole(number, STATUS_MIN, STATUS_MAX))?;
    u16::try_from(status).ok()
}

fn body<'n>(node: &'n DocumentNode, at: &At<'_>) -> Option<&'n str> {
    let body = text(node, at, "a text")?;
    if body.len() > BODY_BYTES_MAX {
        let found = body.len();
        return at.report(too_many_bytes(found, BODY_BYTES_MAX));
    }
    Some(body)
}

fn headers(node: &DocumentNode, at: &At<'_>) -> Option<HeaderPairs> {
    let DocumentNode::Map(entries) = node else {
        return at.expected("a map of names and values", node);
    };
    if entries.len() > HEADERS_MAX {
        let found = entries.len();
        return at.report(finding!(
            "too_many_headers",
            "{found} headers, expected at most {max}",
            found,
            max = HEADERS_MAX
        ));
    }
    let mut names = BTreeSet::new();
    let mut headers = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        let at = at.field(name);
        let lower = name.to_ascii_lowercase();
        if !is_token(name) {
            at.report::<()>(finding!(
                "bad_header_name",
                "{given} is not a header name",
                given = quoted(name)
            ));
        } else if is_reserved(&lower) {
            at.report::<()>(finding!(
                "reserved_header",
                "{given} is reserved: Sluicegate or the connection sets it",
                given = quoted(name)
            ));
        } else if !names.insert(lower.clone()) {
            at.report::<()>(given_twice());
        } else if let Some(value) = header_value(value, &at) {
            headers.push((lower.into_boxed_str(), value.into()));
        }
    }
    (headers.len() == entries.len()).then(|| headers.into_boxed_slice())
}

/// Returns whether a header of this name, in small letters, is reserved: one that only Sluicegate sets, so that clients
/// do not take a policy's text for a decision, or one of the connection and the body, which the server of the response
/// sets.
fn is_reserved(name: &str) -> bool {
    let is_ours =
        ["x-sluicegate-", "x-ratelimit-", "ratelimit-"].iter().any(|own| name.starts_with(own));
    is_ours || name == "ratelimit" || OF_THE_CONNECTION.contains(&name)
}

/// The header fields of one connection and one message (RFC 9110, 7.6.1 and 8.6; RFC 9112, 6).
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn header_value<'n>(node: &'n DocumentNode, at: &At<'_>) -> Option<&'n str> {
    let value = line(node, at, "a value", TEXT_BYTES_MAX)?;
    if value.is_ascii() { Some(value) } else { at.report(finding!("not_ascii", "expected ASCII")) }
}

const WANTED: &str = "`reject`, `shadow`, or a map with `queue`, `degrade` or `divert`";
