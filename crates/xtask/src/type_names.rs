//! Names of types that several modules declare: a reader has to find out each time which one is meant.
//!
//! Two modules may use the same word, such as the wire's `Reply` and the store's. From three on, the word no longer
//! tells what the type is: a longer name, such as `QueuedEvent`, does.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;

use crate::seams::File;
use crate::shipped;

/// Number of modules from which on a name counts as too common.
const MODULES: usize = 3;

/// Number of such names that may exist without a reason.
const NAMES_MAX: usize = 5;

/// A name that so many modules declare.
struct KnownName {
    name: &'static str,
    reason: &'static str,
}

/// The names that so many modules declare with a reason.
const KNOWN: &[KnownName] = &[];

/// The files that declare each name.
type FilesByName<'f> = BTreeMap<String, BTreeSet<&'f str>>;

/// The names in `files` that too many modules declare, if there are too many of them, and the known ones that no
/// longer are such, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    compare(&declared(files), KNOWN)
}

fn compare(declared: &FilesByName<'_>, known: &[KnownName]) -> Vec<String> {
    let common = |name: &str| declared.get(name).is_some_and(|files| files.len() >= MODULES);
    let names = declared.keys().filter(|name| common(name));
    let new: Vec<_> = names.filter(|name| !known.iter().any(|known| known.name == *name)).collect();
    let is_over = new.len() > NAMES_MAX;
    let new = new.into_iter().filter(|_| is_over).map(|name| {
        let files: Vec<_> = declared[name].iter().copied().collect();
        format!("{} modules declare a type `{name}`: {}", files.len(), files.join(", "))
    });
    let gone = known.iter().filter(|known| !common(known.name));
    let gone = gone.map(|KnownName { name, reason }| {
        format!("`{name}` is rare: remove it from the list ({reason})")
    });
    new.chain(gone).collect()
}

fn declared(files: &[File]) -> FilesByName<'_> {
    let mut declared = FilesByName::new();
    for (path, file) in shipped::trees(files) {
        for name in names(&file.items) {
            declared.entry(name).or_default().insert(path);
        }
    }
    declared
}

/// The names of the types among `items` that are not of unit tests.
fn names(items: &[Item]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| {
        let (attrs, name) = match item {
            Item::Struct(item) => (&item.attrs, &item.ident),
            Item::Enum(item) => (&item.attrs, &item.ident),
            Item::Union(item) => (&item.attrs, &item.ident),
            Item::Trait(item) => (&item.attrs, &item.ident),
            Item::Type(item) => (&item.attrs, &item.ident),
            _ => return None,
        };
        (!shipped::is_test(attrs)).then(|| name.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: KnownName = KnownName { name: "A", reason: "a test" };

    /// Files of a crate, each with its declarations.
    fn files(texts: &[(&str, &str)]) -> Vec<File> {
        let file =
            |(path, text): &(&str, &str)| (format!("crates/a/src/{path}"), (*text).to_owned());
        texts.iter().map(file).collect()
    }

    #[test]
    fn a_sixth_common_name_is_too_many() {
        let five =
            "struct A;\npub enum B {}\npub(crate) trait C {}\ntype D = u8;\nunion E { e: u8 }\n";
        let six = format!("{five}struct F;\n");
        let [a, b, c] = ["a.rs", "b/mod.rs", "c/d.rs"];
        assert_eq!(problems(&files(&[(a, five), (b, five), (c, five)])), [""; 0]);
        assert_eq!(problems(&files(&[(a, &six), (b, &six), (c, five)])), [""; 0]);
        let found = problems(&files(&[(a, &six), (b, &six), (c, &six)]));
        assert_eq!(found.len(), 6, "{found:?}");
        let last = "3 modules declare a type `F`: \
            crates/a/src/a.rs, crates/a/src/b/mod.rs, crates/a/src/c/d.rs";
        assert_eq!(found[5], last);
    }

    #[test]
    fn a_known_name_is_listed_as_long_as_it_is_common() {
        let types = "struct A;\nstruct B;\nstruct C;\nstruct D;\nstruct E;\nstruct F;\n";
        let files = files(&[("a.rs", types), ("b.rs", types), ("c.rs", types)]);
        assert_eq!(compare(&declared(&files), &[A]), [""; 0]);
        let gone = "`A` is rare: remove it from the list (a test)";
        assert_eq!(compare(&declared(&files[..2]), &[A]), [gone]);
    }

    #[test]
    fn tests_generated_code_and_inner_types_do_not_count() {
        let files = files(&[
            ("a.rs", "struct A;\n#[cfg(test)]\nstruct B;\n#[cfg(test)]\nmod tests { struct C; }\n"),
            ("a/tests.rs", "struct D;\n"),
            ("tests/b.rs", "struct E;\n"),
            ("generated/b.rs", "struct F;\n"),
            ("b.rs", "fn f() { struct G; }\n"),
        ]);
        let declared = declared(&files);
        assert_eq!(declared.keys().collect::<Vec<_>>(), ["A"]);
    }
}
