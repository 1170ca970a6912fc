//! The requests that a resource of Sentinel names.

use serde_json::{Value, json};
use sluicegate_policy::finding;
use sluicegate_policy::path::normal_path;

use crate::Note;

/// A resource, and the gateway requests that it names.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    /// As in `match` of a policy; `None`: it is a name, or no `match` can express it.
    pub(super) matching: Option<Value>,
    kind: ResourceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceKind {
    /// A name that programs use in their requests.
    Name,
    /// A path, or a pattern that `match` expresses exactly.
    Exact,
    /// A pattern; `match` contains everything below its beginning.
    Below,
    /// A pattern that no `match` can express.
    Unsaid,
}

impl Resource {
    /// Reads `GET:/orders/{id}`; a regular expression, if `is_pattern`.
    pub(super) fn read(name: &str, is_pattern: bool) -> Self {
        let (method, path) = match name.split_once(':') {
            Some((method, path)) if is_method(method) && path.starts_with('/') => {
                (Some(method), path)
            }
            _ => (None, name),
        };
        let (path, kind) = match () {
            () if is_pattern => (None, ResourceKind::Unsaid),
            () if path.starts_with('/') => path_of(path),
            () => (None, ResourceKind::Name),
        };
        let matching = path.map(|path| {
            let mut matching = json!({ "path": path });
            if let Some(method) = method {
                matching["method"] = json!([method]);
            }
            matching
        });
        Self { name: name.to_owned(), matching, kind }
    }

    /// Differences between its requests and those of the policy. `rule` is the name of the rule in
    /// the note.
    pub(super) fn notes(&self, rule: &str, line: u64, is_of_threads: bool) -> Option<Note> {
        if is_of_threads && self.kind != ResourceKind::Name {
            let problem = finding!(
                "sentinel_threads",
                "{rule}: no `match` leads to permits: name the policy in a gateway that holds them (docs/gateways.md), or acquire and release them in the program",
                rule
            );
            return Some(Note::widens(line, problem));
        }
        match self.kind {
            ResourceKind::Exact => None,
            ResourceKind::Name => {
                let problem = finding!(
                    "sentinel_name",
                    "{rule}: the policy has no `match`: it limits requests that name it",
                    rule
                );
                Some(Note::differs(line, problem))
            }
            ResourceKind::Below => {
                let beginning = self.matching.as_ref().and_then(|of| of["path"]["prefix"].as_str());
                let beginning = beginning.unwrap_or_default();
                let problem = finding!(
                    "sentinel_below",
                    "{rule}: the policy also limits other requests below `{beginning}`",
                    rule,
                    beginning
                );
                Some(Note::differs(line, problem))
            }
            ResourceKind::Unsaid => {
                let problem = finding!(
                    "sentinel_pattern",
                    "{rule}: policies match paths and prefixes only: no request meets the policy",
                    rule
                );
                Some(Note::widens(line, problem))
            }
        }
    }
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Returns whether a request can have this path, if it is not a pattern: policies compare normal
/// paths.
fn is_normal(path: &str) -> bool {
    let path = path.replace('?', "x");
    normal_path(path.as_bytes()).is_ok_and(|normal| normal == path)
}

/// The path of a `match`, up to the first part that is a pattern.
fn path_of(path: &str) -> (Option<Value>, ResourceKind) {
    if path.contains('#') || !is_normal(path) {
        return (None, ResourceKind::Unsaid);
    }
    let is_pattern = |part: &str| part.contains(['{', '*', '?']);
    let parts: Vec<_> = path.split('/').skip(1).collect();
    let Some(place) = parts.iter().position(|part| is_pattern(part)) else {
        return (Some(json!({ "exact": path })), ResourceKind::Exact);
    };
    let (plain, rest) = parts.split_at(place);
    match (plain, rest) {
        ([], ["**"]) => (Some(json!({ "prefix": "/" })), ResourceKind::Exact),
        (plain, ["**"]) => {
            (Some(json!({ "prefix": format!("/{}", plain.join("/")) })), ResourceKind::Exact)
        }
        ([], _) => (None, ResourceKind::Unsaid),
        (plain, _) => {
            (Some(json!({ "prefix": format!("/{}/", plain.join("/")) })), ResourceKind::Below)
        }
    }
}
