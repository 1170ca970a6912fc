//! A tree as it is written: a list of descriptors, each with its policy or a fixed answer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::glob::Glob;
use super::{
    DescriptorAction, DescriptorRoute, DescriptorTree, KeyPattern, Leaf, RESERVED_DOMAIN,
    RouteEntry, Unit, ValuePattern,
};
use crate::document::fields::{Fields, Word, distinct, either, line, list, name, word};
use crate::document::read;
use crate::error::{At, DocumentErrors};
use crate::finding;
use crate::limits::{DESCRIPTORS_MAX, ENTRIES_MAX, TEXT_BYTES_MAX};
use crate::node::DocumentNode;

/// The words of `always`.
const ALWAYS: [Word<Always>; 3] = [
    Word::new("allow", Always::Allow),
    Word::new("ignore", Always::Ignore),
    Word::new("refuse", Always::Refuse),
];

#[derive(Clone, Copy)]
enum Always {
    Allow,
    Ignore,
    Refuse,
}

pub(super) fn parse(text: &str) -> Result<DescriptorTree, DocumentErrors> {
    read(text, tree)
}

fn tree(node: &DocumentNode, at: &At<'_>) -> Option<DescriptorTree> {
    let fields = Fields::read(node, at, &["domains", "descriptors"])?;
    let mut tree = DescriptorTree::default();
    if let Some(node) = fields.get("domains") {
        let at = at.field("domains");
        let items = list(node, &at, "domains", 0, DESCRIPTORS_MAX).unwrap_or_default();
        distinct(items, &at, domain).into_iter().flatten().for_each(|domain| tree.know(domain));
    }
    let at = at.field("descriptors");
    let node = fields.required("descriptors", "a list of descriptors", &at)?;
    let items = list(node, &at, "descriptors", 0, DESCRIPTORS_MAX)?;
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        if let Some(route) = route(item, &at)
            && let Err(problem) = tree.insert(route)
        {
            at.field("entries").report::<()>(problem);
        }
    }
    Some(tree)
}

fn route(node: &DocumentNode, at: &At<'_>) -> Option<DescriptorRoute> {
    let known =
        ["domain", "entries", "policy", "always", "unit", "shadow", "name", "replaces", "quota"];
    let fields = Fields::read(node, at, &known)?;
    let domain = {
        let at = at.field("domain");
        fields.required("domain", "a domain", &at).and_then(|node| domain(node, &at))
    };
    let entries = {
        let at = at.field("entries");
        let node = fields.required("entries", "a list of entries", &at);
        node.and_then(|node| entries(node, &at))
    };
    let action = action(&fields, at);
    let limit_name = match fields.get("name") {
        Some(node) => limit_name(node, &at.field("name")),
        None => Some(Box::default()),
    };
    let replaces = match fields.get("replaces") {
        Some(node) => replaces(node, &at.field("replaces")),
        None => Some(Box::default()),
    };
    let quota = flag(&fields, "quota", at);
    let leaf = Leaf { action: action?, name: limit_name?, replaces: replaces?, quota: quota? };
    Some(DescriptorRoute { domain: domain?, entries: entries?, leaf })
}

fn action(fields: &Fields<'_>, at: &At<'_>) -> Option<DescriptorAction> {
    let unit = match fields.get("unit") {
        Some(node) => Some(word(node, &at.field("unit"), &Unit::NAMES)?),
        None => None,
    };
    let shadow = flag(fields, "shadow", at)?;
    let action = match (fields.get("policy"), fields.get("always")) {
        (Some(node), None) => DescriptorAction::Policy(name(node, &at.field("policy"))?.into()),
        (None, Some(node)) => match word(node, &at.field("always"), &ALWAYS)? {
            Always::Allow => DescriptorAction::Allow,
            Always::Ignore => DescriptorAction::Ignore,
            Always::Refuse => return Some(DescriptorAction::Refuse { unit, shadow }),
        },
        _ => return at.report(either("policy", "always")),
    };
    for field in ["unit", "shadow"] {
        if fields.get(field).is_some() {
            return at
                .field(field)
                .report(finding!("requires_refuse", "requires `always: refuse`"));
        }
    }
    Some(action)
}

fn flag(fields: &Fields<'_>, name: &str, at: &At<'_>) -> Option<bool> {
    match fields.get(name) {
        None => Some(false),
        Some(DocumentNode::Bool(value)) => Some(*value),
        Some(other) => at.field(name).expected("`true` or `false`", other),
    }
}

/// A domain that can be a tree's.
pub(super) fn domain(node: &DocumentNode, at: &At<'_>) -> Option<Box<str>> {
    let domain = line(node, at, "a domain", TEXT_BYTES_MAX)?;
    if domain == RESERVED_DOMAIN {
        return at.report(finding!(
            "reserved_domain",
            "`{domain}` is reserved: its descriptors name policies",
            domain
        ));
    }
    Some(domain.into())
}

fn entries(node: &DocumentNode, at: &At<'_>) -> Option<Vec<RouteEntry>> {
    let items = list(node, at, "entries", 1, ENTRIES_MAX)?;
    let entries = items.iter().enumerate();
    let entries: Vec<_> =
        entries.filter_map(|(place, item)| entry(item, &at.index(place))).collect();
    (entries.len() == items.len()).then_some(entries)
}

fn entry(node: &DocumentNode, at: &At<'_>) -> Option<RouteEntry> {
    let fields = Fields::read(node, at, &["key", "value", "shared"])?;
    let key = {
        let at = at.field("key");
        let node = fields.required("key", "a key", &at);
        node.and_then(|node| line(node, &at, "a key", TEXT_BYTES_MAX))
    };
    let value = match fields.get("value") {
        Some(node) => line(node, &at.field("value"), "a value", TEXT_BYTES_MAX).map(Some),
        None => Some(None),
    };
    let shared = flag(&fields, "shared", at);
    let (key, value, shared) = (key?, value?, shared?);
    let key = KeyPattern::parse(key, &at.field("key"));
    let value = ValuePattern::parse(value, shared, &at.field("value"), &at.field("shared"));
    Some(RouteEntry { key: key?, value: value? })
}

impl KeyPattern {
    /// Returns the keys that `key` matches, itself or as a pattern.
    pub(super) fn parse(key: &str, at: &At<'_>) -> Option<Self> {
        match Glob::parse(key) {
            Ok(Some(glob)) => Some(Self::Glob(glob)),
            Ok(None) => Some(Self::Exact(key.into())),
            Err(problem) => at.report(problem),
        }
    }

    /// The key as it is written.
    pub(super) fn written(&self) -> &str {
        match self {
            Self::Exact(key) => key,
            Self::Glob(glob) => glob.text(),
        }
    }
}

impl ValuePattern {
    /// Returns the values that `value` matches, which share a budget if `shared`.
    pub(super) fn parse(
        value: Option<&str>,
        shared: bool,
        at: &At<'_>,
        at_shared: &At<'_>,
    ) -> Option<Self> {
        let glob = match Glob::parse(value.unwrap_or_default()) {
            Ok(glob) => glob,
            Err(problem) => return at.report(problem),
        };
        match (glob, value) {
            (Some(glob), _) => Some(Self::Glob { glob, shared }),
            _ if shared => {
                at_shared.report(finding!("requires_star", "requires a value with a `*`"))
            }
            (None, Some(value)) => Some(Self::Exact(value.into())),
            (None, None) => Some(Self::Any),
        }
    }

    /// The value as it is written; `None` if it matches any.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Self::Any => None,
            Self::Exact(value) => Some(value),
            Self::Glob { glob, .. } => Some(glob.text()),
        }
    }
}

/// The name of a limit, as in the configuration of another limiter.
pub(super) fn limit_name(node: &DocumentNode, at: &At<'_>) -> Option<Box<str>> {
    line(node, at, "a name", TEXT_BYTES_MAX).map(Box::from)
}

fn replaces(node: &DocumentNode, at: &At<'_>) -> Option<Box<[Box<str>]>> {
    let items = list(node, at, "names", 0, DESCRIPTORS_MAX)?;
    let names = distinct(items, at, limit_name)?;
    Some(names.into_iter().collect())
}
