//! Given texts in messages: quoted, listed, and recognised as the placeholder of a template.

use alloc::string::String;
use alloc::vec::Vec;

pub(crate) use sluicegate_kernel::written::excerpt;

use crate::finding;
use crate::finding::Finding;

/// Returns whether `text` has a placeholder that Helm, `envsubst` or the like should have filled in.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("${") || text.contains("{{") || text.contains("{%")
}

/// The error of a value that is a placeholder of a template.
pub(crate) fn template(text: &str) -> Finding {
    finding!(
        "template",
        "{given} has a placeholder of a template: fill the template in first, such as with `helm template` or `envsubst`",
        given = quoted(text)
    )
}

/// `given` for a message: in backticks, on one line, not too long.
pub(crate) fn quoted(given: &str) -> String {
    alloc::format!("`{}`", excerpt(given))
}

/// `words` for a message: each in backticks, the last after `last`.
pub(crate) fn listed<'w>(words: impl IntoIterator<Item = &'w str>, last: &str) -> String {
    let words: Vec<_> = words.into_iter().map(quoted).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((end, rest)) => alloc::format!("{} {last} {end}", rest.join(", ")),
    }
}
