//! The codes of errors and risks, with their sentences, in one list: `docs/findings.json`.
//!
//! Programs that write these sentences in another language, such as the console, are tested against it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use syn::LitStr;
use syn::visit::{self, Visit};

use crate::texts::{is_test, root, sources};

/// Path of the list, below the root of the project.
const LIST: &str = "docs/findings.json";

/// Writes the list again.
///
/// # Errors
/// If a source cannot be read, or has two sentences for one code.
pub fn write() -> Result<String> {
    let (list, count) = list()?;
    fs::write(root().join(LIST), list).with_context(|| format!("cannot write {LIST}"))?;
    Ok(format!("{LIST}: {count} codes"))
}

/// Compares the list with the sources.
///
/// # Errors
/// If they differ, a source cannot be read, or a source has two sentences for one code.
pub fn check() -> Result<String> {
    if fs::read_to_string(root().join(LIST))? != list()?.0 {
        bail!("{LIST} is old: run `cargo xtask texts`");
    }
    Ok(format!("{LIST} is what the code says"))
}

/// Returns the list as JSON, and the number of its codes.
fn list() -> Result<(String, usize)> {
    let mut sentences = BTreeMap::new();
    for (path, source) in sources(&root())? {
        for (code, sentence) in findings_in(&source).context(path.clone())? {
            let sentence = sentence.replace("{{", "{").replace("}}", "}");
            match sentences.insert(code.clone(), sentence.clone()) {
                Some(other) if other != sentence => {
                    bail!("{path}: `{code}` is the code of `{other}` and of `{sentence}`")
                }
                _ => {}
            }
        }
    }
    let list = serde_json::to_string_pretty(&sentences)?;
    Ok((list + "\n", sentences.len()))
}

fn findings_in(source: &str) -> Result<Vec<(String, String)>> {
    let mut found = Findings::default();
    found.visit_file(&syn::parse_file(source)?);
    Ok(found.0)
}

/// The codes and sentences of a file.
#[derive(Default)]
struct Findings(Vec<(String, String)>);

impl Findings {
    /// A code and its sentence are the first two literals of a call.
    fn add(&mut self, tokens: TokenStream) {
        let literals = tokens.into_iter().filter_map(|token| match token {
            TokenTree::Literal(literal) => {
                syn::parse2::<LitStr>(TokenTree::from(literal).into()).ok()
            }
            _ => None,
        });
        let mut texts = literals.map(|literal| literal.value());
        if let (Some(code), Some(sentence)) = (texts.next(), texts.next()) {
            self.0.push((code, sentence));
        }
    }
}

impl<'a> Visit<'a> for Findings {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        if call.path.segments.last().is_some_and(|segment| segment.ident == "finding") {
            self.add(call.tokens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_with_their_sentences_but_for_those_of_tests() {
        let source = r#"
            fn f() { g(a::finding!("bad_rate", "invalid rate {given}", given = "x")); }
            #[cfg(test)]
            mod tests { fn f() { finding!("other", "sentence"); } }
        "#;
        let expected = [("bad_rate".to_owned(), "invalid rate {given}".to_owned())];
        assert_eq!(findings_in(source).unwrap(), expected);
    }

    #[test]
    fn the_list_is_what_the_code_says() {
        if let Err(problem) = check() {
            panic!("{problem}");
        }
    }
}
