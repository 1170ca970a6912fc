//! The overrides of a policy: rules of single keys.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::{Carry, Micros};

use super::fields::{Fields, list, optional, text};
use super::rule::rules;
use crate::error::At;
use crate::finding;
use crate::limits::OVERRIDES_MAX;
use crate::node::DocumentNode;
use crate::policy::{KeyOverride, OverrideEnd, Rules};
use crate::quoted::quoted;
use crate::text::instant;

/// The fields of an override.
const OVERRIDE_FIELDS: [&str; 3] = ["key", "until", "rules"];

/// An override as it is written.
pub(super) struct WrittenOverride<'n> {
    key: &'n str,
    rules: Rules,
    until: Option<Micros>,
}

impl WrittenOverride<'_> {
    pub(super) const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The override of a policy with these rules, by its key.
    pub(super) fn of_policy(self, policy: &Rules) -> (Box<[u8]>, KeyOverride) {
        let end = self.until.map(|at| OverrideEnd { at, after: policy.apart() });
        (self.key.as_bytes().into(), KeyOverride { rules: self.rules, end })
    }
}

/// Reads the overrides of a policy whose rules have this `carry`.
pub(super) fn overrides<'n>(
    node: &'n DocumentNode,
    at: &At<'_>,
    carry: Carry,
) -> Option<Vec<WrittenOverride<'n>>> {
    let items = list(node, at, "overrides", 0, OVERRIDES_MAX)?;
    let mut keys = BTreeMap::new();
    let mut overrides = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        let Some(fields) = Fields::read(item, &at, &OVERRIDE_FIELDS) else { continue };
        let rules = {
            let at = at.field("rules");
            let node = fields.required("rules", "a list of rules", &at);
            node.and_then(|node| rules(node, &at, carry))
        };
        let until = optional(&fields, &at, "until", until);
        let at = at.field("key");
        let Some(node) = fields.required("key", "a key", &at) else { continue };
        let Some(key) = override_key(node, &at) else { continue };
        if let Some(earlier) = keys.insert(key, place) {
            let key = quoted(key);
            at.report::<()>(finding!(
                "key_taken",
                "{key} is already the key of overrides[{earlier}]",
                key,
                earlier
            ));
        }
        if let (Some(rules), Some(until)) = (rules, until) {
            overrides.push(WrittenOverride { key, rules, until });
        }
    }
    (overrides.len() == items.len()).then_some(overrides)
}

fn until(node: &DocumentNode, at: &At<'_>) -> Option<Micros> {
    at.ok(instant(text(node, at, "an instant such as `2026-12-31T18:00:00Z`")?))
}

fn override_key<'n>(node: &'n DocumentNode, at: &At<'_>) -> Option<&'n str> {
    let key = text(node, at, "a key")?;
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let found = key.len();
        return at.report(finding!(
            "bad_key",
            "key has {found} bytes, expected 1 to {max}",
            found,
            max = KEY_BYTES_MAX
        ));
    }
    Some(key)
}
