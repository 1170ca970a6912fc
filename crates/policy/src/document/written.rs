//! Documents as data: the policies as they were written, for programs that keep them elsewhere.

use alloc::vec::Vec;

use serde_json::{Number, Value};

use super::{Document, checked, policies, read};
use crate::error::{DocumentError, DocumentErrors};
use crate::node::{DocumentNode, Places, TextPlace};
use crate::policy::Policy;

impl Document {
    /// Returns the policies of the document `text`, in their order, each as it is written there. They are valid: what
    /// [`parse`](Self::parse) refuses is refused here.
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

/// A policy as it was written in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenPolicy {
    /// The policy, as in `policies[]` of a document.
    pub document: Value,
    /// The places of its values in the text.
    pub places: Places,
}

/// One error of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenError {
    /// The error, with its path in the policy.
    pub error: DocumentError,
    /// The place in the text, as far as that is known.
    pub place: Option<TextPlace>,
}

impl Policy {
    /// Reads the document of a single policy written in YAML, such as an editor's, with the places of its
    /// values. JSON is YAML.
    ///
    /// # Errors
    /// All problems, at least one: what [`parse_one`](Self::parse_one) refuses is refused here.
    pub fn written(text: &str) -> Result<WrittenPolicy, Vec<WrittenError>> {
        let (node, places) = DocumentNode::read_placed(text).map_err(|(problem, place)| {
            alloc::vec![WrittenError {
                error: DocumentError::new("", "", super::syntax(&problem)),
                place
            }]
        })?;
        match checked(&node, super::policy::policy) {
            Ok(_) => Ok(WrittenPolicy { document: json(&node), places }),
            Err(errors) => {
                let placed = |error: &DocumentError| {
                    let place = places.of(error.pointer());
                    WrittenError { error: error.clone(), place }
                };
                Err(errors.errors().iter().map(placed).collect())
            }
        }
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

    #[test]
    fn the_text_of_a_policy_has_places_for_what_is_wrong_with_it() {
        for (text, expected) in [
            (
                "name: a\nrules:\n- token_bucket: {rate: fast}\n",
                &[("rules[0].token_bucket.rate", 3, 24)][..],
            ),
            ("name: a\nrules: [{token_bucket: {}}]\n", &[("rules[0].token_bucket.rate", 2, 24)]),
            (
                "name: A\nmore: 1\nrules:\n- fixed_window:\n    limit: 0\n    window: 1s\n",
                &[("more", 2, 7), ("name", 1, 7), ("rules[0].fixed_window.limit", 5, 12)],
            ),
            ("name: a\nname: b\nrules: []", &[("name", 2, 7), ("rules", 3, 8)]),
            ("name: [a\n", &[("", 1, 7)]),
            ("- a\n", &[("", 1, 1)]),
        ] {
            let errors = Policy::written(text).unwrap_err();
            let mut found: Vec<_> = errors
                .iter()
                .map(|WrittenError { error, place }| {
                    let place = place.map(|place| (place.line, place.column));
                    let (line, column) = place.unwrap_or_default();
                    (error.path(), line, column)
                })
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{text} {errors:?}");
        }
    }

    #[test]
    fn the_text_of_a_policy_is_read_as_the_document_that_it_is() {
        let text = "name: a # the first\nrules: [{fixed_window: {limit: 10, window: 1m}}]\n";
        let written = Policy::written(text).unwrap();
        let window = json!({ "fixed_window": { "limit": 10, "window": "1m" } });
        assert_eq!(written.document, json!({ "name": "a", "rules": [window] }));
        let places = |path| written.places.of(path).map(|place| (place.line, place.column));
        assert_eq!(places("/rules/0/fixed_window/limit"), Some((2, 32)));
        assert_eq!(places("/apps/0"), Some((1, 1)), "what is not there is a part of the whole");
    }
}
