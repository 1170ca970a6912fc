//! A person, as the provider describes them.

use std::collections::BTreeSet;

/// Longest subject in bytes (OpenID Connect Core 1.0, section 2).
const SUBJECT_BYTES_MAX: usize = 255;

/// Maximum number of groups of one person that are read: those of a large company's directory.
const GROUPS_MAX: usize = 10_000;

/// A person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    /// Subject at the provider; never changes.
    pub(crate) sub: String,
    /// Name for their account: a verified e-mail address, or the user name that they chose; none: the provider
    /// sends neither.
    pub(crate) name: Option<String>,
    /// Their groups, if the provider names them.
    pub(crate) groups: BTreeSet<String>,
}

/// Returns `sub`, if it has the form that the specification requires: it is shown, and stored. To some databases
/// spaces at the end make no difference, so that it would be another person's.
pub(super) fn subject(sub: &str) -> Option<&str> {
    let fits = (1..=SUBJECT_BYTES_MAX).contains(&sub.len());
    (fits && !sub.ends_with(' ') && sub.bytes().all(|byte| (b' '..=b'~').contains(&byte)))
        .then_some(sub)
}

/// Returns the groups of a claim: a list of names, or one name. Other values in it are left out.
pub(super) fn groups(claim: Option<&serde_json::Value>) -> BTreeSet<String> {
    match claim {
        Some(serde_json::Value::String(one)) => [one.clone()].into(),
        Some(serde_json::Value::Array(all)) => {
            let names = all.iter().filter_map(|one| one.as_str());
            names.take(GROUPS_MAX).map(str::to_owned).collect()
        }
        _ => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_a_list_or_one_name_and_anything_else_gives_none() {
        let of = |claim| groups(Some(&claim)).into_iter().collect::<Vec<_>>();
        assert_eq!(of(json!(["b", 1, "a", ["c"]])), ["a", "b"]);
        assert_eq!(of(json!("a b")), ["a b"]);
        for none in [json!(null), json!({ "admin": true }), json!(true), json!([])] {
            assert_eq!(of(none), [""; 0]);
        }
        assert!(groups(None).is_empty());
    }

    #[test]
    fn a_subject_is_a_line_of_ascii() {
        assert_eq!(subject("a|b c"), Some("a|b c"));
        for bad in ["", "a\n", "ä", "a ", &"x".repeat(256)] {
            assert_eq!(subject(bad), None, "{bad}");
        }
    }
}
