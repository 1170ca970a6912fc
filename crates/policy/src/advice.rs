//! Policies that are valid, and that clients can walk around.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use crate::attribute::{Conditions, KeyAttribute, Matcher, PathMatch};
use crate::path::normal_path;
use crate::{Policy, PolicySet};

/// A policy that clients can walk around, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The policy.
    pub policy: String,
    /// Problem and remedy, in lower case, without a full stop.
    pub text: String,
}

/// Ends of paths that servers run as programs, with what follows in the path as an argument (`PATH_INFO`).
const PROGRAM_ENDS: [&str; 5] = [".php", ".cgi", ".fcgi", ".pl", ".py"];

/// Advice on the policies that guard requests of gateways: those with a `match`.
pub fn advice(policies: &PolicySet) -> Vec<Advice> {
    let mut all = Vec::new();
    for policy in policies.policies() {
        if let Some(text) = mixed_advice(policy) {
            all.push(Advice { policy: policy.name().to_owned(), text });
        }
        let Some(matcher) = policy.matcher() else { continue };
        let texts =
            [spelling_advice(matcher), path_advice(matcher), key_advice(policies, policy, matcher)];
        let advice = |text| Advice { policy: policy.name().to_owned(), text };
        all.extend(texts.into_iter().flatten().map(advice));
    }
    all
}

/// Advice on a policy with a concurrency rule beside others.
fn mixed_advice(policy: &Policy) -> Option<String> {
    let mut rules = policy.rules().set().rules().iter();
    let has_others = rules.any(|named| !named.rule.holds_permits());
    (policy.hands_out_permits() && has_others).then(|| {
        "rules: with a `concurrency` rule, only `acquire` asks this policy, and takes its cost from every rule; \
         write a policy for the other rules, if they count something else"
            .to_owned()
    })
}

/// Advice on a path that no request has: the first of the cases.
fn spelling_advice(matcher: &Matcher) -> Option<String> {
    matcher.cases().iter().find_map(|case| {
        let (form, path) = match case.conditions().path()? {
            PathMatch::Exact(path) => ("exact", path),
            PathMatch::Prefix(path) => ("prefix", path),
            PathMatch::StartsWith(path) => ("starts_with", path),
        };
        let normal = normal_path(path.as_bytes()).ok();
        (normal.as_deref() != Some(&**path)).then(|| {
            let remedy = normal.map(|normal| format!("; use `{normal}`")).unwrap_or_default();
            format!("match.path.{form}: no request has the path `{path}` once it is in its normal spelling{remedy}")
        })
    })
}

/// Advice on a path that names a program: the first of the cases.
fn path_advice(matcher: &Matcher) -> Option<String> {
    let is_program = |path: &str| PROGRAM_ENDS.iter().any(|end| path.ends_with(end));
    let path = matcher.cases().iter().find_map(|case| match case.conditions().path() {
        Some(PathMatch::Exact(path)) if is_program(path) => Some(path),
        _ => None,
    })?;
    Some(format!(
        "match.path.exact: servers run `{path}/x` as `{path}`, which it does not match; use `prefix: {path}`"
    ))
}

/// Advice on a key that clients choose, where no policy by address guards the same requests.
fn key_advice(policies: &PolicySet, policy: &Policy, matcher: &Matcher) -> Option<String> {
    let header = policy.key().iter().find(|part| matches!(part, KeyAttribute::Header(_)))?;
    let is_by_address = |policy: &Policy| policy.key().contains(&KeyAttribute::RemoteIp);
    let mut others = policies.policies().iter();
    let is_bounded = others.any(|other| {
        let is_bound = other.key().is_empty() || *other.key() == [KeyAttribute::RemoteIp];
        is_bound && other.matcher().is_some_and(|other| covers(other, matcher))
    });
    (!is_bounded && !is_by_address(policy)).then(|| {
        format!(
            "key: clients choose the value of `{header}`, and each new value has a budget of its own; \
             add a policy by `remote_ip` for the same paths, unless your gateway sets it"
        )
    })
}

/// Whether `wide` matches all requests that `narrow` matches, as far as that can be seen: a case with exceptions
/// counts as one that does not.
fn covers(wide: &Matcher, narrow: &Matcher) -> bool {
    narrow.cases().iter().all(|narrow| {
        let mut plain = wide.cases().iter().filter(|wide| wide.except().is_empty());
        plain.any(|wide| are_met_by_all(wide.conditions(), narrow.conditions()))
    })
}

/// Whether all requests that meet `narrow` meet `wide`.
fn are_met_by_all(wide: &Conditions, narrow: &Conditions) -> bool {
    let hosts = wide.hosts().is_empty()
        || !narrow.hosts().is_empty()
            && narrow.hosts().iter().all(|host| wide.hosts().contains(host));
    let methods = wide.methods().len() == 0
        || narrow.methods().len() > 0
            && narrow.methods().all(|method| wide.methods().any(|other| other == method));
    let paths = match (wide.path(), narrow.path()) {
        (None, _) => true,
        (Some(_), None) | (Some(PathMatch::Exact(_)), Some(PathMatch::Prefix(_))) => false,
        (Some(wide), Some(PathMatch::Exact(path) | PathMatch::Prefix(path))) => wide.matches(path),
        (Some(PathMatch::StartsWith(wide)), Some(PathMatch::StartsWith(narrow))) => {
            narrow.starts_with(&**wide)
        }
        // What begins with `/a` may be `/ab`, which is not below `/a`.
        (Some(PathMatch::Prefix(wide)), Some(PathMatch::StartsWith(narrow))) => {
            wide.ends_with('/') && narrow.starts_with(&**wide)
        }
        (Some(PathMatch::Exact(_)), Some(PathMatch::StartsWith(_))) => false,
    };
    hosts && methods && paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Document;

    fn texts(policies: &[&str]) -> Vec<String> {
        let rules = "rules: [ { token_bucket: { rate: 1/s } } ]";
        let policies: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(number, fields)| format!("{{ name: p{number}, {fields}, {rules} }}"))
            .collect();
        let document = Document::parse(&format!("policies: [ {} ]", policies.join(", ")));
        let document = document.expect("tests write policies");
        advice(&PolicySet::new(document)).into_iter().map(|advice| advice.text).collect()
    }

    #[test]
    fn a_path_that_no_request_has_is_warned_about() {
        for (path, remedy) in [
            ("exact: /a%20b", "; use `/a b`"),
            ("prefix: /x/../y", "; use `/y`"),
            ("starts_with: //q", "; use `/q`"),
            ("exact: '/%'", ""),
        ] {
            let found = texts(&[&format!("match: {{ path: {{ {path} }} }}, key: [remote_ip]")]);
            assert!(found[0].contains("no request has the path"), "{found:?}");
            assert!(found[0].ends_with(&format!("spelling{remedy}")), "{found:?}");
        }
        for path in ["exact: '/a b'", "prefix: /", "starts_with: /a%25", "prefix: /é/"] {
            let fields = format!("match: {{ path: {{ {path} }} }}, key: [remote_ip]");
            assert_eq!(texts(&[&fields]), [""; 0], "{path}");
        }
    }

    #[test]
    fn an_exact_path_of_a_program_is_warned_about() {
        let found = texts(&["match: { path: { exact: /login.php } }, key: [remote_ip]"]);
        assert!(found[0].starts_with("match.path.exact: servers run `/login.php/x`"), "{found:?}");
        for fields in ["exact: /login", "prefix: /login.php"] {
            let fields = format!("match: {{ path: {{ {fields} }} }}, key: [remote_ip]");
            assert_eq!(texts(&[&fields]), [""; 0], "{fields}");
        }
    }

    #[test]
    fn a_key_of_a_header_is_warned_about_unless_addresses_are_limited_too() {
        let by_header = "match: { path: { prefix: /api } }, key: [header:x-api-key]";
        let found = texts(&[by_header]);
        assert!(found[0].contains("clients choose the value of `header:x-api-key`"), "{found:?}");
        for (other, advised) in [
            ("match: { path: { prefix: / } }, key: [remote_ip]", 0),
            ("match: { path: { prefix: /api } }", 0),
            ("match: { path: { starts_with: /a } }, key: [remote_ip]", 0),
            ("match: [{ method: [PUT] }, { path: { prefix: / } }], key: [remote_ip]", 0),
            ("match: { host: [a], path: { prefix: / } }, key: [remote_ip]", 1),
            ("match: { except: [{ host: [a] }] }, key: [remote_ip]", 1),
            ("match: { path: { prefix: /api/x } }, key: [remote_ip]", 1),
            ("match: { path: { exact: /api } }, key: [remote_ip]", 1),
            ("match: { method: [POST] }, key: [remote_ip]", 1),
            ("match: { path: { prefix: / } }, key: [remote_ip, path]", 1),
            ("key: [remote_ip]", 1),
        ] {
            assert_eq!(texts(&[by_header, other]).len(), advised, "{other}");
        }
        let both = "match: { path: { prefix: /api } }, key: [remote_ip, header:x-api-key]";
        assert_eq!(texts(&[both]), [""; 0]);
        assert_eq!(texts(&["key: [header:x-api-key]"]), [""; 0], "no gateway asks it");
    }
}
