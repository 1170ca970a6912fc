//! The document of one policy, as JSON.

use std::fmt::Write;

use serde_json::Value as Json;
use sluicegate_policy::Policy;

use crate::catalog::name;
use crate::error::{Error, PlacedFinding};
use crate::limits::DOCUMENT_BYTES_MAX;
use sluicegate_policy::finding;

/// Parses `document` as a policy.
///
/// # Errors
/// [`Error::Invalid`] with everything that is wrong, each with its pointer behind `/document`.
pub(super) fn read(document: &Json) -> Result<Policy, Error> {
    let text = document.to_string();
    if text.len() > DOCUMENT_BYTES_MAX {
        let problem =
            finding!("too_long_document", "expected at most {max} bytes", max = DOCUMENT_BYTES_MAX);
        return Err(Error::invalid("/document", problem));
    }
    let policy = Policy::parse_one(&text).map_err(|errors| {
        let wrong = errors.errors().iter().map(|error| {
            let pointer = format!("/document{}", error.pointer());
            PlacedFinding::new(pointer, error.finding().clone())
        });
        Error::Invalid(wrong.collect())
    })?;
    // The name is part of paths.
    name(policy.name(), "/document/name")?;
    Ok(policy)
}

/// Returns one text for documents that mean the same: members by name, nothing between them.
pub(super) fn canonical(document: &Json) -> String {
    let mut text = String::new();
    write(document, &mut text);
    text
}

fn write(json: &Json, text: &mut String) {
    match json {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                let comma = if place > 0 { "," } else { "" };
                let name = Json::from(name.as_str());
                write!(text, "{comma}{name}:").expect("a String takes all text");
                self::write(value, text);
            }
            text.push('}');
        }
        Json::Array(items) => {
            text.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    text.push(',');
                }
                self::write(item, text);
            }
            text.push(']');
        }
        other => write!(text, "{other}").expect("a String takes all text"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_has_a_pointer() {
        let document =
            json!({ "name": "p", "rules": [{ "token_bucket": { "rate": "fast" } }], "x": 1 });
        let Err(Error::Invalid(wrong)) = read(&document) else { panic!("it makes no sense") };
        let pointers: Vec<_> = wrong.iter().map(|wrong| wrong.pointer.as_str()).collect();
        assert!(pointers.contains(&"/document/rules/0/token_bucket/rate"), "{pointers:?}");
        assert!(pointers.contains(&"/document/x"), "{pointers:?}");
    }

    #[test]
    fn documents_that_mean_the_same_are_one_text() {
        let one: Json =
            serde_json::from_str(r#"{ "b": [1, {"d": "x\"", "c": null}], "a": true }"#).unwrap();
        assert_eq!(canonical(&one), r#"{"a":true,"b":[1,{"c":null,"d":"x\""}]}"#);
    }
}
