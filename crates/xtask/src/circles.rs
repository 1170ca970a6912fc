//! Circles of modules: siblings in a folder that name one another, directly or through others.
//!
//! A module in a circle can only be read together with all others of the circle. A path that begins with `crate::`,
//! `super::` or `self::` is an arrow, also inside a tree of `use`. Arrows between a module and its own children do not
//! count, nor do those of unit tests and comments. A path that leads through a `pub use` of the parent is not seen: name
//! an item where it is defined.

use std::collections::{BTreeMap, BTreeSet};

use crate::seams::{File, code, is_of_name};

/// A circle with its folder and members, and its arrows for the report.
#[derive(Debug, PartialEq)]
struct Circle<'f> {
    folder: String,
    members: Vec<&'f str>,
    /// `from -> to (file)`, with the first file that has the arrow.
    arrows: Vec<String>,
}

/// For each module of a folder, the siblings that it names, each with the first file that does.
type Arrows<'f> = BTreeMap<&'f str, BTreeMap<&'f str, &'f str>>;

/// The circles in `files`, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    let line = |Circle { folder, members, arrows }: &Circle<'_>| {
        let (members, arrows) = (members.join(", "), arrows.join("; "));
        format!("{folder}: the modules {members} form a circle: {arrows}")
    };
    circles(files).iter().map(line).collect()
}

fn circles(files: &[File]) -> Vec<Circle<'_>> {
    let mut crates = BTreeMap::<_, BTreeMap<_, _>>::new();
    for (path, text) in files {
        if let Some((of, module)) = module(path) {
            crates.entry(of).or_default().insert(path.as_str(), (module, code(text)));
        }
    }
    let mut circles = Vec::new();
    for (of, files) in &crates {
        let modules: BTreeSet<_> = files.values().map(|(module, _)| module.as_slice()).collect();
        let mut folders = BTreeMap::<&[&str], Arrows<'_>>::new();
        for (path, (from, code)) in files {
            for to in targets(from, code, &modules) {
                let same = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
                if let (Some(sibling), Some(to)) = (from.get(same), to.get(same)) {
                    let arrows = folders.entry(&from[..same]).or_default();
                    arrows.entry(sibling).or_default().entry(to).or_insert(path);
                }
            }
        }
        for (folder, arrows) in &folders {
            let folder = [&[*of, "src"], *folder].concat().join("/");
            circles.extend(components(arrows).into_iter().map(|members| Circle {
                arrows: arrows_among(&members, arrows),
                folder: folder.clone(),
                members,
            }));
        }
    }
    circles
}

/// The folder of the crate and the module of a source file, unless it is a test or another program.
fn module(path: &str) -> Option<(&str, Vec<&str>)> {
    let (of, within) = path.strip_suffix(".rs")?.split_once("/src/")?;
    let mut module: Vec<_> = within.split('/').collect();
    if module == ["lib"] || module == ["main"] || module.last() == Some(&"mod") {
        module.pop();
    }
    (!module.contains(&"tests") && module.first() != Some(&"bin")).then_some((of, module))
}

/// The modules that `code` of the module `from` names, as far as its paths lead through modules.
fn targets<'f>(from: &[&str], code: &str, modules: &BTreeSet<&[&'f str]>) -> Vec<Vec<&'f str>> {
    let mut targets = Vec::new();
    for root in ["crate", "super", "self"] {
        for (at, _) in code.match_indices(&format!("{root}::")) {
            if code[..at].ends_with(|char| is_of_name(char) || char == ':') {
                continue;
            }
            let named = paths(&code[at..]).0.into_iter().map(|path| target(from, &path, modules));
            targets.extend(named);
        }
    }
    targets
}

fn target<'f>(from: &[&str], path: &[&str], modules: &BTreeSet<&[&'f str]>) -> Vec<&'f str> {
    let mut to = if path[0] == "crate" { Vec::new() } else { from.to_vec() };
    for name in path {
        match *name {
            "crate" | "self" => {}
            "super" => drop(to.pop()),
            name => {
                to.push(name);
                if !modules.contains(to.as_slice()) {
                    to.pop();
                    break;
                }
            }
        }
    }
    modules.iter().find(|module| **module == to).map(|module| module.to_vec()).unwrap_or_default()
}

/// The paths at the beginning of `text`, and the text after them: a tree of `use` has several.
fn paths(text: &str) -> (Vec<Vec<&str>>, &str) {
    let text = text.trim_start();
    if let Some(branches) = text.strip_prefix('{') {
        return tree(branches);
    }
    let (name, rest) = text.split_at(text.find(|char| !is_of_name(char)).unwrap_or(text.len()));
    if name.is_empty() {
        return (vec![Vec::new()], text);
    }
    let Some(deeper) = rest.trim_start().strip_prefix("::") else {
        return (vec![vec![name]], rest);
    };
    let (mut paths, rest) = paths(deeper);
    paths.iter_mut().for_each(|path| path.insert(0, name));
    (paths, rest)
}

/// The paths of a tree whose brace is open, and the text after its end.
fn tree(mut text: &str) -> (Vec<Vec<&str>>, &str) {
    let mut all = Vec::new();
    loop {
        text = text.trim_start_matches(|char: char| char.is_whitespace() || char == ',');
        if text.is_empty() || text.starts_with('}') {
            return (all, text.strip_prefix('}').unwrap_or_default());
        }
        let (some, rest) = paths(text);
        all.extend(some);
        // Leaves out `*` and `as`.
        text = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
    }
}

/// The groups of two or more modules that reach one another.
fn components<'f>(arrows: &Arrows<'f>) -> Vec<Vec<&'f str>> {
    let reached: BTreeMap<_, _> =
        arrows.keys().map(|from| (*from, reached(from, arrows))).collect();
    let mut components = BTreeSet::new();
    for (from, to) in &reached {
        let back = to.iter().filter(|to| reached.get(*to).is_some_and(|to| to.contains(from)));
        components.insert(back.copied().collect::<Vec<_>>());
    }
    components.into_iter().filter(|members| members.len() > 1).collect()
}

fn reached<'f>(from: &'f str, arrows: &Arrows<'f>) -> BTreeSet<&'f str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let to = arrows.get(module).into_iter().flat_map(BTreeMap::keys);
        next.extend(to.filter(|to| reached.insert(**to)));
    }
    reached
}

fn arrows_among(members: &[&str], arrows: &Arrows<'_>) -> Vec<String> {
    let from = arrows.iter().filter(|(from, _)| members.contains(from));
    let all = from.flat_map(|(from, to)| to.iter().map(move |(to, file)| (from, to, file)));
    let inside = all.filter(|(_, to, _)| members.contains(to));
    inside.map(|(from, to, file)| format!("{from} -> {to} ({file})")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        problems(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_at_the_top_of_a_crate_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod engine;\nmod store;\nmod log;\n"),
            ("crates/a/src/engine.rs", "use crate::telemetry::Telemetry;\n"),
            ("crates/a/src/telemetry/mod.rs", "use crate::{log::Log, store as memory};\n"),
            ("crates/a/src/store.rs", "fn f() { super::engine::<u8>::new() }\n"),
            ("crates/a/src/log.rs", ""),
        ];
        let circle = "crates/a/src: the modules engine, store, telemetry form a circle: \
            engine -> telemetry (crates/a/src/engine.rs); store -> engine (crates/a/src/store.rs); \
            telemetry -> store (crates/a/src/telemetry/mod.rs)";
        assert_eq!(problems_of(&files), [circle]);
        assert_eq!(problems_of(&files[..3]), [""; 0]);
    }

    #[test]
    fn a_circle_in_a_folder_is_found() {
        let files = [
            ("crates/a/src/wire/http/mod.rs", "use self::codec::Codec;\n"),
            ("crates/a/src/wire/http/codec/read.rs", "use super::super::serve::{self, Serve};\n"),
            ("crates/a/src/wire/http/codec/mod.rs", "use super::Http;\n"),
            ("crates/a/src/wire/http/serve.rs", "use crate::wire::{http::{*, codec::*}, Wire};\n"),
            ("crates/a/src/wire/mod.rs", ""),
        ];
        let circle = "crates/a/src/wire/http: the modules codec, serve form a circle: \
            codec -> serve (crates/a/src/wire/http/codec/read.rs); \
            serve -> codec (crates/a/src/wire/http/serve.rs)";
        assert_eq!(problems_of(&files), [circle]);
    }

    #[test]
    fn tests_comments_parents_and_other_crates_make_no_circle() {
        let tests =
            "// crate::b\nuse crate::c::C;\n\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
        let files = [
            ("crates/a/src/a/mod.rs", tests),
            ("crates/a/src/a/tests.rs", "use crate::b::B;\n"),
            ("crates/a/src/a/child.rs", "use super::A;\nuse crate::a;\nuse self::b::B;\n"),
            ("crates/a/src/b.rs", "use crate::a::{A, child::Child};\n"),
            ("crates/a/src/c.rs", "use supercrate::a::A;\n"),
            ("crates/b/src/c.rs", "use crate::a::A;\n"),
            ("crates/b/src/a.rs", ""),
        ];
        assert_eq!(problems_of(&files), [""; 0]);
    }
}
