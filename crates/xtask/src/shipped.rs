//! The syntax of shipped code: sources of the crates without tests, examples, benches and generated code.

use syn::Attribute;

use crate::seams::File;

/// The syntax trees of the shipped files among `files`, by their paths.
pub(crate) fn trees(files: &[File]) -> Vec<(&str, syn::File)> {
    let shipped = files.iter().filter(|(path, _)| is_shipped(path));
    let trees =
        shipped.filter_map(|(path, text)| Some((path.as_str(), syn::parse_file(text).ok()?)));
    trees.collect()
}

fn is_shipped(path: &str) -> bool {
    let Some((_, within)) = path.split_once("/src/") else { return false };
    let is_test = within.split('/').any(|part| part == "tests" || part == "tests.rs");
    let is_source = path.starts_with("crates/") && path.ends_with(".rs");
    is_source && !is_test && !within.contains("generated")
}

/// Returns whether an item with these attributes exists only in unit tests.
pub(crate) fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let list = attr.path().is_ident("cfg").then(|| attr.meta.require_list().ok()).flatten();
        attr.path().is_ident("test") || list.is_some_and(|list| list.tokens.to_string() == "test")
    })
}
