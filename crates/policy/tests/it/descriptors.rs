//! Descriptors: the leaf that they lead to, the key of the budget, and the errors of a tree.

use std::borrow::Cow;

use proptest::prelude::*;
use sluicegate_policy::DescriptorTree;
use sluicegate_policy::descriptor::{DescriptorAction, Unit, join};

const TREE: &str = "
descriptors:
  - { domain: d, entries: [{ key: a }], policy: any }
  - { domain: d, entries: [{ key: a, value: x }], policy: x }
  - { domain: d, entries: [{ key: a, value: x* }], policy: prefix }
  - { domain: d, entries: [{ key: a, value: xy* }], policy: longer }
  - { domain: d, entries: [{ key: a, value: s/*, shared: true }], policy: shared }
  - { domain: d, entries: [{ key: a, value: x }, { key: b }], policy: x.b }
  - { domain: d, entries: [{ key: a, value: x }, { key: b }, { key: c }], always: refuse }
  - { domain: d, entries: [{ key: c, value: '*' }], always: allow, name: c, replaces: [e, f] }
";

fn tree(text: &str) -> DescriptorTree {
    DescriptorTree::parse(text).expect("it is a tree")
}

/// The policy that `entries` lead to in [`TREE`], and the key; `None`: no leaf.
fn check(entries: &[(&str, &str)], expected: Option<(&str, Option<&str>)>) {
    let tree = tree(TREE);
    let found = tree.find("d", entries.iter().copied());
    let found = found.map(|(leaf, key)| match &leaf.action {
        DescriptorAction::Policy(name) => (name.to_string(), key.map(Cow::into_owned)),
        DescriptorAction::Refuse { .. } => ("Refuse".to_owned(), key.map(Cow::into_owned)),
        action => (format!("{action:?}"), key.map(Cow::into_owned)),
    });
    let expected = expected.map(|(policy, key)| (policy.to_owned(), key.map(str::to_owned)));
    assert_eq!(found, expected, "{entries:?}");
}

#[test]
fn the_most_specific_branch_is_taken() {
    check(&[("a", "z")], Some(("any", Some("z"))));
    check(&[("a", "x")], Some(("x", None)));
    // The first prefix in the order they are written, not the longest.
    check(&[("a", "xyz")], Some(("prefix", Some("xyz"))));
    check(&[("c", "")], Some(("Allow", Some("\\"))));
    check(&[("b", "z")], None);
    check(&[], None);
}

#[test]
fn a_branch_that_is_taken_is_not_left_again() {
    check(&[("a", "x"), ("b", "1")], Some(("x.b", Some("1"))));
    check(&[("a", "x"), ("c", "1")], None);
    check(&[("a", "z"), ("b", "1")], None);
}

#[test]
fn a_descriptor_means_the_leaf_at_its_own_depth() {
    let refused = [("a", "x"), ("b", "1"), ("c", "2")];
    check(&refused, Some(("Refuse", Some("1|2"))));
    check(&[("a", "x"), ("b", "1"), ("c", "2"), ("d", "3")], None);
}

#[test]
fn a_shared_prefix_is_one_budget() {
    check(&[("a", "s/1")], Some(("shared", None)));
    check(&[("a", "s/2")], Some(("shared", None)));
}

#[test]
fn only_its_own_domain_is_searched() {
    let tree = tree(TREE);
    assert!(tree.find("e", [("a", "x")]).is_none());
    assert!((tree.has("d"), tree.has("e")) == (true, false));
    assert_eq!((tree.len(), tree.is_empty()), (8, false));
    let mut policies = tree.policies();
    policies.sort_unstable();
    assert_eq!(policies, ["any", "longer", "prefix", "shared", "x", "x.b"]);
}

#[test]
fn a_leaf_has_a_name_and_names_that_it_replaces() {
    let tree = tree(TREE);
    let (leaf, _) = tree.find("d", [("c", "1")]).unwrap();
    let replaces: Vec<_> = leaf.replaces.iter().map(AsRef::as_ref).collect();
    assert_eq!((&*leaf.name, replaces), ("c", vec!["e", "f"]));
}

fn wrong(text: &str, expected: &str) {
    let errors = DescriptorTree::parse(text).expect_err("it is no tree");
    assert_eq!(errors.to_string(), expected, "\n{text}");
}

#[test]
fn what_is_wrong_is_told_with_its_path() {
    let one = |fields: &str, expected: &str| {
        wrong(&format!("descriptors: [{{ {fields} }}]"), &expected.replace('~', "descriptors[0]"));
    };
    wrong("{}", "descriptors: is missing, expected a list of descriptors");
    one("entries: [{ key: a }], policy: p", "~.domain: is missing, expected a domain");
    one(
        "domain: sluicegate, entries: [{ key: a }], policy: p",
        "~.domain: `sluicegate` is reserved: its descriptors name policies",
    );
    one("domain: d, policy: p", "~.entries: is missing, expected a list of entries");
    one("domain: d, entries: [], policy: p", "~.entries: expected 1 to 16 entries, found 0");
    one(
        "domain: d, entries: [{ value: a }], policy: p",
        "~.entries[0].key: is missing, expected a key",
    );
    one(
        "domain: d, entries: [{ key: a, value: b, shared: true }], policy: p",
        "~.entries[0].shared: requires a value with a `*`",
    );
    one("domain: d, entries: [{ key: a }]", "~: expected either `policy` or `always`");
    one(
        "domain: d, entries: [{ key: a }], policy: p, always: allow",
        "~: expected either `policy` or `always`",
    );
    one(
        "domain: d, entries: [{ key: a }], always: maybe",
        "~.always: expected `allow`, `ignore` or `refuse`, found the text `maybe`",
    );
    one(
        "domain: d, entries: [{ key: a }], policy: P",
        "~.policy: invalid name `P`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `p`",
    );
}

#[test]
fn what_goes_with_a_refusal_goes_with_nothing_else() {
    let tree = tree(
        "
domains: [empty, d]
descriptors:
  - { domain: d, entries: [{ key: a }], always: refuse, unit: hour, shadow: true, quota: true }
",
    );
    let (leaf, _) = tree.find("d", [("a", "b")]).unwrap();
    assert_eq!(leaf.action, DescriptorAction::Refuse { unit: Some(Unit::Hour), shadow: true });
    assert!(leaf.quota && tree.has("empty") && tree.has("d") && !tree.has("e"));
    let one = |fields: &str, expected: &str| {
        let text = format!("descriptors: [{{ domain: d, entries: [{{ key: a }}], {fields} }}]");
        wrong(&text, &expected.replace('~', "descriptors[0]"));
    };
    one("policy: p, unit: hour", "~.unit: requires `always: refuse`");
    one("always: allow, shadow: false", "~.shadow: requires `always: refuse`");
    one(
        "always: refuse, unit: decade",
        "~.unit: expected `second`, `minute`, `hour`, `day`, `week`, `month` or `year`, found the text `decade`",
    );
    wrong(
        "{ domains: [sluicegate], descriptors: [] }",
        "domains[0]: `sluicegate` is reserved: its descriptors name policies",
    );
}

#[test]
fn a_star_is_a_pattern_anywhere_in_a_key_or_a_value() {
    let tree = tree(
        "
descriptors:
  - { domain: d, entries: [{ key: path, value: /a/*/c }], policy: middle }
  - { domain: d, entries: [{ key: x-*, value: '*.js' }], policy: both }
  - { domain: d, entries: [{ key: x-*, value: y }], policy: key }
  - { domain: d, entries: [{ key: x-z, value: y* }], policy: later }
  - { domain: d, entries: [{ key: x-w }], policy: any }
  - { domain: d, entries: [{ key: s*, value: s*, shared: true }, { key: t }], policy: shared }
",
    );
    let check = |entries: &[(&str, &str)], expected: Option<(&str, &str)>| {
        let found = tree.find("d", entries.iter().copied());
        let found = found.map(|(leaf, key)| (leaf.action.clone(), key.map(Cow::into_owned)));
        let expected = expected
            .map(|(name, key)| (DescriptorAction::Policy(name.into()), Some(key.to_owned())));
        assert_eq!(found, expected, "{entries:?}");
    };
    check(&[("path", "/a/b/c")], Some(("middle", "/a/b/c")));
    check(&[("path", "/a/c")], None);
    // The parts that a pattern leaves open have their own budgets: the key as well.
    check(&[("x-1", "a.js")], Some(("both", "x-1|a.js")));
    check(&[("x-2", "y")], Some(("key", "x-2")));
    // The first in the order they are written, whether key or value is a pattern.
    check(&[("x-z", "y")], Some(("key", "x-z")));
    check(&[("x-z", "yy")], Some(("later", "yy")));
    check(&[("x-w", "z")], Some(("any", "z")));
    check(&[("x-w", "z.js")], Some(("both", "x-w|z.js")));
    check(&[("s1", "s2"), ("t", "u")], Some(("shared", "s1|u")));
}

#[test]
fn a_value_that_is_written_like_a_pattern_is_that_pattern() {
    let tree = tree(
        "
descriptors:
  - { domain: d, entries: [{ key: a, value: x* }], policy: first }
  - { domain: d, entries: [{ key: a, value: x*y }], policy: second }
",
    );
    let policy = |value| tree.find("d", [("a", value)]).map(|(leaf, _)| leaf.action.clone());
    assert_eq!(policy("xzy"), Some(DescriptorAction::Policy("first".into())));
    assert_eq!(policy("x*y"), Some(DescriptorAction::Policy("second".into())));
}

#[test]
fn only_so_many_stars_are_in_one_text() {
    let stars = "a*".repeat(17);
    for (entry, field) in
        [(format!("key: '{stars}'"), "key"), (format!("key: a, value: '{stars}'"), "value")]
    {
        wrong(
            &format!("descriptors: [{{ domain: d, entries: [{{ {entry} }}], policy: p }}]"),
            &format!("descriptors[0].entries[0].{field}: has 17 `*`, expected at most 16"),
        );
    }
}

#[test]
fn a_descriptor_is_in_a_tree_once() {
    let twice = |first: &str, second: &str, expected: &str| {
        let route = |entries| format!("{{ domain: d, entries: [{entries}], always: allow }}");
        wrong(
            &format!("descriptors: [{}, {}]", route(first), route(second)),
            &format!("descriptors[1].entries: {expected}"),
        );
    };
    twice("{ key: a }", "{ key: a }", "duplicate descriptor");
    twice("{ key: a, value: b* }", "{ key: a, value: b* }", "duplicate descriptor");
    twice(
        "{ key: a, value: b* }",
        "{ key: a, value: b*, shared: true }",
        "`shared` differs between descriptors with the same pattern",
    );
}

proptest! {
    #[test]
    fn different_parts_are_different_keys(
        a in proptest::collection::vec(r"[a|\\]{0,3}", 0..4),
        b in proptest::collection::vec(r"[a|\\]{0,3}", 0..4),
    ) {
        let key = |parts: &[String]| join(parts.iter().map(String::as_str)).map(String::from);
        prop_assert_eq!(key(&a) == key(&b), a == b);
    }

    #[test]
    fn any_text_is_a_tree_or_a_list_of_errors(text in ".{0,200}") {
        let _ = DescriptorTree::parse(&text);
    }

    /// The tree against the plainest reading of its rules: a list searched from the front.
    #[test]
    fn a_tree_finds_what_a_search_of_the_list_finds(
        routes in proptest::collection::vec(route(), 0..12),
        asked in proptest::collection::vec(("[ab]{1,2}", r"[xy]{0,2}|x\*"), 0..4),
    ) {
        let mut distinct: Vec<Written> = Vec::new();
        for route in routes {
            if !distinct.contains(&route) {
                distinct.push(route);
            }
        }
        let written: Vec<_> = distinct.iter().enumerate().map(|(place, entries)| {
            let entries: Vec<_> = entries.iter().map(|(key, value)| match value {
                None => format!("{{ key: '{key}' }}"),
                Some(value) => format!("{{ key: '{key}', value: '{value}' }}"),
            }).collect();
            format!("{{ domain: d, entries: [{}], policy: p{place} }}", entries.join(", "))
        }).collect();
        let tree = tree(&format!("descriptors: [{}]", written.join(", ")));
        let asked: Vec<_> = asked.iter().map(|(key, value)| (&**key, &**value)).collect();
        let found = tree.find("d", asked.iter().copied()).map(|(leaf, _)| leaf.action.clone());
        let expected = search(&distinct, &asked);
        prop_assert_eq!(found, expected.map(|place| DescriptorAction::Policy(format!("p{place}").into())));
    }
}

type Written = Vec<(String, Option<String>)>;

fn route() -> impl Strategy<Value = Written> {
    let value = proptest::option::of(r"[xy]?\*[xy]?|[xy]{1,2}");
    proptest::collection::vec((r"[ab]{1,2}|[ab]?\*b?", value), 1..4)
}

/// Returns whether `pattern` matches `text`.
fn stands_for(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, behind)) => {
            let length = before.len() + behind.len();
            text.starts_with(before) && text.ends_with(behind) && text.len() >= length
        }
    }
}

/// The place of the route that `asked` leads to.
fn search(routes: &[Written], asked: &[(&str, &str)]) -> Option<usize> {
    let mut path: Written = Vec::new();
    for (key, value) in asked {
        // Those that go on from here, as they are written.
        let next: Vec<&(String, Option<String>)> = routes
            .iter()
            .filter(|route| route.starts_with(&path) && route.len() > path.len())
            .map(|route| &route[path.len()])
            .collect();
        let exact = next.iter().find(|(k, v)| k == key && v.as_deref() == Some(value));
        let pattern = next.iter().find(|(k, v)| {
            let has_star = k.contains('*') || v.as_ref().is_some_and(|v| v.contains('*'));
            let value_is = v.as_ref().is_none_or(|v| stands_for(v, value));
            has_star && stands_for(k, key) && value_is
        });
        let any = next.iter().find(|(k, v)| k == key && v.is_none());
        path.push((*exact.or(pattern).or(any)?).clone());
    }
    routes.iter().position(|route| *route == path)
}
