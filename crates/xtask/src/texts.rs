//! Every text that shipped code shows to users, in one list: `docs/texts.txt`.
//!
//! A change of a message is a change of this list, so that reviewers see what operators, clients and SDKs
//! will read, beside all other texts. Listed are string literals of several words: errors, problems,
//! refusals, log lines, descriptions. Not listed are messages of panics and reasons of lint attributes,
//! which no user reads, and SQL.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, ItemFn, ItemMod, LitStr, Macro};

/// Path of the list, below the root of the project.
const LIST: &str = "docs/texts.txt";

/// The crates whose texts are listed, with their folders.
const CRATES: &[&str] = &[
    "kernel",
    "policy",
    "store",
    "sluicegate",
    "text",
    "import",
    "control",
    "replay",
    "server",
    "cli",
];

/// Macros whose texts only developers read.
const PANICS: &[&str] =
    &["assert", "assert_eq", "assert_ne", "debug_assert", "panic", "unreachable"];

/// Writes the list again.
///
/// # Errors
/// If a source cannot be read.
pub fn write() -> Result<String> {
    let list = list(&root())?;
    fs::write(root().join(LIST), &list).with_context(|| format!("cannot write {LIST}"))?;
    Ok(format!("{LIST}: {} texts", list.lines().filter(|line| line.starts_with("  ")).count()))
}

/// Compares the list with the sources.
///
/// # Errors
/// If they differ, or a source cannot be read.
pub fn check() -> Result<String> {
    let (listed, found) = (fs::read_to_string(root().join(LIST))?, list(&root())?);
    if listed != found {
        let (old, new): (Vec<_>, Vec<_>) = (listed.lines().collect(), found.lines().collect());
        let first = new.iter().find(|line| !old.contains(line));
        let gone = old.iter().find(|line| !new.contains(line));
        bail!("{LIST} is old: run `cargo xtask texts`; new: {first:?}, gone: {gone:?}");
    }
    Ok(format!("{LIST} is what the code says"))
}

pub(crate) fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root").to_owned()
}

/// The sources whose texts users see, by path below the root, in the order of the paths.
pub(crate) fn sources(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut sources = BTreeMap::new();
    for name in CRATES {
        let mut folders = vec![root.join("crates").join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    let shown = path.strip_prefix(root)?.display().to_string();
                    if !shown.contains("/tests/") && !shown.ends_with("/tests.rs") {
                        sources.insert(shown, fs::read_to_string(&path)?);
                    }
                }
            }
        }
    }
    Ok(sources)
}

/// The texts by crate and file, in the order of the files.
fn list(root: &Path) -> Result<String> {
    let mut texts = BTreeMap::new();
    for (path, source) in sources(root)? {
        let found = texts_in(&source).context(path.clone())?;
        texts.insert(path, found);
    }
    let mut list =
        String::from("# Written by `cargo xtask texts`: every text that users see, by file.\n");
    for (path, found) in texts.iter().filter(|(_, found)| !found.is_empty()) {
        list += &format!("\n{path}\n");
        for text in found {
            list += &format!("  {}\n", text.replace('\n', "\\n"));
        }
    }
    Ok(list)
}

fn texts_in(source: &str) -> Result<Vec<String>> {
    let mut texts = Texts::default();
    texts.visit_file(&syn::parse_file(source)?);
    Ok(texts.0)
}

/// The texts of a file, in their order.
#[derive(Default)]
struct Texts(Vec<String>);

impl Texts {
    fn add(&mut self, text: String) {
        if is_text(&text) {
            self.0.push(text);
        }
    }

    fn add_all(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_all(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse2::<LitStr>(TokenTree::from(literal).into()) {
                        self.add(text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'a> Visit<'a> for Texts {
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        let is_shown = attribute.path().is_ident("error") || attribute.path().is_ident("arg");
        if let (true, Ok(list)) = (is_shown, attribute.meta.require_list()) {
            self.add_all(list.tokens.clone());
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        if !name.is_some_and(|name| PANICS.contains(&name.as_str())) {
            self.add_all(call.tokens.clone());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        if call.method == "expect" || call.method == "expect_err" {
            self.visit_expr(&call.receiver);
        } else {
            visit::visit_expr_method_call(self, call);
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        visit::visit_expr(self, expression);
    }

    fn visit_lit_str(&mut self, text: &'a LitStr) {
        self.add(text.value());
    }
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg") || attribute.path().is_ident("test");
        let says_test = |list: &syn::MetaList| list.tokens.to_string().contains("test");
        is_cfg && attribute.meta.require_list().map_or(true, says_test)
    })
}

/// Returns whether `text` is written for people: several words, not SQL.
fn is_text(text: &str) -> bool {
    let words = text.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_sql = first.len() > 2 && first.chars().all(|char| char.is_ascii_uppercase());
    words.count() > 1 && !is_sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_see_is_listed_and_what_developers_see_is_not() {
        let source = r##"
            #[derive(Error)]
            enum E { #[error("no such {0}")] A(String) }
            fn f() -> Result<()> {
                info!(target: "x", "policies are loaded");
                g().context("cannot read it").expect("it is checked before");
                assert!(true, "this cannot be");
                query("SELECT a FROM b");
                let one = "word";
                bail!("invalid rate `{rate}`");
            }
            #[cfg(test)]
            mod tests { const T: &str = "in a test"; }
        "##;
        let expected =
            ["no such {0}", "policies are loaded", "cannot read it", "invalid rate `{rate}`"];
        assert_eq!(texts_in(source).unwrap(), expected);
    }

    #[test]
    fn the_list_is_what_the_code_says() {
        if let Err(problem) = check() {
            panic!("{problem}");
        }
    }
}
