//! The fields of one policy.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use sluicegate_kernel::{Carry, Micros};

use super::Origin;
use super::fields::{
    FieldRemedy, Fields, Word, distinct, list, listed_twice, name, optional, text, word,
};
use super::leases::{check_leasable, leases};
use super::matcher::matcher;
use super::overflow::overflow;
use super::overrides::overrides;
use super::permits::PermitFields;
use super::rule::rules;
use crate::attribute::KeyAttribute;
use crate::error::At;
use crate::finding;
use crate::limits::{APPS_MAX, KEY_PARTS_MAX, OVERLOAD_WAIT_MAX};
use crate::node::DocumentNode;
use crate::policy::{Apps, EVERY_APP, OnKeyQuota, OnOverload, OnStoreFailure, Policy};
use crate::quoted::quoted;
use crate::text::span;

/// The fields of a policy.
const FIELDS: [&str; 12] = [
    "name",
    "apps",
    "rules",
    "overflow",
    "on_store_failure",
    "on_overload",
    "on_key_quota",
    "leases",
    "match",
    "key",
    "overrides",
    "carry",
];

/// Words that people write in a policy, and the replacements.
const INSTEAD: [FieldRemedy; 10] = [
    FieldRemedy { field: "shadow", instead: "`overflow: shadow`" },
    FieldRemedy { field: "dry_run", instead: "`overflow: shadow`" },
    FieldRemedy { field: "mode", instead: "`overflow: shadow`" },
    FieldRemedy { field: "rate", instead: RULE },
    FieldRemedy { field: "burst", instead: RULE },
    FieldRemedy { field: "limit", instead: WINDOW },
    FieldRemedy { field: "window", instead: WINDOW },
    FieldRemedy { field: "token_bucket", instead: RULE },
    FieldRemedy { field: "fixed_window", instead: WINDOW },
    FieldRemedy { field: "path", instead: "`match: { path: { prefix: /orders } }`" },
];
const RULE: &str = "`rules: [ { token_bucket: { rate: 100/s } } ]`";
const WINDOW: &str = "`rules: [ { fixed_window: { limit: 100, window: 1m } } ]`";

/// The words of `on_store_failure`.
pub(crate) const ON_STORE_FAILURE: [Word<OnStoreFailure>; 3] = [
    Word::new("local", OnStoreFailure::Local),
    Word::new("allow", OnStoreFailure::Allow),
    Word::new("deny", OnStoreFailure::Deny),
];

/// The words of `on_key_quota`.
pub(crate) const ON_KEY_QUOTA: [Word<OnKeyQuota>; 2] =
    [Word::new("share", OnKeyQuota::Share), Word::new("deny", OnKeyQuota::Deny)];

/// The words of `carry`.
pub(crate) const CARRY: [Word<Carry>; 3] = [
    Word::new("usage", Carry::Usage),
    Word::new("proportional", Carry::Proportional),
    Word::new("reset", Carry::Reset),
];

/// Reads a policy from its author.
pub(super) fn policy(node: &DocumentNode, at: &At<'_>) -> Option<Policy> {
    of_origin(node, at, Origin::Author)
}

/// Reads a policy that was valid when it was stored: fields that are no longer possible with its rules, and never had
/// an effect with them, count as absent.
pub(super) fn kept(node: &DocumentNode, at: &At<'_>) -> Option<Policy> {
    of_origin(node, at, Origin::Kept)
}

fn of_origin(node: &DocumentNode, at: &At<'_>, origin: Origin) -> Option<Policy> {
    let fields = Fields::read_beside(node, at, &FIELDS, &INSTEAD)?;
    // Every field is read before the first `?`: a document's errors are reported together.
    let policy_name = {
        let at = at.field("name");
        fields.required("name", "a name", &at).and_then(|node| name(node, &at))
    };
    let apps = optional(&fields, at, "apps", apps);
    let carry = optional(&fields, at, "carry", |node, at| word(node, at, &CARRY));
    let carry_or_default = carry.flatten().unwrap_or_default();
    let rules = {
        let at = at.field("rules");
        let node = fields.required("rules", "a list of rules", &at);
        node.and_then(|node| rules(node, &at, carry_or_default))
    };
    let overflow = optional(&fields, at, "overflow", overflow);
    let on_store_failure =
        optional(&fields, at, "on_store_failure", |node, at| word(node, at, &ON_STORE_FAILURE));
    let on_overload = optional(&fields, at, "on_overload", on_overload);
    let on_key_quota =
        optional(&fields, at, "on_key_quota", |node, at| word(node, at, &ON_KEY_QUOTA));
    let leases = optional(&fields, at, "leases", leases);
    let matcher = optional(&fields, at, "match", |node, at| matcher(node, at, origin));
    let key = optional(&fields, at, "key", key);
    let overrides =
        optional(&fields, at, "overrides", |node, at| overrides(node, at, carry_or_default));
    carry?;
    let (rules, overrides) = (rules?, overrides?.unwrap_or_default());
    let (mut overflow, leases) = (overflow?.unwrap_or_default(), leases?.unwrap_or_default());
    check_leasable(leases, &rules, &overrides, &overflow, &at.field("leases"))?;
    let mut matcher = matcher?;
    let permits = PermitFields { overflow: &mut overflow, matcher: &mut matcher };
    match origin {
        Origin::Author => permits.check(&rules, &overrides, at)?,
        Origin::Kept => permits.drop(&rules, &overrides),
    }
    let overrides = overrides.into_iter().map(|own| own.of_policy(&rules)).collect();
    Some(Policy {
        name: policy_name?.into(),
        apps: apps?.unwrap_or_default(),
        owner: None,
        rules,
        overrides,
        overflow,
        on_store_failure: on_store_failure?.unwrap_or_default(),
        on_overload: on_overload?.unwrap_or_default(),
        on_key_quota: on_key_quota?.unwrap_or_default(),
        leases,
        matcher,
        key: key?.unwrap_or_default(),
        since: Micros::ZERO,
    })
}

/// `on_overload`: `refuse`, or the longest wait.
fn on_overload(node: &DocumentNode, at: &At<'_>) -> Option<OnOverload> {
    match node {
        DocumentNode::Text(word) if word == "refuse" => Some(OnOverload::Refuse),
        DocumentNode::Map(_) => {
            let fields = Fields::read(node, at, &["wait"])?;
            let at = at.field("wait");
            let wanted = "a duration of at most 10s, such as `200ms`";
            match fields.required("wait", wanted, &at)? {
                DocumentNode::Text(text) | DocumentNode::Number(text) => match at.ok(span(text))? {
                    max if max <= OVERLOAD_WAIT_MAX => Some(OnOverload::Wait { max }),
                    _ => at.report(finding!(
                        "too_long",
                        "{given} is too long, expected {wanted}",
                        given = quoted(text),
                        wanted
                    )),
                },
                other => at.expected(wanted, other),
            }
        }
        _ => at.expected("`refuse` or `{ wait: 200ms }`", node),
    }
}

fn apps(node: &DocumentNode, at: &At<'_>) -> Option<Apps> {
    let items = list(node, at, "apps", 1, APPS_MAX)?;
    let names = distinct(items, at, |node, at| match node {
        DocumentNode::Text(text) if text == EVERY_APP => Some(EVERY_APP),
        _ => name(node, at),
    })?;
    let every = names.contains(&EVERY_APP);
    let named = names.into_iter().filter(|name| *name != EVERY_APP).map(Box::from);
    Some(Apps::Said { named: named.collect(), every })
}

fn key(node: &DocumentNode, at: &At<'_>) -> Option<Box<[KeyAttribute]>> {
    let items = list(node, at, "attributes", 1, KEY_PARTS_MAX)?;
    let mut parts = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        let part = match spaced_attribute(item) {
            Some(attribute) => at.report(finding!(
                "attribute_with_space",
                "expected an attribute: write `{attribute}` without a space",
                attribute
            )),
            None => {
                text(item, &at, "an attribute").and_then(|text| at.ok(KeyAttribute::parse(text)))
            }
        };
        let Some(part) = part else { continue };
        if parts.contains(&part) {
            at.report::<()>(listed_twice());
        }
        parts.push(part);
    }
    (parts.len() == items.len()).then(|| parts.into_boxed_slice())
}

/// The attribute that `header: x-tenant` was meant to be, which YAML reads as a map.
fn spaced_attribute(node: &DocumentNode) -> Option<String> {
    let DocumentNode::Map(entries) = node else { return None };
    let [(kind, DocumentNode::Text(name))] = &entries[..] else { return None };
    let attribute = alloc::format!("{kind}:{name}");
    KeyAttribute::parse(&attribute).ok().map(|_| attribute)
}
