//! Descriptors: gateways with Envoy's rate limit protocol send them instead of names.
//!
//! A *descriptor* is a list of *entries*, keys with their values, the outermost first, in a *domain*:
//! `messaging: (message_type, marketing), (to_number, 2061234567)`. A tree leads from there to the policy that guards
//! it; the key of the budget is made of the values that the tree leaves open:
//!
//! ```text
//! messaging ─┬─ message_type = marketing ── to_number ──▶ policy `marketing`, key `2061234567`
//!            ├─ to_number ──────────────────────────────▶ policy `numbers`, key `2061234567`
//!            └─ path = /files/* (shared) ───────────────▶ policy `files`, one budget for all
//! ```
//!
//! At each level the most specific branch is taken and never left again: this value, then the first
//! pattern (with `*` in the key, the value, or both) in the order they were written, then any value of
//! this key. A descriptor means the leaf at its own depth, and no other: one entry more or less meets
//! no limit. These are the rules of `envoyproxy/ratelimit`, whose configurations [`envoy`] reads.
//!
//! That project joins a key and a value by `_` and matches the joined text, so that there the key `a`
//! with the value `*` also means the key `a_b`. Here a key is matched by keys, and a value by values.
//!
//! **Property**: different keys and values that a leaf leaves open are different keys of the policy,
//! whatever is in them.

mod document;
pub mod envoy;
mod glob;
mod name;
mod unit;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::attribute::push_escaped;
use crate::error::DocumentErrors;
use crate::finding;
use crate::finding::Finding;
use glob::Glob;
pub use unit::Unit;

/// The domain whose descriptors name policies, so that no tree can have it.
pub const RESERVED_DOMAIN: &str = "sluicegate";

/// The policies of descriptors.
///
/// ```
/// use sluicegate_policy::DescriptorTree;
/// use sluicegate_policy::descriptor::DescriptorAction;
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
/// assert_eq!(leaf.action, DescriptorAction::Policy("api".into()));
/// assert_eq!(key.as_deref(), Some("/api/orders|alice"));
/// assert!(tree.find("edge", [("path", "/api/orders")]).is_none());
/// # Ok::<(), sluicegate_policy::DocumentErrors>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DescriptorTree {
    domains: Map<TreeLevel>,
    len: usize,
}

/// The end of a branch of the tree: the answer to a descriptor, and its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The policy that decides, or a fixed answer.
    pub action: DescriptorAction,
    /// The name of the limit, for answers and for those that replace it; empty: it has none.
    pub name: Box<str>,
    /// The names of limits that do not count in a request that this one is met in.
    pub replaces: Box<[Box<str>]>,
    /// The limit is one of several budgets, any of which is enough: over the limit, it refuses a request only together
    /// with all the others of this kind.
    pub quota: bool,
}

/// The policy that decides on a descriptor, or a fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorAction {
    /// The policy of this name.
    Policy(Box<str>),
    /// No policy: the request always passes, as if its limit were infinite.
    Allow,
    /// No policy: the descriptor meets no limit, as if it were not in the tree.
    Ignore,
    /// No policy: the request never passes.
    Refuse {
        /// The unit of the limit in answers, which also report the time until its end; `None`: neither.
        unit: Option<Unit>,
        /// The request passes all the same, and only the answer shows the limit.
        shadow: bool,
    },
}

/// A map whose hash needs no secret: the authors of trees choose their texts.
type Map<T> = HashMap<Box<str>, T, FixedState>;

/// The branches at one depth, by key.
#[derive(Clone, Debug, Default)]
struct TreeLevel {
    keys: Map<Branches>,
    /// The branches whose key is a pattern.
    patterns: Vec<Branch>,
    /// The number of branches that are patterns, including those of [`Branches`].
    patterns_len: usize,
}

/// The branches of one key.
#[derive(Clone, Debug, Default)]
struct Branches {
    exact: Map<TreeNode>,
    patterns: Vec<Branch>,
    any: Option<Box<TreeNode>>,
}

/// The branch of all entries of a pattern.
#[derive(Clone, Debug)]
struct Branch {
    entry: RouteEntry,
    /// The number of patterns of this level that were written before it.
    place: usize,
    node: TreeNode,
}

/// The branch that an entry takes, and the parts of the entry that it leaves open.
struct BranchMatch<'t> {
    node: &'t TreeNode,
    key_is_open: bool,
    value_is_open: bool,
}

#[derive(Clone, Debug, Default)]
struct TreeNode {
    leaf: Option<Leaf>,
    below: TreeLevel,
}

/// A descriptor as it is written in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorRoute {
    pub(crate) domain: Box<str>,
    pub(crate) entries: Vec<RouteEntry>,
    pub(crate) leaf: Leaf,
}

/// One entry of a [`DescriptorRoute`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteEntry {
    pub(crate) key: KeyPattern,
    pub(crate) value: ValuePattern,
}

/// The keys that an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPattern {
    Exact(Box<str>),
    Glob(Glob),
}

/// The values that an entry matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValuePattern {
    Any,
    Exact(Box<str>),
    /// Each value has its own budget, unless they share one.
    Glob {
        glob: Glob,
        shared: bool,
    },
}

impl DescriptorTree {
    /// Reads a tree, JSON or YAML: a list `descriptors` of `domain`, `entries` and `policy`, or
    /// `always: allow`, `ignore` or `refuse`, with a `name` and the names that it `replaces`; and a list
    /// of `domains` that are known without descriptors.
    ///
    /// # Errors
    /// [`DocumentErrors`]: all problems, each with its path.
    pub fn parse(text: &str) -> Result<Self, DocumentErrors> {
        document::parse(text)
    }

    /// The leaf that a descriptor leads to, and the key of its budget; `None` is the budget that all share.
    #[inline]
    pub fn find<'e>(
        &self,
        domain: &str,
        entries: impl IntoIterator<Item = (&'e str, &'e str)>,
    ) -> Option<(&Leaf, Option<Cow<'e, str>>)> {
        let mut level = self.domains.get(domain)?;
        let mut leaf = None;
        let mut open = OpenValues::default();
        for (key, value) in entries {
            let BranchMatch { node, key_is_open, value_is_open } = level.branch(key, value)?;
            if key_is_open {
                open.push(key);
            }
            if value_is_open {
                open.push(value);
            }
            leaf = node.leaf.as_ref();
            level = &node.below;
        }
        Some((leaf?, open.key()))
    }

    /// Returns whether this domain is known.
    pub fn has(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The number of descriptors.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no descriptor.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The names of the policies that it leads to, in no order, some more than once.
    pub fn policies(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.domains.values().for_each(|level| level.policies(&mut names));
        names
    }

    /// Makes `domain` known, even without descriptors.
    pub(crate) fn know(&mut self, domain: Box<str>) {
        self.domains.entry(domain).or_default();
    }

    /// Adds a route. `Err` if there is one already, or if its pattern is shared in one route and not
    /// in another.
    pub(crate) fn insert(&mut self, route: DescriptorRoute) -> Result<(), Finding> {
        let mut level = self.domains.entry(route.domain).or_default();
        let Some((last, path)) = route.entries.split_last() else {
            return Err(finding!("no_entry", "a descriptor needs at least one entry"));
        };
        for entry in path {
            level = &mut level.node(entry)?.below;
        }
        let leaf = &mut level.node(last)?.leaf;
        if leaf.is_some() {
            return Err(finding!("duplicate_descriptor", "duplicate descriptor"));
        }
        *leaf = Some(route.leaf);
        self.len += 1;
        Ok(())
    }
}

impl TreeLevel {
    /// The most specific branch.
    #[inline]
    fn branch(&self, key: &str, value: &str) -> Option<BranchMatch<'_>> {
        let of_key = self.keys.get(key);
        if let Some(node) = of_key.and_then(|branches| branches.exact.get(value)) {
            return Some(BranchMatch { node, key_is_open: false, value_is_open: false });
        }
        let has_patterns = |branches: &Branches| !branches.patterns.is_empty();
        if (!self.patterns.is_empty() || of_key.is_some_and(has_patterns))
            && let Some(Branch { entry, node, .. }) = self.pattern(of_key, key, value)
        {
            let key_is_open = matches!(entry.key, KeyPattern::Glob(_));
            return Some(BranchMatch { node, key_is_open, value_is_open: entry.value.is_open() });
        }
        let node = of_key?.any.as_deref()?;
        Some(BranchMatch { node, key_is_open: false, value_is_open: true })
    }

    /// The first of the patterns that the entry matches; a pattern that is written like the entry has precedence.
    fn pattern<'t>(
        &'t self,
        of_key: Option<&'t Branches>,
        key: &str,
        value: &str,
    ) -> Option<&'t Branch> {
        let of_key = of_key.map_or(&[][..], |branches| &branches.patterns);
        let first = |is: &dyn Fn(&RouteEntry) -> bool| {
            let found = [of_key, &self.patterns].map(|all| all.iter().find(|one| is(&one.entry)));
            found.into_iter().flatten().min_by_key(|branch| branch.place)
        };
        let has_star = key.contains('*') || value.contains('*');
        let literal = has_star.then(|| first(&|entry| entry.is_written(key, value))).flatten();
        literal.or_else(|| first(&|entry| entry.matches(key, value)))
    }

    /// The node of `entry`; it is made if it is not there.
    fn node(&mut self, entry: &RouteEntry) -> Result<&mut TreeNode, Finding> {
        let patterns = match (&entry.key, &entry.value) {
            (KeyPattern::Glob(_), _) => &mut self.patterns,
            (KeyPattern::Exact(key), value) => {
                let branches = self.keys.entry(key.clone()).or_default();
                match value {
                    ValuePattern::Any => return Ok(branches.any.get_or_insert_default()),
                    ValuePattern::Exact(value) => {
                        return Ok(branches.exact.entry(value.clone()).or_default());
                    }
                    ValuePattern::Glob { .. } => &mut branches.patterns,
                }
            }
        };
        let index = patterns.iter().position(|branch| branch.entry.means(entry));
        let index = index.unwrap_or_else(|| {
            let place = self.patterns_len;
            self.patterns_len += 1;
            patterns.push(Branch { entry: entry.clone(), place, node: TreeNode::default() });
            patterns.len() - 1
        });
        let branch = &mut patterns[index];
        if branch.entry != *entry {
            return Err(finding!(
                "shared_differs",
                "`shared` differs between descriptors with the same pattern"
            ));
        }
        Ok(&mut branch.node)
    }

    fn policies<'t>(&'t self, names: &mut Vec<&'t str>) {
        let nodes = |patterns: &'t [Branch]| patterns.iter().map(|branch| &branch.node);
        let of_keys = self.keys.values().flat_map(|Branches { exact, patterns, any }| {
            exact.values().chain(nodes(patterns)).chain(any.as_deref())
        });
        for TreeNode { leaf, below } in of_keys.chain(nodes(&self.patterns)) {
            if let Some(Leaf { action: DescriptorAction::Policy(name), .. }) = leaf {
                names.push(name);
            }
            below.policies(names);
        }
    }
}

impl RouteEntry {
    fn matches(&self, key: &str, value: &str) -> bool {
        self.key.matches(key) && self.value.matches(value)
    }

    /// Returns whether the entry is written with exactly these texts.
    fn is_written(&self, key: &str, value: &str) -> bool {
        self.key.written() == key && self.value.written() == Some(value)
    }

    /// Returns whether both match the same keys and values.
    fn means(&self, other: &Self) -> bool {
        self.key == other.key && self.value.written() == other.value.written()
    }
}

impl KeyPattern {
    fn matches(&self, key: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *key,
            Self::Glob(glob) => glob.matches(key),
        }
    }
}

impl ValuePattern {
    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => **exact == *value,
            Self::Glob { glob, .. } => glob.matches(value),
        }
    }

    /// Returns whether each value has its own budget.
    const fn is_open(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(_) => false,
            Self::Glob { shared, .. } => !*shared,
        }
    }
}

/// The keys and values that a leaf leaves open. One is most common, and needs no list.
#[derive(Default)]
struct OpenValues<'e> {
    first: Option<&'e str>,
    rest: Vec<&'e str>,
}

impl<'e> OpenValues<'e> {
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

/// The key that any number of `parts` make: separated by `|`, with `|` and `\` in them escaped, so that different parts
/// are different keys. A single empty part is `\`, which no text escapes to; without parts there is no key.
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
