//! Policies written as a document of YAML, to be read by people and kept with code.

use anyhow::Result;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use sluicegate_text::terminal;

/// Members that come before others, as people write them; what is not named here comes after, by name.
const FIRST: [&str; 15] = [
    "name",
    "apps",
    "match",
    "key",
    "rules",
    "overrides",
    "overflow",
    "on_store_failure",
    "on_overload",
    "on_key_quota",
    "carry",
    "rate",
    "limit",
    "window",
    "burst",
];

/// A document of `policies`, each under its comment, if it has one.
///
/// # Errors
/// If one of them is nothing that YAML can say.
pub(crate) fn document<'a>(
    policies: impl IntoIterator<Item = (Option<String>, &'a Value)>,
) -> Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    for (comment, policy) in policies {
        if let Some(comment) = comment {
            text.push_str(&format!("# {}\n", terminal::escaped(&comment)));
        }
        let one = serde_saphyr::to_string_with_options(&[Ordered(policy)], options.clone())?;
        text.push_str(&one);
    }
    Ok(if text.is_empty() { "policies: []\n".to_owned() } else { format!("policies:\n{text}") })
}

/// A value whose members come in the order in which people write them.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let rank = |name: &str| FIRST.iter().position(|first| *first == name);
                members.sort_by_key(|(name, _)| (rank(name).unwrap_or(FIRST.len()), *name));
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Ordered(item))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use sluicegate_policy::Document;

    use super::*;

    #[test]
    fn policies_are_written_as_people_would() {
        let policy = json!({
            "apps": ["shop"],
            "key": ["remote_ip"],
            "name": "orders",
            "rules": [{ "token_bucket": { "burst": 20, "rate": "10/s" }, "name": "burst" }],
        });
        let text = document([(Some("made by\nada".to_owned()), &policy)]).unwrap();
        let expected = "\
policies:
# made by\\nada
- name: orders
  apps:
  - shop
  key:
  - remote_ip
  rules:
  - name: burst
    token_bucket:
      rate: 10/s
      burst: 20
";
        assert_eq!(text, expected);
        assert_eq!(document([]).unwrap(), "policies: []\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            body in "\\PC{0,200}|[ -~\n\t]{0,120}|no|~|1e3|0x1|- a|'\"",
            tag in "[ -~]{1,20}",
        ) {
            let respond = json!({ "status": 503, "headers": { "x-why": tag.trim() }, "body": body });
            let policy = json!({
                "name": "a", "rules": [{ "fixed_window": { "limit": 1, "window": "1s" } }],
                "overflow": { "degrade": { "response": respond } },
            });
            // Not all of them are policies, but those that are must come back.
            if Document::parse(&json!({ "policies": [policy] }).to_string()).is_ok() {
                let text = document([(None, &policy)]).unwrap();
                prop_assert_eq!(Document::written(&text), Ok(vec![policy]), "{}", text);
            }
        }
    }
}
