//! Policies as they are written in files, each with its place, so that errors name the file and the path in it.

use std::path::PathBuf;

use serde_json::Value;
use sluicegate_text::documents::{DocumentSource, Located};

/// The policies of files, in their order.
#[derive(Debug, Default)]
pub(crate) struct PolicyFiles {
    pub(crate) policies: Vec<OnePolicy>,
}

/// A policy of a file.
#[derive(Debug)]
pub(crate) struct OnePolicy {
    pub(crate) document: Value,
    /// The file in which it is written.
    pub(crate) file: String,
    /// Its place among the policies of the file.
    pub(crate) place: usize,
}

impl PolicyFiles {
    /// Reads the policies of a document, or of a directory of documents, which are valid.
    ///
    /// # Errors
    /// If a file cannot be read; the inner error lists all that is invalid.
    pub(crate) fn read(path: PathBuf) -> anyhow::Result<Result<Self, Vec<Located>>> {
        Ok(DocumentSource::new(path).written()?.map(|files| {
            let policies = files.into_iter().flat_map(|(file, documents)| {
                let file = file.display().to_string();
                documents.into_iter().enumerate().map(move |(place, document)| OnePolicy {
                    document,
                    file: file.clone(),
                    place,
                })
            });
            Self { policies: policies.collect() }
        }))
    }

    /// The documents, in their order.
    pub(crate) fn documents(&self) -> Vec<&Value> {
        self.policies.iter().map(|policy| &policy.document).collect()
    }

    /// Locates `problem`: `pointer` leads into the list of policies that was sent to a server.
    pub(crate) fn located(&self, pointer: &str, problem: &str) -> Located {
        let found = pointer.strip_prefix("/policies/").and_then(|rest| {
            let (place, rest) = rest.split_once('/').unwrap_or((rest, ""));
            Some((self.policies.get(place.parse::<usize>().ok()?)?, rest))
        });
        let problem = problem.to_owned();
        match found {
            Some((OnePolicy { file, place, document: _ }, rest)) => {
                let inside = rest.strip_prefix("document").unwrap_or(rest);
                let path = format!("policies[{place}]{}", steps(inside));
                Located::new(file.clone(), path, problem)
            }
            None => Located::new(String::new(), pointer.to_owned(), problem),
        }
    }
}

/// `/rules/0/token_bucket/rate` as `rules[0].token_bucket.rate`.
pub(crate) fn path(pointer: &str) -> String {
    let steps = steps(pointer);
    steps.strip_prefix('.').map_or(steps.clone(), str::to_owned)
}

/// `pointer` as a path whose names each follow a full stop: `.rules[0]`.
fn steps(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').filter(|step| !step.is_empty()) {
        let is_number = step.bytes().all(|byte| byte.is_ascii_digit());
        let name = step.replace("~1", "/").replace("~0", "~");
        path.push_str(&if is_number { format!("[{step}]") } else { format!(".{name}") });
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_the_file_and_the_path_in_it() {
        let policy =
            |file: &str, place| OnePolicy { document: Value::Null, file: file.into(), place };
        let written = PolicyFiles { policies: vec![policy("a.yaml", 0), policy("b.yaml", 1)] };
        for (pointer, expected) in [
            (
                "/policies/1/document/rules/0/token_bucket/rate",
                "b.yaml: policies[1].rules[0].token_bucket.rate: no",
            ),
            ("/policies/0/document/name", "a.yaml: policies[0].name: no"),
            ("/policies/0/document", "a.yaml: policies[0]: no"),
            ("/policies/2/document", "/policies/2/document: no"),
            ("/reason", "/reason: no"),
            ("", "no"),
        ] {
            assert_eq!(written.located(pointer, "no").to_string(), expected);
        }
    }

    #[test]
    fn a_pointer_is_a_path_within_a_policy() {
        for (pointer, expected) in [
            ("/rules/0/token_bucket/rate", "rules[0].token_bucket.rate"),
            ("/overflow/degrade/response/headers/a~1b", "overflow.degrade.response.headers.a/b"),
            ("", ""),
        ] {
            assert_eq!(path(pointer), expected);
        }
    }
}
