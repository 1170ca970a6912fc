//! The public names of the library, which `crates/sluicegate/public-api.txt` lists with a reason each.
//!
//! A name is public if the documentation shows it: what the root of the crate and its modules export, except under
//! `#[doc(hidden)]`. All features count. Names are exported one by one, so that the sources alone show them: a type is
//! written like `ThisOne`, a constant like `THIS_ONE`, and no other name may be exported, because it may be a module.
//!
//! The list also has the hidden types that signatures of the library name nevertheless: those of its own, and those of
//! the crates below it, which document them.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use crate::seams::File;
use crate::texts::is_test;

/// The list, below the root of the project.
pub const LIST: &str = "crates/sluicegate/public-api.txt";

/// Most public types: a reader of the documentation finds the right one on one screen.
const TYPES_MAX: usize = 60;

/// The sources of the library.
const SOURCES: &str = "crates/sluicegate/src";

/// The sources of the crates below, whose types are hidden unless the library exports them.
const BELOW: &[&str] = &["crates/kernel/src", "crates/policy/src", "crates/store/src"];

/// The section of hidden types in signatures.
const NAMED: &str = "named in signatures, but hidden";

/// The head of a list that is written anew.
const HEAD: &str = "\
# The public names of the crate `sluicegate` with all features, as its documentation shows them.
#
# At most 60 of them are types. Each line has the reason for which a program needs the name. What only the project's own
# programs need is in `sluicegate::internals`, which the documentation hides and which is not listed.
#
# The last section has the hidden types that signatures of the library name nevertheless. Types that come from the crates
# below (`Rule`, `PolicySet`, `RedisStore` and others) name more types of these crates, which document them.
#
# `cargo xtask tidy` compares this list with the sources. To change it, run
# `SLUICEGATE_WRITE=1 cargo test -p xtask --test tidy`, and write the reason of what is new.
";

/// A name of the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PublicName {
    /// A module, or [`NAMED`].
    section: String,
    name: String,
}

impl PublicName {
    fn new(section: &str, name: impl Into<String>) -> Self {
        Self { section: section.to_owned(), name: name.into() }
    }
}

/// The differences between the list and the sources in `files`, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    let text = files.iter().find(|(path, _)| path == LIST).map_or("", |(_, text)| text);
    let found = match names(files) {
        Ok(found) => found,
        Err(problem) => return vec![problem],
    };
    let listed = listed(text);
    let new = found.iter().filter(|name| !listed.contains_key(*name));
    let new = new.map(|PublicName { section, name }| format!("{LIST}: [{section}] lacks `{name}`"));
    let gone = listed.keys().filter(|name| !found.contains(*name));
    let gone = gone.map(|PublicName { section, name }| {
        format!("{LIST}: [{section}] has no `{name}` any more")
    });
    let unargued = listed.iter().filter(|(_, reason)| reason.is_empty());
    let unargued = unargued.map(|(PublicName { section, name }, _)| {
        format!("{LIST}: [{section}] `{name}` has no reason")
    });
    let mut problems: Vec<_> = new.chain(gone).chain(unargued).collect();
    let types = found.iter().filter(|found| found.section != NAMED && is_type(&found.name)).count();
    if types > TYPES_MAX {
        problems.push(format!("{LIST}: {types} types are public, at most {TYPES_MAX} may be"));
    }
    if problems.is_empty() && text != written(&found, &listed) {
        problems.push(format!("{LIST}: SLUICEGATE_WRITE=1 writes it in another order"));
    }
    problems
}

/// Returns the list anew: the names in `files`, with the reasons that it had.
///
/// # Errors
/// If a name of the library cannot be listed.
pub fn list(files: &[File]) -> Result<String, String> {
    let text = files.iter().find(|(path, _)| path == LIST).map_or("", |(_, text)| text);
    Ok(written(&names(files)?, &listed(text)))
}

fn written(found: &BTreeSet<PublicName>, reasons: &BTreeMap<PublicName, String>) -> String {
    let (mut text, mut last) = (HEAD.to_owned(), None);
    let (named, public): (Vec<_>, Vec<_>) = found.iter().partition(|found| found.section == NAMED);
    for name in public.into_iter().chain(named) {
        if last != Some(&name.section) {
            text += &format!("\n[{}]\n", name.section);
            last = Some(&name.section);
        }
        let reason = reasons.get(name).map_or("", String::as_str);
        text += format!("{}: {reason}", name.name).trim_end();
        text += "\n";
    }
    text
}

/// The names in the text of a list, with their reasons.
fn listed(text: &str) -> BTreeMap<PublicName, String> {
    let (mut names, mut section) = (BTreeMap::new(), String::new());
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(title) => section = title.to_owned(),
            None => {
                let (name, reason) = line.split_once(':').unwrap_or((line, ""));
                names.insert(PublicName::new(&section, name), reason.trim().to_owned());
            }
        }
    }
    names
}

/// The names that the list should have.
fn names(files: &[File]) -> Result<BTreeSet<PublicName>, String> {
    let sources =
        Sources(files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect());
    let mut public = BTreeSet::new();
    sources.exports(&format!("{SOURCES}/lib.rs"), "sluicegate", &mut public)?;
    let mut types = Types {
        public: public.iter().map(|public| public.name.clone()).collect(),
        ..Types::default()
    };
    for file in sources.below(BELOW) {
        types.defined(&file.items);
    }
    let own = sources.below(&[SOURCES]);
    for file in &own {
        types.defined(&file.items);
    }
    for file in &own {
        types.visit_file(file);
    }
    public.extend(types.named.into_iter().map(|name| PublicName::new(NAMED, name)));
    Ok(public)
}

/// Returns whether `name` is that of a type, and not of a constant.
fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

fn is_hidden(attrs: &[Attribute]) -> bool {
    let hides = |attr: &Attribute| {
        let list = attr.path().is_ident("doc").then(|| attr.meta.require_list().ok());
        list.flatten().is_some_and(|list| list.tokens.to_string() == "hidden")
    };
    attrs.iter().any(hides)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The texts of files by their paths.
struct Sources<'f>(BTreeMap<&'f str, &'f str>);

impl Sources<'_> {
    /// The files of these folders.
    fn below(&self, folders: &[&str]) -> Vec<syn::File> {
        let is_below = |path: &str| {
            let within = folders.iter().find_map(|folder| path.strip_prefix(folder));
            within.is_some_and(|path| path.starts_with('/') && path.ends_with(".rs"))
        };
        let files =
            self.0.iter().filter(|(path, _)| is_below(path) && !path.ends_with("/tests.rs"));
        files.filter_map(|(_, text)| syn::parse_file(text).ok()).collect()
    }

    /// Adds what the file at `path`, which is the module `module`, exports.
    fn exports(
        &self,
        path: &str,
        module: &str,
        public: &mut BTreeSet<PublicName>,
    ) -> Result<(), String> {
        let text = self.0.get(path).ok_or_else(|| format!("{path} is not there"))?;
        let file = syn::parse_file(text).map_err(|error| format!("{path}: {error}"))?;
        let folder = path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/mod.rs"));
        let folder = folder.or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
        self.items(&file.items, folder, module, public)
    }

    fn items(
        &self,
        items: &[Item],
        folder: &str,
        module: &str,
        public: &mut BTreeSet<PublicName>,
    ) -> Result<(), String> {
        for item in items {
            let (attrs, visibility, name) = match item {
                Item::Use(item) => (&item.attrs, &item.vis, None),
                Item::Mod(item) => (&item.attrs, &item.vis, None),
                Item::Struct(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Enum(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Union(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Trait(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Type(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Fn(item) => (&item.attrs, &item.vis, Some(&item.sig.ident)),
                Item::Const(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                Item::Static(item) => (&item.attrs, &item.vis, Some(&item.ident)),
                _ => continue,
            };
            if !is_public(visibility) || is_hidden(attrs) {
                continue;
            }
            public.extend(name.map(|name| PublicName::new(module, name.to_string())));
            match item {
                Item::Use(item) => exported(&item.tree, false, module, public)?,
                Item::Mod(item) => {
                    let (name, inner) = (&item.ident, format!("{module}::{}", item.ident));
                    match &item.content {
                        Some((_, items)) => {
                            self.items(items, &format!("{folder}/{name}"), &inner, public)?;
                        }
                        None => {
                            let file = format!("{folder}/{name}.rs");
                            let has_file = self.0.contains_key(file.as_str());
                            let folder = format!("{folder}/{name}/mod.rs");
                            self.exports(if has_file { &file } else { &folder }, &inner, public)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Adds the names of `tree`, which `module` exports; `is_within`: it is a part of a path.
fn exported(
    tree: &UseTree,
    is_within: bool,
    module: &str,
    public: &mut BTreeSet<PublicName>,
) -> Result<(), String> {
    let name = match tree {
        UseTree::Path(path) => return exported(&path.tree, true, module, public),
        UseTree::Group(group) => {
            return group
                .items
                .iter()
                .try_for_each(|tree| exported(tree, is_within, module, public));
        }
        UseTree::Name(name) => name.ident.to_string(),
        UseTree::Rename(rename) => rename.rename.to_string(),
        UseTree::Glob(_) => {
            return Err(format!("{module} exports all of a module: name each item"));
        }
    };
    if !is_within || !name.starts_with(char::is_uppercase) {
        return Err(format!("{module} exports `{name}`, which may be a module: export its items"));
    }
    public.insert(PublicName::new(module, name));
    Ok(())
}

/// The types of the library, and those that its signatures name although they are hidden.
#[derive(Default)]
struct Types {
    public: BTreeSet<String>,
    /// All types that are defined here or below as `pub`.
    defined: BTreeSet<String>,
    named: BTreeSet<String>,
    /// The part of a file that is being read is a signature.
    is_signature: bool,
}

impl Types {
    fn defined(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Struct(item) if is_public(&item.vis) => self.define(&item.ident),
                Item::Enum(item) if is_public(&item.vis) => self.define(&item.ident),
                Item::Trait(item) if is_public(&item.vis) => self.define(&item.ident),
                Item::Type(item) if is_public(&item.vis) => self.define(&item.ident),
                Item::Mod(item) if !is_test(&item.attrs) => {
                    self.defined(item.content.as_ref().map_or(&[], |(_, items)| items));
                }
                // A macro around a definition: `pub struct Name`.
                Item::Macro(item) => {
                    let text = item.mac.tokens.to_string();
                    let defined = text.split("pub struct ").skip(1);
                    let names = defined.filter_map(|text| text.split([' ', '<', '(']).next());
                    self.defined.extend(names.map(str::to_owned));
                }
                _ => {}
            }
        }
    }

    fn define(&mut self, name: &syn::Ident) {
        self.defined.insert(name.to_string());
    }

    fn is_shown(&self, name: &syn::Ident, attrs: &[Attribute]) -> bool {
        !is_hidden(attrs) && self.public.contains(&name.to_string())
    }

    fn signature(&mut self, read: impl FnOnce(&mut Self)) {
        self.is_signature = true;
        read(self);
        self.is_signature = false;
    }

    /// Reads the fields of a type; `are_public`: those of a variant.
    fn fields(&mut self, fields: &Fields, are_public: bool) {
        for field in fields {
            if (are_public || is_public(&field.vis)) && !is_hidden(&field.attrs) {
                self.signature(|types| types.visit_type(&field.ty));
            }
        }
    }
}

impl<'a> Visit<'a> for Types {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        if self.is_shown(&item.ident, &item.attrs) {
            self.signature(|types| types.visit_generics(&item.generics));
            self.fields(&item.fields, false);
        }
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        if self.is_shown(&item.ident, &item.attrs) {
            for variant in item.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                self.fields(&variant.fields, true);
            }
        }
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        if self.is_shown(&item.ident, &item.attrs) {
            for item in &item.items {
                if let TraitItem::Fn(item) = item
                    && !is_hidden(&item.attrs)
                {
                    self.signature(|types| types.visit_signature(&item.sig));
                }
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let Some(of) = of.path.segments.last() else { return };
        if !self.is_shown(&of.ident, &item.attrs) {
            return;
        }
        let mut is_seen = item.trait_.is_some();
        for part in &item.items {
            match part {
                ImplItem::Fn(part) if is_public(&part.vis) && !is_hidden(&part.attrs) => {
                    self.signature(|types| types.visit_signature(&part.sig));
                    is_seen = true;
                }
                ImplItem::Type(part) => self.signature(|types| types.visit_type(&part.ty)),
                _ => {}
            }
        }
        if is_seen {
            self.signature(|types| {
                types.visit_generics(&item.generics);
                if let Some((_, path, _)) = &item.trait_ {
                    types.visit_path(path);
                }
            });
        }
    }

    fn visit_ident(&mut self, name: &'a syn::Ident) {
        let name = name.to_string();
        if self.is_signature && self.defined.contains(&name) && !self.public.contains(&name) {
            self.named.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "
        #[doc(hidden)]
        pub mod internals;
        mod engine;
        pub mod tower;
        pub use engine::{Engine, HELD_MAX as WAITERS_MAX};
        pub mod store { pub use sluicegate_store::MemoryStore; }
    ";

    const TOWER: &str = "
        pub use layer::Layer;
        #[doc(hidden)]
        pub use layer::Future;
        pub(crate) struct Private;
    ";

    const ENGINE: &str = "
        pub struct Engine<O: Observer> { store: Hidden, pub limits: Limits, #[doc(hidden)] pub rules: Rules }
        pub struct Limits; pub struct Rules; pub struct Hidden; pub trait Observer {}
        impl<O: Observer> Engine<O> {
            pub fn policy(&self) -> Arc<Policy> {}
            #[doc(hidden)]
            pub fn rules(&self) -> Rules {}
            fn private(&self) -> Hidden {}
        }
        #[cfg(test)]
        mod tests { impl Engine<()> { pub fn test(&self) -> Hidden {} } }
    ";

    fn files(lib: &str, list: &str) -> Vec<File> {
        let below = "pub struct Policy; pub struct Other;";
        let files = [
            ("lib.rs", lib),
            ("tower/mod.rs", TOWER),
            ("engine.rs", ENGINE),
            ("internals.rs", "pub use crate::engine::Rules;"),
        ];
        let files = files.map(|(path, text)| (format!("{SOURCES}/{path}"), text.to_owned()));
        let others = [("crates/policy/src/lib.rs", below), (LIST, list)];
        let others = others.map(|(path, text)| (path.to_owned(), text.to_owned()));
        files.into_iter().chain(others).collect()
    }

    /// The list of `LIB`, with a reason for each name.
    fn argued() -> String {
        let list = list(&files(LIB, "")).unwrap();
        let argue =
            |line: &str| if line.ends_with(':') { format!("{line} needed") } else { line.into() };
        list.lines().map(argue).collect::<Vec<_>>().join("\n") + "\n"
    }

    #[test]
    fn names_are_listed_by_module_and_hidden_ones_only_in_signatures() {
        let list = list(&files(LIB, "")).unwrap();
        let names = list.strip_prefix(HEAD).unwrap();
        let expected = "
[sluicegate]
Engine:
WAITERS_MAX:

[sluicegate::store]
MemoryStore:

[sluicegate::tower]
Layer:

[named in signatures, but hidden]
Limits:
Observer:
Policy:
";
        assert_eq!(names, expected);
        assert_eq!(problems(&files(LIB, &argued())), [""; 0]);
    }

    #[test]
    fn a_planted_name_is_found_and_one_that_is_gone_too() {
        let planted = LIB.replace("{Engine,", "{Engine, Turn,");
        let lacks = format!("{LIST}: [sluicegate] lacks `Turn`");
        assert_eq!(problems(&files(&planted, &argued())), [lacks]);
        let planted = LIB.replace("pub mod tower;", "pub mod tower; pub enum Extra {}");
        let lacks = format!("{LIST}: [sluicegate] lacks `Extra`");
        assert_eq!(problems(&files(&planted, &argued())), [lacks]);
        let gone = LIB.replace("pub use sluicegate_store::MemoryStore;", "");
        let has_no = format!("{LIST}: [sluicegate::store] has no `MemoryStore` any more");
        assert_eq!(problems(&files(&gone, &argued())), [has_no]);
    }

    #[test]
    fn what_may_hide_other_names_is_not_exported() {
        for export in
            ["pub use engine::*;", "pub use sluicegate_store as all;", "pub use engine::all;"]
        {
            let found = problems(&files(&format!("{LIB} {export}"), &argued()));
            assert!(found[0].starts_with("sluicegate exports "), "{found:?}");
        }
    }

    #[test]
    fn each_name_has_a_reason_and_keeps_it() {
        let unargued = argued().replace("Engine: needed", "Engine:");
        let found = problems(&files(LIB, &unargued));
        assert_eq!(found, [format!("{LIST}: [sluicegate] `Engine` has no reason")]);
        let planted = LIB.replace("{Engine,", "{Engine, Turn,");
        let anew = list(&files(&planted, &argued())).unwrap();
        assert!(anew.contains("Engine: needed\nTurn:\n"), "{anew}");
    }

    #[test]
    fn types_are_counted_and_constants_are_not() {
        let more = |count: usize| -> String {
            (0..count).map(|n| format!("pub struct Type{n}; pub const MAX_{n}: u8 = 0;")).collect()
        };
        let is_over = |count| {
            let files = files(&format!("{LIB} {}", more(count)), "");
            problems(&files).iter().any(|problem| problem.contains("at most 60"))
        };
        assert_eq!([57, 58].map(is_over), [false, true]);
    }
}
