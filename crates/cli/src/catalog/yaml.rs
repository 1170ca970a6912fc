//! Policies as a YAML document, for people to read and to keep with code.

use anyhow::Result;
use serde_json::Value;
use sluicegate_policy::document::InOrder;
use sluicegate_text::terminal;

/// A document of `policies`, each under its comment, if it has one.
///
/// # Errors
/// If one of them cannot be written as YAML.
pub(crate) fn document<'a>(
    policies: impl IntoIterator<Item = (Option<String>, &'a Value)>,
) -> Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    for (comment, policy) in policies {
        if let Some(comment) = comment {
            text.push_str(&format!("# {}\n", terminal::escaped(&comment)));
        }
        let one = serde_saphyr::to_string_with_options(&[InOrder(policy)], options.clone())?;
        text.push_str(&one);
    }
    Ok(if text.is_empty() { "policies: []\n".to_owned() } else { format!("policies:\n{text}") })
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
