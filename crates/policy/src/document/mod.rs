//! Documents: text in, policies out, and every error of a document at once, each with its path.
//!
//! Read it from the top: [`Document::parse`] reads a tree of values (`node`), `policy` takes it
//! apart field by field, `rule` builds the rules from the tables of parameters that the kernel
//! keeps beside each algorithm.

pub(crate) mod fields;
mod leases;
mod matcher;
mod order;
mod overflow;
mod overrides;
mod permits;
mod placed;
mod policy;
mod rule;
mod written;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use sluicegate_kernel::Carry;

use crate::error::{At, DocumentError, DocumentErrors};
use crate::finding;
use crate::finding::Finding;
use crate::limits::POLICIES_MAX;
use crate::node::DocumentNode;
use crate::policy::{Policy, Rules};
use crate::quoted::quoted;
use fields::{Fields, list};

pub use order::InOrder;
pub(crate) use overflow::{STATUS_MAX, STATUS_MIN};
pub use placed::{PlacedError, placed};
pub use written::{WrittenError, WrittenPolicy};

pub(crate) use policy::{CARRY, ON_KEY_QUOTA, ON_STORE_FAILURE};

/// The origin of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Its author, who can correct errors.
    Author,
    /// A store of documents that were valid when they were put there.
    Kept,
}

/// A document, checked: its policies in their order, each with its own name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    policies: Vec<Policy>,
}

/// The error of documents that cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinError {
    /// The place of the document that cannot be added to those before it.
    pub document: usize,
    /// The place of the document that has the same name already.
    pub earlier: Option<usize>,
    /// The error, with its path in the document.
    pub error: Box<DocumentError>,
}

impl Document {
    /// Reads a document, JSON or YAML.
    ///
    /// # Errors
    /// [`DocumentErrors`]: all problems. Syntax errors come alone, with line and column; others with the path of the
    /// field.
    pub fn parse(text: &str) -> Result<Self, DocumentErrors> {
        let policies = read(text, policies)?;
        Ok(Self { policies })
    }

    /// The policies, in their order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The policies of all of `documents`, in their order.
    ///
    /// # Errors
    /// The first document with a name that an earlier one has, or with which there are more policies than
    /// [`POLICIES_MAX`], and the place in it.
    pub fn joined(documents: impl IntoIterator<Item = Self>) -> Result<Self, JoinError> {
        let mut names = BTreeMap::new();
        let mut all = Vec::new();
        for (place, document) in documents.into_iter().enumerate() {
            for (index, policy) in document.policies.into_iter().enumerate() {
                let wrong = |path: &str, pointer: &str, (earlier, problem)| {
                    let path = alloc::format!("policies[{index}]{path}");
                    let pointer = alloc::format!("/policies/{index}{pointer}");
                    let error = Box::new(DocumentError::new(path, pointer, problem));
                    Err(JoinError { document: place, earlier, error })
                };
                if all.len() == POLICIES_MAX {
                    return wrong("", "", (None, too_many_policies()));
                }
                if let Some(earlier) = names.insert(policy.name.clone(), place) {
                    let name = quoted(&policy.name);
                    let problem = finding!(
                        "name_taken",
                        "{name} is already the name of another policy",
                        name
                    );
                    return wrong(".name", "/name", (Some(earlier), problem));
                }
                all.push(policy);
            }
        }
        Ok(Self { policies: all })
    }

    /// Returns the policies for every app: those that guard a resource, whatever app uses it.
    #[must_use]
    pub fn for_every_app(self) -> Self {
        Self { policies: self.policies.into_iter().map(Policy::for_every_app).collect() }
    }

    /// Returns these policies, followed by those of `other` with other names.
    #[must_use]
    pub fn or_else_of(mut self, other: Self) -> Self {
        let names: BTreeSet<_> = self.policies.iter().map(|policy| policy.name.clone()).collect();
        let mut others = other.policies;
        others.retain(|policy| !names.contains(&policy.name));
        self.policies.append(&mut others);
        self
    }

    /// The policies, in their order.
    pub fn into_policies(self) -> Vec<Policy> {
        self.policies
    }
}

impl Policy {
    /// Reads the document of a single policy, such as a change to one: `policies[0]` of a whole [`Document`].
    ///
    /// # Errors
    /// [`DocumentErrors`]: all problems.
    pub fn parse_one(text: &str) -> Result<Self, DocumentErrors> {
        read(text, policy::policy)
    }

    /// Reads the document of a policy that was valid when a catalog or a store took it. Fields that have become errors,
    /// and never had an effect, count as absent: `overflow: queue` and `match` where a rule hands out permits. The
    /// method `*`, which has become an error, is one that no request has.
    ///
    /// # Errors
    /// [`DocumentErrors`]: all other problems.
    pub fn parse_kept(text: &str) -> Result<Self, DocumentErrors> {
        read(text, policy::kept)
    }
}

impl Rules {
    /// Reads a list of rules in JSON, the value of `rules` in a policy. The text is bounded by its caller.
    ///
    /// # Errors
    /// [`DocumentErrors`]: all problems. Their paths begin with `rules`.
    pub fn parse(json: &str) -> Result<Self, DocumentErrors> {
        let of_rules =
            |problem: Finding| DocumentErrors::of(DocumentError::new("rules", "/rules", problem));
        let node = DocumentNode::read_json(json).map_err(|problem| of_rules(syntax(&problem)))?;
        checked(&node, |node, at| rule::rules(node, &at.field("rules"), Carry::default()))
    }
}

/// The error of a text that is not JSON or YAML, or is too large.
fn syntax(problem: &str) -> Finding {
    finding!("syntax", "{problem}", problem)
}

/// Builds a value from the tree of `text`, or lists all problems.
pub(crate) fn read<T>(
    text: &str,
    build: impl FnOnce(&DocumentNode, &At<'_>) -> Option<T>,
) -> Result<T, DocumentErrors> {
    checked(
        &DocumentNode::read(text).map_err(|problem| DocumentErrors::whole(syntax(&problem)))?,
        build,
    )
}

/// Builds a value from a text for gopkg.in/yaml.v2, or lists all problems.
pub(crate) fn read_yaml_v2<T>(
    text: &str,
    build: impl FnOnce(&DocumentNode, &At<'_>) -> Option<T>,
) -> Result<T, DocumentErrors> {
    let node = DocumentNode::read_yaml_v2(text);
    checked(&node.map_err(|problem| DocumentErrors::whole(syntax(&problem)))?, build)
}

/// Builds a value from `node`, or lists all problems.
fn checked<T>(
    node: &DocumentNode,
    build: impl FnOnce(&DocumentNode, &At<'_>) -> Option<T>,
) -> Result<T, DocumentErrors> {
    let errors = RefCell::new(DocumentErrors::default());
    let built = build(node, &At::root(&errors));
    match (built, errors.into_inner()) {
        (Some(built), errors) if errors.errors().is_empty() => Ok(built),
        (_, errors) => Err(errors),
    }
}

fn policies(node: &DocumentNode, at: &At<'_>) -> Option<Vec<Policy>> {
    if let (Some(_), Some(DocumentNode::Text(kind))) = (node.get("apiVersion"), node.get("kind")) {
        return at.field("kind").report(finding!(
            "kubernetes_manifest",
            "{kind} is a manifest of Kubernetes: expected the policies themselves, such as a text under its `data`",
            kind = quoted(kind)
        ));
    }
    let fields = Fields::read(node, at, &["policies"])?;
    let at = at.field("policies");
    let node = fields.required("policies", "a list of policies", &at)?;
    let items = list(node, &at, "policies", 0, POLICIES_MAX)?;
    let mut names = BTreeMap::new();
    let mut policies = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        if let Some(DocumentNode::Text(name)) = item.get("name")
            && let Some(earlier) = names.insert(name.as_str(), place)
        {
            let name = quoted(name);
            at.field("name").report::<()>(finding!(
                "name_taken_by",
                "{name} is already the name of policies[{earlier}]",
                name,
                earlier
            ));
        }
        policies.extend(policy::policy(item, &at));
    }
    (policies.len() == items.len()).then_some(policies)
}

/// The error of too many policies.
pub(crate) fn too_many_policies() -> Finding {
    finding!("too_many_policies", "expected at most {max} policies", max = POLICIES_MAX)
}
