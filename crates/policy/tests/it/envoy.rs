//! Configurations of `envoyproxy/ratelimit`: each construct of its README in our own configuration,
//! the result of its import, and the errors of those that cannot be imported.

use proptest::prelude::*;
use sluicegate_kernel::{Cost, Micros, Moment, States, Verb};
use sluicegate_policy::descriptor::envoy::{Import, import, import_merged};
use sluicegate_policy::descriptor::{DescriptorAction, Unit};
use sluicegate_policy::{DescriptorTree, Document, Overflow, Policy, PolicySet};

pub(crate) fn imported(files: &[(&str, &str)]) -> Import {
    import(files.iter().copied()).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A configuration of one file, ready for requests.
pub(crate) struct Served {
    policies: PolicySet,
    tree: DescriptorTree,
    notes: Vec<String>,
}

impl Served {
    pub(crate) fn new(text: &str) -> Self {
        let Import { policies, descriptors, notes } = imported(&[("c.yaml", text)]);
        let policies = Document::parse(&policies).unwrap_or_else(|e| panic!("{e}\n{policies}"));
        let tree = DescriptorTree::parse(&descriptors);
        let tree = tree.unwrap_or_else(|e| panic!("{e}\n{descriptors}"));
        Self { policies: PolicySet::new(policies), tree, notes }
    }

    /// Describes the decision on a descriptor: `5 per 1 s for alice`, `allow`, `refuse` or
    /// `no limit`.
    pub(crate) fn says(&self, domain: &str, entries: &[(&str, &str)]) -> String {
        let Some((leaf, key)) = self.tree.find(domain, entries.iter().copied()) else {
            return "no limit".into();
        };
        let name = match &leaf.action {
            DescriptorAction::Allow => return "allow".into(),
            DescriptorAction::Ignore => return "no limit".into(),
            DescriptorAction::Refuse { unit, shadow } => {
                let unit = unit.map_or("anything", Unit::name);
                let shadow = if *shadow { ", in the shadow" } else { "" };
                return format!("refuse, 0 per {unit}{shadow}");
            }
            DescriptorAction::Policy(name) => name,
        };
        let policy = self.policies.resolve(name).expect("its policy is there");
        let rules = policy.rules();
        let (limit, start) = (rules.set().rules()[0].rule.limit(), Moment::new(Micros::ZERO));
        // The first permit of 1970 comes back when the window ends.
        let verb = Verb::Check { cost: Cost::ONE };
        let verdict = rules.set().decide(&mut States::default(), &verb, &start);
        let window_s = verdict.expect("a window knows `check`").decision.reset_after.ceil_secs();
        let whose = key.map_or_else(|| "all".into(), String::from);
        let shadow = if *policy.overflow() == Overflow::Shadow { ", in the shadow" } else { "" };
        format!("{limit} per {window_s} s for {whose}{shadow}")
    }
}

/// Checks the decisions of a configuration on descriptors of its domain.
fn check(text: &str, expectations: &[(&[(&str, &str)], &str)]) {
    let served = Served::new(text);
    for (entries, expected) in expectations {
        assert_eq!(served.says("shop", entries), *expected, "{entries:?} in\n{text}");
    }
    assert_eq!(served.notes, [""; 0]);
}

#[test]
fn a_value_and_another_are_two_limits() {
    check(
        "
domain: shop
descriptors:
  - { key: queue, value: mail, rate_limit: { unit: second, requests_per_unit: 40 } }
  - { key: queue, value: print, rate_limit: { unit: minute, requests_per_unit: 7 } }
",
        &[
            (&[("queue", "mail")], "40 per 1 s for all"),
            (&[("queue", "print")], "7 per 60 s for all"),
            (&[("queue", "fax")], "no limit"),
        ],
    );
}

#[test]
fn nested_descriptors_are_their_own_limits_beside_one_without_a_value() {
    check(
        "
domain: shop
descriptors:
  - key: kind
    value: newsletter
    descriptors:
      - { key: customer, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: customer, rate_limit: { unit: day, requests_per_unit: 50 } }
",
        &[
            (&[("kind", "newsletter"), ("customer", "7")], "2 per 86400 s for 7"),
            (&[("customer", "7")], "50 per 86400 s for 7"),
            (&[("kind", "receipt"), ("customer", "7")], "no limit"),
        ],
    );
}

#[test]
fn a_value_is_more_specific_than_none_and_a_limit_of_zero_refuses() {
    check(
        "
domain: shop
descriptors:
  - { key: address, rate_limit: { unit: second, requests_per_unit: 10 } }
  - { key: address, value: 192.0.2.9, rate_limit: { unit: second, requests_per_unit: 0 } }
",
        &[
            (&[("address", "192.0.2.1")], "10 per 1 s for 192.0.2.1"),
            (&[("address", "192.0.2.9")], "refuse, 0 per second"),
        ],
    );
}

#[test]
fn a_descriptor_meets_the_limit_at_its_own_depth_only() {
    let limit = "rate_limit: { unit: hour, requests_per_unit: 3 }";
    check(
        &format!("domain: shop\ndescriptors: [{{ key: a, value: b, {limit} }}]"),
        &[(&[("a", "b")], "3 per 3600 s for all"), (&[("a", "b"), ("c", "d")], "no limit")],
    );
    check(
        &format!(
            "domain: shop\ndescriptors: [{{ key: a, value: b, descriptors: [{{ key: c, {limit} }}] }}]"
        ),
        &[(&[("a", "b")], "no limit"), (&[("a", "b"), ("c", "d")], "3 per 3600 s for d")],
    );
}

#[test]
fn unlimited_is_allowed_and_is_not_no_limit() {
    check(
        "
domain: shop
descriptors:
  - { key: backup, rate_limit: { unlimited: true } }
  - { key: import, rate_limit: { unlimited: false, unit: minute, requests_per_unit: 9 } }
",
        &[
            (&[("backup", "nightly")], "allow"),
            (&[("import", "x")], "9 per 60 s for x"),
            (&[("export", "x")], "no limit"),
        ],
    );
}

#[test]
fn a_descriptor_without_limit_and_descriptors_is_left_alone() {
    check(
        "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: user, value: probe }
  - { key: user, value: robot, rate_limit: null, descriptors: [] }
",
        &[
            (&[("user", "ann")], "1 per 1 s for ann"),
            (&[("user", "probe")], "no limit"),
            (&[("user", "robot")], "no limit"),
        ],
    );
}

#[test]
fn shadow_mode_is_the_overflow_shadow() {
    check(
        "
domain: shop
descriptors:
  - key: service
    descriptors:
      - key: user
        value: ann
        rate_limit: { requests_per_unit: 10, unit: second }
        shadow_mode: true
      - { key: user, value: bob, rate_limit: { requests_per_unit: 20, unit: second } }
      - { key: user, value: eve, rate_limit: { requests_per_unit: 0, unit: day }, shadow_mode: true }
",
        &[
            (&[("service", "s"), ("user", "ann")], "10 per 1 s for s, in the shadow"),
            (&[("service", "s"), ("user", "bob")], "20 per 1 s for s"),
            (&[("service", "s"), ("user", "eve")], "refuse, 0 per day, in the shadow"),
        ],
    );
}

#[test]
fn names_and_what_they_replace_are_in_the_tree() {
    let served = Served::new(
        "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: base, unit: second, requests_per_unit: 5 }
  - key: path
    value: /search
    descriptors:
      - key: user
        rate_limit: { name: search, replaces: [{ name: base }], unit: second, requests_per_unit: 9 }
",
    );
    let (base, _) = served.tree.find("shop", [("user", "ann")]).unwrap();
    assert_eq!((&*base.name, base.replaces.len()), ("base", 0));
    let (search, _) = served.tree.find("shop", [("path", "/search"), ("user", "ann")]).unwrap();
    assert_eq!((&*search.name, &*search.replaces), ("search", &["base".into()][..]));
}

#[test]
fn detailed_metrics_change_no_decision_and_are_noted() {
    let served = Served::new(
        "
domain: shop
descriptors:
  - { key: a, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: a, value: b, value_to_metric: true, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: c, detailed_metric: false, value_to_metric: false }
",
    );
    assert_eq!(served.says("shop", &[("a", "x")]), "10 per 60 s for x");
    assert_eq!(served.says("shop", &[("a", "b")]), "20 per 60 s for all");
    assert_eq!(
        served.notes,
        [
            "c.yaml: descriptors[0].detailed_metric: no effect, values are not exported as labels",
            "c.yaml: descriptors[1].value_to_metric: no effect, values are not exported as labels",
        ]
    );
}

#[test]
fn a_star_at_the_end_of_a_value_is_a_prefix_at_every_depth() {
    check(
        "
domain: shop
descriptors:
  - { key: path, value: /v1/*, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - key: host
    descriptors:
      - { key: path, value: '*', rate_limit: { unit: minute, requests_per_unit: 4 } }
      - { key: path, value: a*c, rate_limit: { unit: minute, requests_per_unit: 5 } }
",
        &[
            (&[("path", "/v1/a")], "20 per 60 s for /v1/a"),
            (&[("path", "/v1/b")], "20 per 60 s for /v1/b"),
            (&[("path", "/v2/b")], "no limit"),
            (&[("host", "h"), ("path", "/x")], "4 per 60 s for h|/x"),
            // A request that contains a pattern literally takes the branch of that pattern, also
            // behind another.
            (&[("host", "h"), ("path", "a*c")], "5 per 60 s for h|a*c"),
            (&[("host", "h"), ("path", "abc")], "4 per 60 s for h|abc"),
        ],
    );
}

#[test]
fn a_shared_threshold_is_one_budget_for_all_values() {
    check(
        "
domain: shop
descriptors:
  - key: path
    value: files/*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 100 }
    descriptors:
      - { key: user, rate_limit: { unit: hour, requests_per_unit: 3 } }
",
        &[
            (&[("path", "files/a")], "100 per 3600 s for all"),
            (&[("path", "files/b")], "100 per 3600 s for all"),
            (&[("path", "files/b"), ("user", "ann")], "3 per 3600 s for ann"),
        ],
    );
}

#[test]
fn every_unit_is_a_span_in_any_case() {
    for (unit, seconds) in [
        ("second", 1),
        ("MINUTE", 60),
        ("Hour", 3_600),
        ("day", 86_400),
        ("week", 7 * 86_400),
        ("month", 30 * 86_400),
        ("year", 365 * 86_400),
    ] {
        check(
            &format!(
                "domain: shop\ndescriptors: [{{ key: a, rate_limit: {{ unit: {unit}, requests_per_unit: 4294967295 }} }}]"
            ),
            &[(&[("a", "b")], &format!("4294967295 per {seconds} s for b"))],
        );
    }
}

#[test]
fn values_that_yaml_reads_as_something_else_are_their_text() {
    check(
        "
domain: shop
descriptors:
  - { key: status, value: 404, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: status, value: true, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: status, value: '', rate_limit: { unit: second, requests_per_unit: 3 } }
",
        &[
            (&[("status", "404")], "1 per 1 s for all"),
            (&[("status", "true")], "2 per 1 s for all"),
            (&[("status", "200")], "3 per 1 s for 200"),
        ],
    );
}

#[test]
fn files_are_domains_and_policies_are_named_after_where_they_stand() {
    let limit = "rate_limit: { unit: second, requests_per_unit: 1 }";
    let first = format!("domain: shop\ndescriptors: [{{ key: a, value: b, {limit} }}]");
    let second = format!(
        "domain: Edge\ndescriptors: [{{ key: path, value: /x*, {limit} }}, {{ key: shop, descriptors: [{{ key: a_b, {limit} }}] }}]"
    );
    let import = imported(&[("one.yaml", &first), ("two.yaml", &second)]);
    let document = Document::parse(&import.policies).unwrap();
    let names: Vec<_> = document.policies().iter().map(Policy::name).collect();
    assert_eq!(
        names,
        ["shop.a_b", "edge.path_-x-98a72084b214ce5c", "edge.shop.a_b-ff4981e463de61be"],
    );
    assert!(import.policies.contains("# one.yaml: descriptors[0]\n"), "{}", import.policies);
    assert!(import.policies.contains("# two.yaml: descriptors[1].descriptors[0]\n"));
}

#[test]
fn two_descriptors_never_have_one_name() {
    let limit = "rate_limit: { unit: second, requests_per_unit: 1 }";
    let text = format!(
        "
domain: shop
descriptors:
  - {{ key: a, value: b_c, {limit} }}
  - {{ key: a_b, value: c, {limit} }}
  - {{ key: {long}, {limit} }}
  - {{ key: {long}2, {limit} }}
",
        long = "x".repeat(200)
    );
    let import = imported(&[("c.yaml", &text)]);
    let document = Document::parse(&import.policies).unwrap();
    assert_eq!(document.policies().len(), 4);
    for policy in &document.policies()[..2] {
        assert!(policy.name().starts_with("shop.a_b_c-"), "{}", policy.name());
    }
}

/// Checks the errors of a file called `c.yaml`.
fn wrong(text: &str, expected: &str) {
    let errors = import([("c.yaml", text)]).expect_err("it cannot be imported");
    assert_eq!(errors.to_string(), expected.replace('~', "c.yaml: "), "\n{text}");
}

/// Checks the errors of the only descriptor of a file.
fn wrong_in_one(fields: &str, expected: &str) {
    let expected = expected.replace('~', "~descriptors[0]");
    wrong(&format!("domain: shop\ndescriptors: [{{ {fields} }}]"), &expected);
}

#[test]
fn what_cannot_be_expressed_is_refused_by_name() {
    let stars = "*a".repeat(17);
    let expected = "has 17 `*`, expected at most 16";
    wrong_in_one(&format!("key: '{stars}'"), &format!("~.key: {expected}"));
    wrong_in_one(&format!("key: a, value: '{stars}'"), &format!("~.value: {expected}"));
    wrong_in_one(
        "key: a, quota_mode: 1",
        "~.quota_mode: expected `true` or `false`, found the number `1`",
    );
    wrong_in_one("key: a, share_threshold: true", "~.share_threshold: requires a value with a `*`");
    wrong_in_one(
        "key: a, value: '[0-9]', rate_limit: { unit: second, requests_per_unit: 1, unit_multiplier: 5 }",
        "~.rate_limit.unit_multiplier: unknown field, expected `name`, `replaces`, `unit`, `requests_per_unit` or `unlimited`",
    );
    wrong("domain: sluicegate", "~domain: `sluicegate` is reserved: its descriptors name policies");
}

#[test]
fn what_is_wrong_is_told_with_its_file_and_path() {
    wrong("descriptors: []", "~domain: is missing, expected a domain");
    wrong("domain: [a", "~unclosed bracket '[' at line 1 column 9");
    wrong(
        "domain: ''",
        "~domain: `` is not a domain: expected 1 to 4096 bytes without control characters",
    );
    wrong_in_one("value: a", "~.key: is missing, expected a key");
    wrong_in_one(
        "key: a, rate_limit: { unit: fortnight, requests_per_unit: 1 }",
        "~.rate_limit.unit: expected `second`, `minute`, `hour`, `day`, `week`, `month` or `year`, found the text `fortnight`",
    );
    wrong_in_one(
        "key: a, rate_limit: { unit: second }",
        "~.rate_limit.requests_per_unit: is missing, expected a whole number from 0 to 4294967295",
    );
    wrong_in_one(
        "key: a, rate_limit: { unit: second, unlimited: true }",
        "~.rate_limit.unit: cannot be combined with `unlimited`",
    );
    wrong_in_one(
        "key: a, rate_limit: { name: n, replaces: [{ name: n }, {}], unit: second, requests_per_unit: 1 }",
        "~.rate_limit.replaces[0].name: `n` is the name of this limit itself\n~.rate_limit.replaces[1].name: is missing, expected the name of a limit",
    );
    wrong_in_one(
        "key: a, shadow_mode: sure",
        "~.shadow_mode: expected `true` or `false`, found the text `sure`",
    );
}

#[test]
fn a_descriptor_is_in_a_list_once_and_a_domain_in_a_configuration() {
    for (first, second) in [("key: a", "key: a"), ("key: a, value: b*", "key: a, value: b*")] {
        wrong(
            &format!("domain: shop\ndescriptors: [{{ {first} }}, {{ {second} }}]"),
            "~descriptors[1]: duplicate of [0]: same key and value",
        );
    }
    let errors = import([("a.yaml", "domain: shop"), ("b.yaml", "domain: shop")]).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "b.yaml: domain: `shop` is the domain of a.yaml already, and merging domains is off"
    );
    let (file, errors) = &errors.files()[0];
    assert_eq!((file.as_str(), errors.errors().len()), ("b.yaml", 1));
}

#[test]
fn an_empty_configuration_is_two_empty_documents() {
    let import = imported(&[("a.yaml", "domain: shop")]);
    assert!(Document::parse(&import.policies).unwrap().policies().is_empty());
    let tree = DescriptorTree::parse(&import.descriptors).unwrap();
    assert!(tree.is_empty() && tree.has("shop"), "the domain is known all the same");
    let nothing = imported(&[]);
    assert_eq!(nothing.policies, import.policies);
    assert_eq!(nothing.descriptors, "descriptors: []\n");
}

/// A descriptor of any shape.
fn descriptor() -> impl Strategy<Value = serde_json::Value> {
    let limit = (0_u32..3, 0_usize..7).prop_map(|(requests, unit)| {
        let units = ["second", "minute", "hour", "day", "week", "month", "year"];
        serde_json::json!({ "unit": units[unit], "requests_per_unit": requests })
    });
    let limit = prop_oneof![limit, Just(serde_json::json!({ "unlimited": true }))];
    let text = "[a-zA-Z/_.é\"'\\\\: *#-]{1,6}[a-z*]";
    let fields = (text, proptest::option::of(text), proptest::option::of(limit), any::<bool>());
    let leaf = fields.prop_map(|(key, value, limit, shadow)| {
        serde_json::json!({
            "key": key, "value": value, "quota_mode": shadow, "metadata": { "a": [1, null] },
            "rate_limit": limit, "shadow_mode": shadow,
        })
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        (inner.clone(), proptest::collection::vec(inner, 0..3)).prop_map(|(mut outer, below)| {
            outer["descriptors"] = below.into();
            outer
        })
    })
}

#[test]
fn files_of_one_domain_are_joined_where_that_is_wanted() {
    let file = |key: &str| {
        let limit = "rate_limit: { unit: second, requests_per_unit: 1 }";
        format!("domain: shop\ndescriptors: [{{ key: {key}, {limit} }}]")
    };
    let (a, b, star) = (file("a"), file("b"), file("'*'"));
    let merged = import_merged([("a.yaml", &*a), ("b.yaml", &*star), ("c.yaml", &*b)]);
    let Import { policies, descriptors, .. } = merged.expect("they can be joined");
    assert_eq!(Document::parse(&policies).unwrap().policies().len(), 3);
    let tree = DescriptorTree::parse(&descriptors).unwrap();
    // A descriptor with a `*` comes before one without a value, whichever file it is in.
    let find = |key| tree.find("shop", [(key, "x")]).map(|(leaf, _)| leaf.action.clone());
    assert_eq!(tree.len(), 3);
    assert_eq!(find("a"), find("z"));
    let twice = import_merged([("a.yaml", &*a), ("b.yaml", &*b), ("c.yaml", &*a)]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "c.yaml: descriptors[0]: duplicate of descriptors[0] of a.yaml: same key and value"
    );
}

#[test]
fn metadata_of_any_shape_changes_no_decision_and_is_noted() {
    let served = Served::new(
        "
domain: shop
descriptors:
  - key: a
    metadata: { team: checkout, tags: [1, { x: null }] }
    rate_limit: { unit: minute, requests_per_unit: 10 }
",
    );
    assert_eq!(served.says("shop", &[("a", "x")]), "10 per 60 s for x");
    let note = "c.yaml: descriptors[0].metadata: no effect, responses carry no metadata";
    assert_eq!(served.notes, [note]);
}

#[test]
fn a_quota_is_a_quota_in_the_tree() {
    let served = Served::new(
        "
domain: shop
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: b, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: c, rate_limit: { unit: minute, requests_per_unit: 0 } }
",
    );
    let is_quota = |key| served.tree.find("shop", [(key, "x")]).unwrap().0.quota;
    assert_eq!(["a", "b", "c"].map(is_quota), [true, true, false]);
}

proptest! {
    #[test]
    fn whatever_is_imported_are_two_documents_that_fit(
        domain in "[a-zA-Z\"'\\\\: *#é]{0,4}[a-z]",
        descriptors in proptest::collection::vec(descriptor(), 0..5),
    ) {
        let config = serde_json::json!({ "domain": domain, "descriptors": descriptors });
        let Ok(import) = import([("c.json", config.to_string().as_str())]) else { return Ok(()) };
        let document = Document::parse(&import.policies).unwrap();
        let tree = DescriptorTree::parse(&import.descriptors).unwrap();
        let policies = PolicySet::new(document);
        let names = tree.policies();
        prop_assert_eq!(names.len(), policies.len(), "each policy is led to, and by one");
        prop_assert!(names.iter().all(|name| policies.resolve(name).is_some()));
    }

    #[test]
    fn any_text_is_imported_or_refused(text in ".{0,200}") {
        let _ = import([("c.yaml", text.as_str())]);
    }
}
