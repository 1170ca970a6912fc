//! The first line of a doc comment says what the item is: it never begins with a word that hides the subject.

use crate::seams::File;

/// Words that begin a riddle: a line that names no thing.
const RIDDLES: &[&str] = &[
    "What", "Who", "Whose", "How", "Which", "Whether", "Of", "It", "That", "Those", "Nobody",
    "Nothing", "The same",
];

/// Words that begin a riddle in the crates.
const RIDDLES_OF_CRATES: &[&str] = &["Where", "When"];

/// Declarations of Go that a comment above them documents.
const GO_ITEMS: &[&str] = &["func ", "type ", "var ", "const ", "package "];

/// The doc comments in `files` whose first line begins with one of these words, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    let riddles = files.iter().flat_map(|(path, text)| {
        let riddles = first_lines(path, text).into_iter().filter(|(_, line)| is_riddle(path, line));
        riddles.map(move |(number, line)| format!("{path}:{number}: `{line}` names no subject"))
    });
    riddles.collect()
}

fn is_riddle(path: &str, line: &str) -> bool {
    let of_crates = if path.starts_with("crates/") { RIDDLES_OF_CRATES } else { &[] };
    RIDDLES.iter().chain(of_crates).any(|word| {
        let rest = line.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// The first line of each doc comment in a file, with its number from 1.
fn first_lines<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let first = |at: usize| match path.rsplit_once('.')?.1 {
        "rs" => in_rust(&lines, at),
        "java" | "php" | "ts" | "svelte" => in_block(&lines, at),
        "go" => in_go(&lines, at),
        "lua" => begins(&lines, at, "--").filter(|line| !line.starts_with('[')),
        _ => None,
    };
    let found = (0..lines.len()).filter_map(|at| Some((at + 1, first(at)?)));
    found.filter(|(_, line)| !line.is_empty()).collect()
}

/// The text of a comment of whole lines, if it begins at line `at`.
fn begins<'t>(lines: &[&'t str], at: usize, mark: &str) -> Option<&'t str> {
    let is_first = at == 0 || !lines[at - 1].starts_with(mark);
    lines[at].strip_prefix(mark).filter(|_| is_first).map(str::trim)
}

fn in_rust<'t>(lines: &[&'t str], at: usize) -> Option<&'t str> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    if at > 0 && is_doc(lines[at - 1]) {
        return None;
    }
    let line = lines[at];
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// Javadoc and its likes: the text stands beside the opening mark, or below it.
fn in_block<'t>(lines: &[&'t str], at: usize) -> Option<&'t str> {
    let beside = lines[at].strip_prefix("/**")?.trim();
    let line = if beside.is_empty() { lines.get(at + 1)?.trim_start_matches('*') } else { beside };
    let line = line.trim();
    Some(line.strip_prefix("{@return ").unwrap_or(line))
}

/// A comment of Go documents the item below it.
fn in_go<'t>(lines: &[&'t str], at: usize) -> Option<&'t str> {
    let first = begins(lines, at, "//")?;
    let below = lines[at..].iter().find(|line| !line.starts_with("//"))?;
    GO_ITEMS.iter().any(|item| below.starts_with(item)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(path: &str, text: &str) -> Vec<String> {
        problems(&[(path.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_riddle_is_found_in_each_language() {
        for (path, text, number) in [
            ("a.rs", "//! A file.\n\n/// What is left.\nfn f() {}", 3),
            ("a.rs", "//! Whether it is.", 1),
            ("a.java", "class A {\n    /** {@return its end} */\n    /** Who asks. */", 3),
            ("a.java", "/** {@return Which one} */", 1),
            ("a.php", "/**\n * How long it is.\n */", 1),
            ("a.ts", "/** Nothing more. */", 1),
            ("a.go", "// It asks.\n// Twice.\nfunc f() {}", 1),
            ("a.lua", "x = 1\n-- The same again.\n-- More.", 2),
            ("crates/a/src/a.rs", "/// When it began.\nat: u64,", 1),
            ("crates/a/src/a.rs", "//! Where keys are.", 1),
        ] {
            let found = problems_of(path, text);
            assert!(found.len() == 1, "{path}: {text:?}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}:{number}: ")), "{found:?}");
        }
    }

    #[test]
    fn a_subject_is_no_riddle() {
        for (path, text) in [
            ("a.rs", "/// Returns the limit.\n///\n/// What follows is not the first line."),
            (
                "a.rs",
                "/// Office, Items and That_is are other words.\n\n/// Office hours.\n\n/// Its end.",
            ),
            ("a.rs", "// What is no doc comment."),
            ("a.java", "/** {@return the limit} */\n/**\n * The limit.\n */"),
            ("a.go", "// What stands inside.\nx := 1"),
            ("a.txt", "/// What"),
            ("a.rs", "/// When it began."),
            ("crates/a/src/a.rs", "/// Whenever. Its time.\n\n/// Its time.\n/// When that is."),
        ] {
            assert_eq!(problems_of(path, text), Vec::<String>::new(), "{path}: {text:?}");
        }
    }
}
