//! The order in which people write the fields of a document.

use alloc::vec::Vec;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;

/// Members that come before others, as people write them; others come after these, by name.
const FIRST: [&str; 17] = [
    "name",
    "apps",
    "match",
    "key",
    "until",
    "rules",
    "overrides",
    "overflow",
    "on_store_failure",
    "on_overload",
    "on_key_quota",
    "leases",
    "carry",
    "rate",
    "limit",
    "window",
    "burst",
];

/// A document whose fields are serialized in the order in which people write them: those of a policy as in the
/// reference, others by name.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<'a>(pub &'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let rank = |name: &str| FIRST.iter().position(|first| *first == name);
                members.sort_by_key(|(name, _)| (rank(name).unwrap_or(FIRST.len()), *name));
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, &InOrder(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&InOrder(item))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}
