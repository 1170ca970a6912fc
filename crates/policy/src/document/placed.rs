//! The errors of a document for people: with line and column, and with the names of policies.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::DocumentError;
use crate::node::{DocumentNode, Places, TextPlace};
use crate::quoted::excerpt;

/// One error of a document in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedError {
    /// The place in the text, as far as that is known.
    pub place: Option<TextPlace>,
    /// The path in the document, with the name of the policy: `policies[2] (login).rules[0]`.
    pub path: String,
    /// The given value and the permitted ones.
    pub problem: String,
}

/// `errors` of the document `text`, each with its place in it.
pub fn placed<'e>(
    text: &str,
    errors: impl IntoIterator<Item = &'e DocumentError>,
) -> Vec<PlacedError> {
    let read = DocumentNode::read_placed(text).ok();
    errors
        .into_iter()
        .map(|error| match &read {
            Some((node, places)) if error.finding().code() != "syntax" => {
                in_document(error, node, places)
            }
            _ => of_syntax(error, text),
        })
        .collect()
}

fn in_document(error: &DocumentError, node: &DocumentNode, places: &Places) -> PlacedError {
    let path = named(error, node).unwrap_or_else(|| error.path().to_owned());
    let place = places.of(error.pointer()).filter(|_| !error.pointer().is_empty());
    PlacedError { place, path, problem: error.problem().to_owned() }
}

/// The path of `error` with the name of its policy. `None` if it is not in a policy, or in its name.
fn named(error: &DocumentError, node: &DocumentNode) -> Option<String> {
    let (index, rest) = error.path().strip_prefix("policies[")?.split_once(']')?;
    let DocumentNode::List(policies) = node.get("policies")? else { return None };
    let DocumentNode::Text(name) = policies.get(index.parse::<usize>().ok()?)?.get("name")? else {
        return None;
    };
    (rest != ".name").then(|| alloc::format!("policies[{index}] ({}){rest}", excerpt(name)))
}

/// An error of the syntax, which names its place in words, with the text of that line.
fn of_syntax(error: &DocumentError, text: &str) -> PlacedError {
    let whole = || PlacedError {
        place: None,
        path: error.path().to_owned(),
        problem: error.problem().to_owned(),
    };
    let Some((problem, place)) = error.problem().rsplit_once(" at line ") else { return whole() };
    let Some((line, column)) = place.split_once(" column ") else { return whole() };
    let (Ok(line), Ok(column)) = (line.parse(), column.parse()) else { return whole() };
    let shown = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
    let problem = problem.replace("EOF while parsing", "unexpected end of the text in");
    let problem = match shown.map(str::trim).filter(|shown| !shown.is_empty()) {
        Some(shown) => alloc::format!("{problem}: `{}`", excerpt(shown)),
        None => problem,
    };
    PlacedError { place: Some(TextPlace { line, column }), path: String::new(), problem }
}

impl fmt::Display for PlacedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::Document;

    /// `line:column: path: problem` of every error of `text`.
    fn errors(text: &str) -> Vec<String> {
        let errors = Document::parse(text).unwrap_err();
        let place = |place: Option<TextPlace>| {
            place.map_or("?".to_owned(), |at| alloc::format!("{}:{}", at.line, at.column))
        };
        placed(text, errors.errors())
            .iter()
            .map(|error| alloc::format!("{}: {error}", place(error.place)))
            .collect()
    }

    #[test]
    fn an_error_has_line_and_column_and_the_name_of_its_policy() {
        let text = "policies:\n  - name: login\n    rules:\n      - token_bucket: { rate: 0/s }\n  - name: B\n";
        let errors = errors(text);
        assert!(
            errors[0].starts_with("4:31: policies[0] (login).rules[0].token_bucket.rate: invalid"),
            "{errors:?}"
        );
        assert!(errors[1].starts_with("5:11: policies[1].name: invalid name `B`"), "{errors:?}");
        assert!(errors[2].starts_with("5:5: policies[1] (B).rules: is missing"), "{errors:?}");
    }

    #[test]
    fn an_error_of_the_syntax_shows_its_line() {
        let text = "policies:\n  - name: a\n    rules:\n      - token_bucket:\n   rate: 1/s\n";
        let error = &errors(text)[0];
        assert!(error.starts_with("5:4: ") && error.ends_with(": `rate: 1/s`"), "{error}");
        assert_eq!(errors("{\"policies\": [\n"), ["2:0: unexpected end of the text in a list"]);
    }

    #[test]
    fn an_error_of_the_whole_has_no_place() {
        assert_eq!(errors("[]"), ["?: expected a map with `policies`, found a list"]);
        assert!(errors("")[0].starts_with("?: "));
        let json = "{\n\t\"policies\": [ { \"name\": \"a\" } ]\n}";
        assert!(errors(json)[0].contains("policies[0]"), "tabs are no YAML, and the path stays");
    }
}
