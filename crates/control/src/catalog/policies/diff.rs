//! Differences between two documents.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

/// A difference between two documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    /// The place, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// Value before; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Value)]
    pub before: Option<Json>,
    /// Value after; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Value)]
    pub after: Option<Json>,
}

/// Returns every difference of `after` from `before`. Lists are compared place by place.
pub fn changes(before: &Json, after: &Json) -> Vec<Diff> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(pointer: String, before: Option<&Json>, after: Option<&Json>, found: &mut Vec<Diff>) {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {}
        (Some(Json::Object(before)), Some(Json::Object(after))) => {
            let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                compare(format!("{pointer}/{escaped}"), before.get(name), after.get(name), found);
            }
        }
        (Some(Json::Array(before)), Some(Json::Array(after))) => {
            for place in 0..before.len().max(after.len()) {
                compare(format!("{pointer}/{place}"), before.get(place), after.get(place), found);
            }
        }
        _ => found.push(Diff { pointer, before: before.cloned(), after: after.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_changed_is_found_where_it_is() {
        let before =
            json!({ "rules": [{ "rate": "1/s" }, { "rate": "2/s" }], "a/b": 1, "same": [] });
        let after = json!({ "rules": [{ "rate": "3/s" }], "same": [], "new": null });
        let found = changes(&before, &after);
        let parts: Vec<_> = found
            .iter()
            .map(|diff| (diff.pointer.as_str(), diff.before.clone(), diff.after.clone()))
            .collect();
        assert_eq!(
            parts,
            [
                ("/a~1b", Some(json!(1)), None),
                ("/new", None, Some(json!(null))),
                ("/rules/0/rate", Some(json!("1/s")), Some(json!("3/s"))),
                ("/rules/1", Some(json!({ "rate": "2/s" })), None),
            ]
        );
        assert_eq!(changes(&before, &before), []);
    }
}
