//! `match`: the requests of gateways that a policy guards.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Origin;
use super::fields::{Fields, distinct, is_plain, line, list, optional, text};
use crate::attribute::{Conditions, HostMatch, MatchCase, Matcher, PathMatch, is_token};
use crate::error::At;
use crate::finding;
use crate::limits::{HOSTS_MAX, MATCHES_MAX, METHODS_MAX, TEXT_BYTES_MAX};
use crate::node::DocumentNode;
use crate::quoted::quoted;

/// `match`: one case, or a list of cases.
pub(super) fn matcher(node: &DocumentNode, at: &At<'_>, origin: Origin) -> Option<Matcher> {
    let DocumentNode::List(_) = node else {
        return Some(Matcher { cases: [match_case(node, at, origin)?].into() });
    };
    let items = list(node, at, "cases", 1, MATCHES_MAX)?;
    let cases: Vec<_> = each(items, at, |node, at| match_case(node, at, origin));
    (cases.len() == items.len()).then(|| Matcher { cases: cases.into() })
}

fn match_case(node: &DocumentNode, at: &At<'_>, origin: Origin) -> Option<MatchCase> {
    let fields = Fields::read(node, at, &["host", "path", "method", "except"])?;
    let of_case = conditions(&fields, at, origin);
    let except = optional(&fields, at, "except", |node, at| {
        let items = list(node, at, "exceptions", 1, MATCHES_MAX)?;
        let except: Vec<_> = each(items, at, |node, at| {
            let fields = Fields::read(node, at, &["host", "path", "method"])?;
            let conditions = conditions(&fields, at, origin)?;
            if conditions == Conditions::default() {
                return at.report(finding!(
                    "empty_exception",
                    "expected at least one of `host`, `path` and `method`"
                ));
            }
            Some(conditions)
        });
        (except.len() == items.len()).then(|| except.into_boxed_slice())
    });
    let (conditions, except) = (of_case?, except?.unwrap_or_default());
    if conditions == Conditions::default() && except.is_empty() {
        return at.report(finding!(
            "empty_match",
            "expected at least one of `host`, `path`, `method` and `except`"
        ));
    }
    Some(MatchCase { conditions, except })
}

/// Reads the items, and returns the results of those that `read` can read.
fn each<T>(
    items: &[DocumentNode],
    at: &At<'_>,
    read: impl Fn(&DocumentNode, &At<'_>) -> Option<T>,
) -> Vec<T> {
    let read = |(place, item)| read(item, &at.index(place));
    items.iter().enumerate().filter_map(read).collect()
}

fn conditions(fields: &Fields<'_>, at: &At<'_>, origin: Origin) -> Option<Conditions> {
    let hosts = optional(fields, at, "host", hosts);
    let path = optional(fields, at, "path", path);
    let methods = optional(fields, at, "method", |node, at| methods(node, at, origin));
    Some(Conditions {
        hosts: hosts?.unwrap_or_default(),
        path: path?,
        methods: methods?.unwrap_or_default(),
    })
}

fn hosts(node: &DocumentNode, at: &At<'_>) -> Option<Box<[HostMatch]>> {
    let items = list(node, at, "hosts", 1, HOSTS_MAX)?;
    let hosts = distinct(items, at, |node, at| {
        let host = text(node, at, "a host")?;
        if HostMatch::parse(host).is_none() {
            let host = quoted(host);
            return at.report(finding!(
                "bad_host",
                "invalid host {host}: expected a name in small letters without a port, such as `shop.example.com` or `*.example.com`",
                host
            ));
        }
        Some(host)
    })?;
    Some(hosts.into_iter().filter_map(HostMatch::parse).collect())
}

fn path(node: &DocumentNode, at: &At<'_>) -> Option<PathMatch> {
    if let DocumentNode::Text(path) = node
        && path.starts_with('/')
        && is_plain(path)
    {
        return at.report(finding!(
            "text_for_path",
            "expected a map: write `{{ prefix: {path} }}` or `{{ exact: {path} }}`",
            path
        ));
    }
    let fields = Fields::read(node, at, &["exact", "prefix", "starts_with"])?;
    let path = |node, at: &At<'_>| {
        let path = line(node, at, "a path", TEXT_BYTES_MAX)?;
        if !path.starts_with('/') || path.contains(['?', '#']) {
            let path = quoted(path);
            return at.report(finding!(
                "bad_path",
                "invalid path {path}: expected a `/` first, no `?` or `#`",
                path
            ));
        }
        Some(Box::from(path))
    };
    let given = ["exact", "prefix", "starts_with"].map(|form| fields.get(form));
    match given {
        [Some(exact), None, None] => path(exact, &at.field("exact")).map(PathMatch::Exact),
        [None, Some(prefix), None] => path(prefix, &at.field("prefix")).map(PathMatch::Prefix),
        [None, None, Some(text)] => path(text, &at.field("starts_with")).map(PathMatch::StartsWith),
        _ => at.report(finding!(
            "one_path",
            "expected exactly one of `exact`, `prefix` and `starts_with`"
        )),
    }
}

/// Words that mean every method elsewhere. Here they would be methods that no request has.
const EVERY_METHOD: [&str; 3] = ["*", "ALL", "ANY"];

fn methods(node: &DocumentNode, at: &At<'_>, origin: Origin) -> Option<Box<[Box<str>]>> {
    let items = list(node, at, "methods", 1, METHODS_MAX)?;
    let methods = distinct(items, at, |node, at| {
        let method = text(node, at, "a method")?;
        let is_every = EVERY_METHOD.iter().any(|every| method.eq_ignore_ascii_case(every));
        if is_every && origin == Origin::Author {
            let method = quoted(method);
            return at.report(finding!(
                "every_method",
                "{method} is not a method: leave `method` out for every method",
                method
            ));
        }
        if !is_token(method) || method.contains(|char: char| char.is_ascii_lowercase()) {
            let method = quoted(method);
            return at.report(finding!(
                "bad_method",
                "invalid method {method}: expected capitals such as `GET`",
                method
            ));
        }
        Some(method)
    })?;
    Some(methods.into_iter().map(Box::from).collect())
}
