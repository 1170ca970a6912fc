//! The purposes of the crates of others that the manifests name, as `crates/dependencies.txt` lists them.

use std::collections::BTreeSet;

/// The list, below the root of the project.
pub const LIST: &str = "crates/dependencies.txt";

/// The differences between the list, whose text is `text`, and the crates in `named`, one line each.
pub fn problems(named: &BTreeSet<String>, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty()) {
        let (name, purpose) = line.split_once(": ").unwrap_or((line, ""));
        if purpose.trim().is_empty() {
            problems.push(format!("{LIST}: `{name}` has no purpose"));
        }
        if !listed.insert(name) {
            problems.push(format!("{LIST}: `{name}` is listed twice"));
        }
    }
    let new = named.iter().filter(|name| !listed.contains(name.as_str()));
    problems.extend(new.map(|name| format!("{LIST} lacks `{name}`: write its purpose")));
    let gone = listed.iter().filter(|name| !named.contains(**name));
    problems.extend(gone.map(|name| format!("{LIST}: no manifest names `{name}`")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(named: &[&str], text: &str) -> Vec<String> {
        problems(&named.iter().map(|name| (*name).to_owned()).collect(), text)
    }

    #[test]
    fn an_unknown_dependency_and_one_that_is_gone_are_found() {
        let list = "# A list.\n\n[product]\na: its purpose\nb: another\n";
        assert_eq!(problems_of(&["a", "b"], list), [""; 0]);
        assert_eq!(
            problems_of(&["a", "leftpad"], list),
            [
                "crates/dependencies.txt lacks `leftpad`: write its purpose",
                "crates/dependencies.txt: no manifest names `b`"
            ]
        );
    }

    #[test]
    fn each_line_has_a_purpose_and_stands_once() {
        assert_eq!(
            problems_of(&["a"], "a: \na: again\n"),
            [
                "crates/dependencies.txt: `a` has no purpose",
                "crates/dependencies.txt: `a` is listed twice"
            ]
        );
    }
}
