//! Errors of YAML and JSON in the words of people who write policies: the problem, and the remedy.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::quoted::{is_template, quoted};

/// Describes the most likely mistake in a line of YAML. `None`: the parser's message is the best one.
///
/// `problem` is the parser's message, and `line` where it stopped, from 1: the mistake is there or in the line before.
pub(crate) fn in_words(problem: &str, text: &str, line: u64) -> Option<String> {
    let (before, here) = lines(text, usize::try_from(line).ok()?)?;
    let says = |part: &str| problem.contains(part);
    if [before, here].into_iter().any(is_template) {
        return Some(TEMPLATE.to_owned());
    }
    if says("tab") {
        return Some("a tab: indent YAML with spaces".to_owned());
    }
    if says("mapping values are not allowed") || says("simple key expected ':'") {
        if let Some(joined) = [before, here].into_iter().find_map(key_without_space) {
            return Some(alloc::format!("expected a space after the `:` of {}", quoted(joined)));
        }
        let is_deeper = indentation(here) > indentation(before);
        let problem = if is_deeper && !before.trim_end().ends_with(':') {
            "the line is indented further than the one before, which has a value: indent both alike"
        } else if says("mapping values") {
            "unexpected `:`: put a text with `: ` in it in quotes"
        } else {
            "expected `name: value`"
        };
        return Some(problem.to_owned());
    }
    let known = PROBLEMS.iter().find(|(part, _)| says(part));
    known.map(|(_, words)| (*words).to_owned())
}

/// The error of `text`, which is not JSON, if it has a comment at `line` and `column`, where the parser of JSON
/// stopped.
pub(crate) fn comment_in_json(text: &str, line: usize, column: usize) -> Option<String> {
    let here = text.lines().nth(line.checked_sub(1)?)?;
    let rest = here.get(column.checked_sub(1)?..)?;
    let is_comment = rest.starts_with("//") || rest.starts_with("/*");
    is_comment.then(|| {
        alloc::format!(
            "a comment: JSON has none, remove it or write YAML at line {line} column {column}"
        )
    })
}

const TEMPLATE: &str = "a placeholder of a template: fill the template in first, such as with `helm template` or `envsubst`";

/// Parts of messages of the parser, and the message that replaces each.
const PROBLEMS: [(&str, &str); 8] = [
    (
        "anchor or alias",
        "`*` begins an alias of YAML, and `&` an anchor: put the text in quotes, such as `'*'`",
    ),
    ("expected '-' indicator", "wrong indentation: the fields of an item begin in the same column"),
    (
        "did not find expected key",
        "wrong indentation: the fields of a map begin in the same column",
    ),
    ("expected ',' or '}'", "expected `,` or `}`: a `{` before this is not closed"),
    ("expected ',' or ']'", "expected `,` or `]`: a `[` before this is not closed"),
    (
        "illegal placement of ':'",
        "unexpected `:`: a `[` or `{` before this is not closed, or a text needs quotes",
    ),
    ("quoted scalar", "a quotation mark before this is not closed"),
    ("unclosed quote", "a quotation mark before this is not closed"),
];

/// The line of that number, and the last one before it that has something but a comment; empty if there is none.
fn lines(text: &str, number: usize) -> Option<(&str, &str)> {
    let here = text.lines().nth(number.checked_sub(1)?)?;
    let mut before = "";
    for line in text.lines().take(number - 1) {
        let trimmed = line.trim_start();
        if !trimmed.is_empty() && !trimmed.starts_with('#') {
            before = line;
        }
    }
    Some((before, here))
}

/// Returns `name:api` in a line that otherwise contains only dashes.
fn key_without_space(line: &str) -> Option<&str> {
    let pair = line.trim().trim_start_matches("- ").trim();
    let (name, value) = pair.split_once(':')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_value = !value.is_empty() && !value.starts_with([' ', '/']);
    (is_name && is_value).then_some(pair)
}

/// The column where the fields of the map of a line begin: dashes of items count as spaces.
fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

#[cfg(test)]
mod tests {
    use crate::Document;

    #[test]
    fn mistakes_in_yaml_are_named_with_what_to_write() {
        for (text, expected) in [
            (
                "policies:\n  - name:api\n    apps: [shop]",
                "expected a space after the `:` of `name:api`",
            ),
            (
                "policies:\n  - name: api\n    apps:[shop]\n    rules: []",
                "expected a space after the `:` of `apps:[shop]`",
            ),
            (
                "policies:\n  - name: api\n     apps: [shop]",
                "the line is indented further than the one before",
            ),
            (
                "policies:\n  - name: api: v2\n",
                "unexpected `:`: put a text with `: ` in it in quotes",
            ),
            ("policies:\n  - name: api\n   apps: [shop]", "wrong indentation: "),
            ("policies:\n\t- name: api", "a tab: indent YAML with spaces"),
            ("policies:\n  - name: api\n\tapps: [shop]", "a tab: indent YAML with spaces"),
            ("policies:\n  - name: api\n    apps: [*]", "`*` begins an alias of YAML"),
            ("policies:\n  - { name: api\n  - name: b", "unclosed bracket '{'"),
            (
                "policies:\n  - apps: [shop\n    name: b",
                "unexpected `:`: a `[` or `{` before this is not closed",
            ),
            (
                "policies:\n  - name: \"api\n    apps: [shop]\n",
                "a quotation mark before this is not closed",
            ),
            ("policies:\n  - name: {{ .Values.name }}\n", "a placeholder of a template: fill"),
            (
                "{{- if .Values.limits }}\npolicies: []\n{{ end }}",
                "a placeholder of a template: fill",
            ),
            ("policies: [ { name: ${NAME} } ]", "a placeholder of a template: fill"),
            ("{ // ours\n  \"policies\": [] }", "a comment: JSON has none"),
            ("{ \"policies\": [] /* ours */ }", "a comment: JSON has none"),
        ] {
            let errors = Document::parse(text).unwrap_err();
            let problem = errors.errors()[0].problem();
            assert!(problem.starts_with(expected), "{text}\n{problem}");
            assert!(problem.contains(" at line "), "{text}\n{problem}");
        }
    }
}
