//! Documents as data: the policies as somebody wrote them, for whoever keeps them elsewhere.

use alloc::vec::Vec;

use serde_json::{Number, Value};

use super::{Document, policies, read};
use crate::error::DocumentErrors;
use crate::node::DocumentNode;

impl Document {
    /// The policies of the document that `text` is, in their order, each as it is written there. They
    /// make sense: what [`parse`](Self::parse) refuses is refused here.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn written(text: &str) -> Result<Vec<Value>, DocumentErrors> {
        read(text, |node, at| {
            policies(node, at)?;
            let Some(DocumentNode::List(items)) = node.get("policies") else { return None };
            Some(items.iter().map(json).collect())
        })
    }
}

fn json(node: &DocumentNode) -> Value {
    match node {
        DocumentNode::Null => Value::Null,
        DocumentNode::Bool(value) => Value::Bool(*value),
        DocumentNode::Number(text) => number(text),
        DocumentNode::Text(text) => Value::String(text.clone()),
        DocumentNode::List(items) => Value::Array(items.iter().map(json).collect()),
        DocumentNode::Map(entries) => {
            Value::Object(entries.iter().map(|(name, value)| (name.clone(), json(value))).collect())
        }
    }
}

/// YAML has ways to write a number that JSON has not, such as `3.`.
fn number(text: &str) -> Value {
    let number = text.parse::<Number>().ok();
    let number = number.or_else(|| text.parse().ok().and_then(Number::from_f64));
    number.map_or_else(|| Value::String(text.into()), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Policy;

    #[test]
    fn policies_are_what_was_written_and_make_sense_one_by_one() {
        let text = "
policies:
  - name: a
    apps: [shop]
    rules: [{ name: r, smooth_warmup: { rate: 5/s, warmup: 3s, cold_factor: 3.0 } }]
  - name: b
    rules: &limits [{ fixed_window: { limit: 10, window: 1m } }]
  - name: c
    rules: *limits
";
        let written = Document::written(text).unwrap();
        let window = json!([{ "fixed_window": { "limit": 10, "window": "1m" } }]);
        let warmup = json!({ "rate": "5/s", "warmup": "3s", "cold_factor": 3.0 });
        assert_eq!(
            written,
            [
                json!({ "name": "a", "apps": ["shop"], "rules": [{ "name": "r", "smooth_warmup": warmup }] }),
                json!({ "name": "b", "rules": window }),
                json!({ "name": "c", "rules": window }),
            ]
        );
        let parsed = Document::parse(text).unwrap();
        for (document, policy) in written.iter().zip(parsed.policies()) {
            assert_eq!(
                Policy::parse_one(&alloc::string::ToString::to_string(document)),
                Ok(policy.clone())
            );
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_ever() {
        for text in ["", "policies: [{ name: a }]", "policies: []\nmore: 1", "policies: {}"] {
            let written = Document::written(text).unwrap_err();
            assert_eq!(Some(written), Document::parse(text).err(), "{text}");
        }
        assert_eq!(Document::written("policies: []"), Ok(Vec::new()));
    }
}
