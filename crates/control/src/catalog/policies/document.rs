//! The document of one policy, as JSON.

use std::fmt::Write;

use serde_json::Value as Json;
use sluicegate_policy::Policy;

use crate::catalog::name;
use crate::error::{Error, InvalidField};
use crate::limits::DOCUMENT_BYTES_MAX;

/// The policy that `document` is.
///
/// # Errors
/// [`Error::Invalid`] with everything that is wrong, each with its pointer behind `/document`.
pub(super) fn read(document: &Json) -> Result<Policy, Error> {
    let text = document.to_string();
    if text.len() > DOCUMENT_BYTES_MAX {
        let problem = format!("expected at most {DOCUMENT_BYTES_MAX} bytes");
        return Err(Error::invalid("/document", problem));
    }
    let policy = Policy::parse_one(&text).map_err(|errors| {
        let wrong = errors.errors().iter().map(|error| InvalidField {
            pointer: pointer(error.path()),
            problem: error.problem().to_owned(),
        });
        Error::Invalid(wrong.collect())
    })?;
    // The name is part of paths.
    name(policy.name(), "/document/name")?;
    Ok(policy)
}

/// `rules[0].token_bucket.rate` as `/document/rules/0/token_bucket/rate`.
fn pointer(path: &str) -> String {
    let mut pointer = "/document".to_owned();
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        pointer.push('/');
        pointer.push_str(&part.trim_end_matches(']').replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// The same text for documents that mean the same: members by name, nothing between them.
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
