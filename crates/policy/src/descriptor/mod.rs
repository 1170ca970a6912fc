//! Descriptors: what a gateway that speaks Envoy's rate limit service sends instead of names.
//!
//! A *descriptor* is a list of *entries*, keys with their values, the outermost first, in a *domain*:
//! `messaging: (message_type, marketing), (to_number, 2061234567)`. A tree leads from there to the
//! policy that guards it, and whose budget that is follows from the values that the tree leaves open:
//!
//! ```text
//! messaging ─┬─ message_type = marketing ── to_number ──▶ policy `marketing`, key `2061234567`
//!            ├─ to_number ──────────────────────────────▶ policy `numbers`, key `2061234567`
//!            └─ path = /files/* (shared) ───────────────▶ policy `files`, one budget for all
//! ```
//!
//! At each level the most specific branch is taken and never left again: this value, then the first
//! prefix of it in the order they were written, then any value of this key. A descriptor means the
//! leaf at its own depth, and no other: one entry more or less meets no limit. These are the rules of
//! `envoyproxy/ratelimit`, whose configurations [`envoy`] reads.
//!
//! **Property**: different values that a leaf leaves open are different keys, whatever is in them.

mod document;
pub mod envoy;
mod name;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::attribute::push_escaped;
use crate::error::DocumentErrors;

/// The domain whose descriptors name policies, so that no tree can have it.
pub const RESERVED_DOMAIN: &str = "sluicegate";

/// Which policy guards which descriptor.
///
/// ```
/// use sluicegate_policy::DescriptorTree;
/// use sluicegate_policy::descriptor::Action;
///
/// let tree = DescriptorTree::parse(
///     "
/// descriptors:
///   - domain: edge
///     entries: [ { key: path, value: /api/* }, { key: user } ]
///     policy: api
/// ",
/// )?;
/// let (leaf, key) = tree.find("edge", [("path", "/api/orders"), ("user", "alice")]).unwrap();
/// assert_eq!(leaf.action, Action::Policy("api".into()));
/// assert_eq!(key.as_deref(), Some("/api/orders|alice"));
/// assert!(tree.find("edge", [("path", "/api/orders")]).is_none());
/// # Ok::<(), sluicegate_policy::DocumentErrors>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DescriptorTree {
    domains: Map<Level>,
    len: usize,
}

/// What is done with a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Who decides.
    pub action: Action,
    /// The name of the limit, for answers and for those that replace it; empty: it has none.
    pub name: Box<str>,
    /// The names of limits that do not count in a request that this one is met in.
    pub replaces: Box<[Box<str>]>,
}

/// Who decides on a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The policy of this name.
    Policy(Box<str>),
    /// Nobody: it always passes.
    Allow,
    /// Nobody: it never passes.
    Refuse,
}

/// Who writes trees chooses their texts, so the hash needs no secret.
type Map<T> = HashMap<Box<str>, T, FixedState>;

/// The branches at one depth, by key.
#[derive(Clone, Debug, Default)]
struct Level {
    keys: Map<Branches>,
}

/// The branches of one key.
#[derive(Clone, Debug, Default)]
struct Branches {
    exact: Map<Node>,
    prefixes: Vec<Prefix>,
    any: Option<Box<Node>>,
}

/// The branch of all values with a prefix.
#[derive(Clone, Debug)]
struct Prefix {
    prefix: Box<str>,
    /// Whether all of them are one budget.
    shared: bool,
    node: Node,
}

#[derive(Clone, Debug, Default)]
struct Node {
    leaf: Option<Leaf>,
    below: Level,
}

/// A descriptor as it is written in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) domain: Box<str>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) leaf: Leaf,
}

/// One entry of a [`Route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Box<str>,
    pub(crate) value: Pattern,
}

/// Which values an entry stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Any,
    Exact(Box<str>),
    Prefix { prefix: Box<str>, shared: bool },
}

impl DescriptorTree {
    /// Reads a tree, JSON or YAML: a list `descriptors` of `domain`, `entries` and `policy`, or
    /// `always: allow` or `refuse`, with a `name` and the names that it `replaces`.
    ///
    /// # Errors
    /// [`DocumentErrors`]: all that is wrong with it, each with its path.
    pub fn parse(text: &str) -> Result<Self, DocumentErrors> {
        document::parse(text)
    }

    /// The leaf that a descriptor leads to, and whose budget it is; `None` is the one that all
    /// share.
    #[inline]
    pub fn find<'e>(
        &self,
        domain: &str,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Option<(&Leaf, Option<Cow<'e, str>>)> {
        let mut level = self.domains.get(domain)?;
        let mut leaf = None;
        let mut open = Open::default();
        for (key, value) in entries {
            let (node, is_open) = level.branch(key, value)?;
            if is_open {
                open.push(value);
            }
            leaf = node.leaf.as_ref();
            level = &node.below;
        }
        Some((leaf?, open.key()))
    }

    /// Whether there are descriptors of this domain.
    pub fn has(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// How many descriptors there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no descriptor.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The names of the policies that it leads to, in no order, some more than once.
    pub fn policies(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.domains.values().for_each(|level| level.policies(&mut names));
        names
    }

    /// Adds a route. `Err` if there is one already, or if its prefix is shared in one route and not
    /// in another.
    pub(crate) fn insert(&mut self, route: Route) -> Result<(), &'static str> {
        let mut level = self.domains.entry(route.domain).or_default();
        let Some((last, path)) = route.entries.split_last() else {
            return Err("is no descriptor without entries");
        };
        for entry in path {
            level = &mut level.node(entry)?.below;
        }
        let leaf = &mut level.node(last)?.leaf;
        if leaf.is_some() {
            return Err("is in the list already");
        }
        *leaf = Some(route.leaf);
        self.len += 1;
        Ok(())
    }
}

impl Level {
    /// The most specific branch, and whether it leaves the value open.
    #[inline]
    fn branch(&self, key: &str, value: &str) -> Option<(&Node, bool)> {
        let Branches { exact, prefixes, any } = self.keys.get(key)?;
        if let Some(node) = exact.get(value) {
            return Some((node, false));
        }
        let has_prefix = |branch: &&Prefix| value.starts_with(&*branch.prefix);
        if let Some(Prefix { shared, node, .. }) = prefixes.iter().find(has_prefix) {
            return Some((node, !shared));
        }
        any.as_deref().map(|node| (node, true))
    }

    /// The node of `entry`, made if it is not there.
    fn node(&mut self, entry: &Entry) -> Result<&mut Node, &'static str> {
        let branches = self.keys.entry(entry.key.clone()).or_default();
        let (prefix, shared) = match &entry.value {
            Pattern::Any => return Ok(branches.any.get_or_insert_default()),
            Pattern::Exact(value) => return Ok(branches.exact.entry(value.clone()).or_default()),
            Pattern::Prefix { prefix, shared } => (prefix, *shared),
        };
        let place = branches.prefixes.iter().position(|branch| branch.prefix == *prefix);
        let place = place.unwrap_or_else(|| {
            let node = Node::default();
            branches.prefixes.push(Prefix { prefix: prefix.clone(), shared, node });
            branches.prefixes.len() - 1
        });
        let branch = &mut branches.prefixes[place];
        if branch.shared != shared {
            return Err("has a prefix that is shared in one descriptor and not in another");
        }
        Ok(&mut branch.node)
    }

    fn policies<'t>(&'t self, names: &mut Vec<&'t str>) {
        for Branches { exact, prefixes, any } in self.keys.values() {
            let nodes = exact.values().chain(prefixes.iter().map(|branch| &branch.node));
            for Node { leaf, below } in nodes.chain(any.as_deref()) {
                if let Some(Leaf { action: Action::Policy(name), .. }) = leaf {
                    names.push(name);
                }
                below.policies(names);
            }
        }
    }
}

/// The values that a leaf leaves open. One is most common, and needs no list.
#[derive(Default)]
struct Open<'e> {
    first: Option<&'e str>,
    rest: Vec<&'e str>,
}

impl<'e> Open<'e> {
    fn push(&mut self, value: &'e str) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.rest.push(value),
        }
    }

    fn key(self) -> Option<Cow<'e, str>> {
        join(self.first.into_iter().chain(self.rest))
    }
}

/// The key that `parts` make, however many they are: parted by `|`, with `|` and `\` in them escaped,
/// so that different parts are different keys. A single empty part is `\`, which no text escapes to;
/// no part at all is no key.
///
/// ```
/// use sluicegate_policy::descriptor::join;
///
/// assert_eq!(join(["alice"]).as_deref(), Some("alice"));
/// assert_eq!(join(["a", "b|c"]).as_deref(), Some(r"a|b\|c"));
/// assert_ne!(join(["a|b"]), join(["a", "b"]));
/// assert_eq!(join([]), None);
/// ```
pub fn join<'a>(parts: impl IntoIterator<Item = &'a str>) -> Option<Cow<'a, str>> {
    let mut parts = parts.into_iter();
    let first = parts.next()?;
    let mut second = parts.next();
    if second.is_none() {
        match first {
            "" => return Some(Cow::Borrowed("\\")),
            plain if !plain.contains(['|', '\\']) => return Some(Cow::Borrowed(plain)),
            _ => {}
        }
    }
    let mut key = String::new();
    push_escaped(&mut key, first);
    while let Some(part) = second {
        key.push('|');
        push_escaped(&mut key, part);
        second = parts.next();
    }
    Some(Cow::Owned(key))
}
