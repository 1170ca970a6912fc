//! A tree as it is written: a list of descriptors, each with who decides on it.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Action, DescriptorTree, Entry, Leaf, Pattern, RESERVED_DOMAIN, Route};
use crate::document::fields::{Fields, distinct, line, list, name, word};
use crate::document::read;
use crate::error::{At, DocumentErrors};
use crate::limits::{DESCRIPTORS_MAX, ENTRIES_MAX, TEXT_BYTES_MAX};
use crate::node::Node;

/// The words of `always`.
const ALWAYS: [(&str, bool); 2] = [("allow", true), ("refuse", false)];

pub(super) fn parse(text: &str) -> Result<DescriptorTree, DocumentErrors> {
    read(text, tree)
}

fn tree(node: &Node, at: &At<'_>) -> Option<DescriptorTree> {
    let fields = Fields::read(node, at, &["descriptors"])?;
    let at = at.field("descriptors");
    let node = fields.required("descriptors", "a list of descriptors", &at)?;
    let items = list(node, &at, "descriptors", 0, DESCRIPTORS_MAX)?;
    let mut tree = DescriptorTree::default();
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

fn route(node: &Node, at: &At<'_>) -> Option<Route> {
    let known = ["domain", "entries", "policy", "always", "name", "replaces"];
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
    let leaf = Leaf { action: action?, name: limit_name?, replaces: replaces? };
    Some(Route { domain: domain?, entries: entries?, leaf })
}

fn action(fields: &Fields<'_>, at: &At<'_>) -> Option<Action> {
    match (fields.get("policy"), fields.get("always")) {
        (Some(node), None) => {
            name(node, &at.field("policy")).map(|name| Action::Policy(name.into()))
        }
        (None, Some(node)) => word(node, &at.field("always"), &ALWAYS)
            .map(|allow| if allow { Action::Allow } else { Action::Refuse }),
        _ => at.report("expected either `policy` or `always`"),
    }
}

/// A domain that can be a tree's.
pub(super) fn domain(node: &Node, at: &At<'_>) -> Option<Box<str>> {
    let domain = line(node, at, "a domain", TEXT_BYTES_MAX)?;
    if domain == RESERVED_DOMAIN {
        return at.report(alloc::format!("`{domain}` is reserved: its descriptors name policies"));
    }
    Some(domain.into())
}

fn entries(node: &Node, at: &At<'_>) -> Option<Vec<Entry>> {
    let items = list(node, at, "entries", 1, ENTRIES_MAX)?;
    let entries = items.iter().enumerate();
    let entries: Vec<_> =
        entries.filter_map(|(place, item)| entry(item, &at.index(place))).collect();
    (entries.len() == items.len()).then_some(entries)
}

fn entry(node: &Node, at: &At<'_>) -> Option<Entry> {
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
    let shared = match fields.get("shared") {
        None => Some(false),
        Some(Node::Bool(shared)) => Some(*shared),
        Some(other) => at.field("shared").expected("`true` or `false`", other),
    };
    let (key, value, shared) = (key?, value?, shared?);
    let value = match Pattern::of(value, shared) {
        Some(pattern) => pattern,
        None => return at.field("shared").report(SHARED_WITHOUT_PREFIX),
    };
    Some(Entry { key: key.into(), value })
}

/// What is wrong with sharing anything but a prefix.
pub(super) const SHARED_WITHOUT_PREFIX: &str = "only goes with a value that ends in `*`";

impl Pattern {
    /// The pattern that a value stands for; `None` if it is `shared` and no prefix.
    pub(super) fn of(value: Option<&str>, shared: bool) -> Option<Self> {
        Some(match value.map(|value| (value, value.strip_suffix('*'))) {
            Some((_, Some(prefix))) => Self::Prefix { prefix: prefix.into(), shared },
            _ if shared => return None,
            Some((value, None)) => Self::Exact(value.into()),
            None => Self::Any,
        })
    }

    /// The value that stands for this pattern, if one does.
    pub(super) fn written(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Any => None,
            Self::Exact(value) => Some(Cow::Borrowed(value)),
            Self::Prefix { prefix, .. } => Some(Cow::Owned(alloc::format!("{prefix}*"))),
        }
    }
}

/// The name of a limit: what the configuration of others calls it, in their words.
pub(super) fn limit_name(node: &Node, at: &At<'_>) -> Option<Box<str>> {
    line(node, at, "a name", TEXT_BYTES_MAX).map(Box::from)
}

fn replaces(node: &Node, at: &At<'_>) -> Option<Box<[Box<str>]>> {
    let items = list(node, at, "names", 0, DESCRIPTORS_MAX)?;
    let names = distinct(items, at, limit_name)?;
    Some(names.into_iter().collect())
}
