//! The requests in messages.

use proptest::prelude::*;
use sluicegate::{Cost, Verb};
use sluicegate_policy::DescriptorTree;

use super::super::request::ZeroLimit;
use super::super::{BudgetRequest, DescriptorRequest, decode, request_in};
use super::{descriptor, message, policies, tree};
use crate::wire::rls::codec::json;
use crate::wire::rls::proto::{RateLimitDescriptor, RateLimitOverride, RateLimitRequest};

const TREE: &str = "
descriptors:
  - { domain: shop, entries: [{ key: user }], policy: users, name: base }
  - { domain: shop, entries: [{ key: user, value: root }], always: allow, name: root }
  - { domain: shop, entries: [{ key: user, value: eve }], always: refuse, name: banned }
  - { domain: shop, entries: [{ key: path }, { key: user }], policy: paths, name: path, replaces: [base, banned, root] }
";

const POLICIES: &str = "
policies:
  - { name: users, rules: [{ fixed_window: { limit: 9, window: 1s } }] }
  - { name: paths, rules: [{ fixed_window: { limit: 9, window: 1s } }] }
";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

fn cost(permits: u64) -> Cost {
    Cost::new(permits).expect("it is within the range")
}

/// The requests in `message`, as policy, key, app and verb of each descriptor.
fn asked(message: &RateLimitRequest) -> Result<Vec<String>, String> {
    let (tree, policies) = (tree(TREE), policies(POLICIES));
    let asks = decode(message, &tree, &policies).map_err(|refusal| refusal.message())?;
    Ok(asks.iter().map(told).collect())
}

fn told(ask: &DescriptorRequest<'_>) -> String {
    let budget = match ask {
        DescriptorRequest::Budget(budget) => budget,
        DescriptorRequest::Zero(ZeroLimit { name, unit, .. }) => {
            let unit = unit.map_or(String::new(), |(unit, _)| format!(" of a {unit:?}"));
            return format!("zero{unit} `{name}`");
        }
        other => return format!("{other:?}"),
    };
    let request = budget.request_by(None);
    let key = request.key.map_or("all".into(), String::from_utf8_lossy);
    let app = request.app.map_or(String::new(), |app| format!(" of {app}"));
    let verb = match request.verb {
        Verb::Check { cost } => format!("takes {}", cost.get()),
        Verb::AtMost { cost } => format!("takes up to {}", cost.get()),
        Verb::Peek { .. } => "looks".to_owned(),
        Verb::Refund { cost } => format!("gives {} back", cost.get()),
        other => format!("{other:?}"),
    };
    let limit = budget.limit.map_or(String::new(), |limit| format!(", {limit:?}"));
    format!("{key}{app} {verb} under {}{limit}", request.limits.name())
}

fn check(domain: &str, entries: &[(&str, &str)], expected: &str) {
    let found = asked(&message(domain, vec![descriptor(entries)]));
    let found = found.map_or_else(|problem| problem, |asks| asks.join("; "));
    assert_eq!(found, expected, "{domain}: {entries:?}");
}

#[test]
fn the_reserved_domain_names_policy_key_and_app() {
    check("sluicegate", &[("policy", "users")], "all takes 1 under users");
    check("sluicegate", &[("policy", "users"), ("key", "ann")], "ann takes 1 under users");
    check(
        "sluicegate",
        &[("app", "web"), ("key", "ann"), ("policy", "users")],
        "ann of web takes 1 under users",
    );
    check("sluicegate", &[("key", "ann")], "descriptors[0].entries: `policy` is missing");
    check(
        "sluicegate",
        &[("policy", "a"), ("polcy", "b")],
        "descriptors[0].entries: unknown key `polcy`, expected `policy`, `key`, `app` or `sluicegate_permit`",
    );
    check(
        "sluicegate",
        &[("policy", "a"), ("policy", "b")],
        "descriptors[0].entries: `policy` is given twice",
    );
}

#[test]
fn a_domain_of_the_tree_means_its_leaves() {
    check("shop", &[("user", "ann")], "ann takes 1 under users");
    check("shop", &[("user", "root")], "Allowed");
    check("shop", &[("user", "eve")], "zero `banned`");
    check("shop", &[("path", "/"), ("user", "ann")], "/|ann takes 1 under paths");
    check("shop", &[("path", "/")], "NoLimit");
    check("shop", &[], "NoLimit");
}

#[test]
fn the_name_of_a_policy_as_the_domain_makes_all_entries_the_key() {
    check("users", &[("user", "ann")], "user|ann takes 1 under users");
    check("users", &[("a", "b|c"), ("d", "")], r"a|b\|c|d| takes 1 under users");
    check("users", &[], "all takes 1 under users");
}

#[test]
fn any_other_domain_meets_no_limit() {
    check("elsewhere", &[("user", "ann")], "NoLimit");
    check("", &[("user", "ann")], "domain: is missing");
}

#[test]
fn a_message_has_a_hundred_descriptors_at_most_of_any_number_of_entries() {
    let of = |count: usize| asked(&message("shop", vec![descriptor(&[("user", "ann")]); count]));
    assert_eq!(of(100).map(|asks| asks.len()), Ok(100));
    for count in [0, 101] {
        assert_eq!(of(count), Err(format!("descriptors: expected 1 to 100, found {count}")));
    }
    check("shop", &[("user", "ann"); 16], "NoLimit");
    // An error would let the other descriptors of the message pass as well.
    check("shop", &[("user", "ann"); 17], "NoLimit");
}

#[test]
fn the_descriptors_hits_count_before_those_of_the_request_and_zero_only_looks() {
    let hits = |domain: &str, own: Option<u64>, requests: u32, negative: bool| {
        let entries = if domain == "sluicegate" { [("policy", "users")] } else { [("user", "a")] };
        let descriptor = RateLimitDescriptor {
            hits_addend: own,
            is_negative_hits: negative,
            ..descriptor(&entries)
        };
        let message =
            RateLimitRequest { hits_addend: requests, ..message(domain, vec![descriptor]) };
        let (tree, policies) = (tree(TREE), policies(POLICIES));
        let asks = decode(&message, &tree, &policies).expect("it makes sense");
        let [DescriptorRequest::Budget(budget)] = &asks[..] else {
            panic!("it is one budget: {asks:?}")
        };
        budget.request_by(None).verb
    };
    assert_eq!(hits("shop", None, 0, false), CHECK);
    assert_eq!(hits("shop", None, 1, false), CHECK);
    assert_eq!(hits("shop", Some(0), 7, false), Verb::Peek { cost: Cost::ONE });
    assert_eq!(hits("shop", Some(0), 7, true), Verb::Peek { cost: Cost::ONE });
    assert_eq!(hits("shop", Some(3), 7, true), Verb::Refund { cost: cost(3) });
    // A tree counts what is over the limit too; a policy that is named takes all or nothing.
    assert_eq!(hits("shop", Some(3), 7, false), Verb::AtMost { cost: cost(3) });
    assert_eq!(hits("shop", None, 7, false), Verb::AtMost { cost: cost(7) });
    assert_eq!(hits("sluicegate", None, 7, false), Verb::Check { cost: cost(7) });
    assert_eq!(hits("users", Some(3), 0, false), Verb::Check { cost: cost(3) });
    // More than one decision takes: the rest is requested afterwards.
    assert_eq!(hits("shop", Some((1 << 31) + 1), 0, false), Verb::AtMost { cost: cost(1 << 31) });
    assert_eq!(hits("shop", None, u32::MAX, false), Verb::AtMost { cost: cost(1 << 31) });
    assert_eq!(hits("shop", Some(u64::MAX), 0, true), Verb::Refund { cost: cost(1 << 31) });
    // All of them or none: none.
    assert_eq!(hits("users", Some(u64::MAX), 0, false), Verb::Peek { cost: cost(1 << 31) });
    assert_eq!(hits("shop", Some(1), u32::MAX, false), CHECK, "it is not used");
}

#[test]
fn a_limit_that_is_brought_along_holds_in_every_known_domain_for_all_entries_and_its_unit() {
    let limit = |domain: &str, requests_per_unit, unit: i32, hits| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit });
        let descriptor =
            RateLimitDescriptor { limit, hits_addend: hits, ..descriptor(&[("user", "a|b")]) };
        asked(&message(domain, vec![descriptor])).map(|asks| asks.join("; "))
    };
    for domain in ["shop", "sluicegate", "users"] {
        assert_eq!(
            limit(domain, 5, 2, None),
            Ok(format!(
                r"{domain}|MINUTE|user|a\|b takes 1 under RLS.LIMIT, WindowLimit {{ permits: 5, window_s: 60 }}"
            )),
        );
    }
    assert_eq!(
        limit("shop", u32::MAX, 6, Some(4)),
        Ok(format!(
            r"shop|YEAR|user|a\|b takes up to 4 under RLS.LIMIT, WindowLimit {{ permits: {}, window_s: 31536000 }}",
            u32::MAX
        )),
    );
    assert_eq!(limit("elsewhere", 5, 2, None), Ok("NoLimit".to_owned()));
    assert_eq!(limit("shop", 0, 1, None), Ok("zero of a Second ``".to_owned()));
    for unit in [0, 8, -1] {
        let problem = format!("descriptors[0].limit.unit: `{unit}` is not a unit of time");
        assert_eq!(limit("shop", 5, unit, None), Err(problem));
    }
}

#[test]
fn a_limit_that_is_met_replaces_those_that_it_names() {
    let user = |name| descriptor(&[("user", name)]);
    let path = descriptor(&[("path", "/"), ("user", "ann")]);
    let asked = |descriptors| asked(&message("shop", descriptors)).expect("it makes sense");
    let replaced = asked(vec![user("ann"), path.clone(), user("eve"), user("root")]);
    assert_eq!(replaced, ["NoLimit", "/|ann takes 1 under paths", "NoLimit", "Allowed"]);
    let alone = asked(vec![user("ann"), user("eve")]);
    assert_eq!(alone, ["ann takes 1 under users", "zero `banned`"]);
}

#[test]
fn a_key_that_is_too_long_for_stores_is_its_hash_behind_a_byte_that_no_text_has() {
    let key_of = |value: &str| {
        let message = message("users", vec![descriptor(&[("k", value)])]);
        let (tree, policies) = (DescriptorTree::default(), policies(POLICIES));
        let asks = decode(&message, &tree, &policies).expect("it makes sense");
        let [DescriptorRequest::Budget(budget)] = &asks[..] else {
            panic!("it is one budget: {asks:?}")
        };
        budget.request_by(None).key.expect("there are entries").to_owned()
    };
    // With `k|` before it, 1,022 bytes fill a key.
    assert_eq!(key_of(&"x".repeat(1_022)).len(), 1_024);
    let long = key_of(&"x".repeat(1_023));
    assert_eq!((long.len(), long[0]), (33, 0xff));
    assert_eq!(long, key_of(&"x".repeat(1_023)));
    assert_ne!(long, key_of(&"x".repeat(1_024)));
}

#[test]
fn a_key_that_is_named_and_is_empty_or_too_long_is_no_error_by_which_a_request_would_pass() {
    let key_of = |key: &str| {
        let message = message("sluicegate", vec![descriptor(&[("policy", "users"), ("key", key)])]);
        let (tree, policies) = (DescriptorTree::default(), policies(POLICIES));
        let asks = decode(&message, &tree, &policies).expect("it makes sense");
        let [DescriptorRequest::Budget(budget)] = &asks[..] else {
            panic!("it is one budget: {asks:?}")
        };
        budget.request_by(None).key.map(<[u8]>::to_owned)
    };
    assert_eq!(key_of("k"), Some(b"k".to_vec()));
    assert_eq!(key_of(""), None, "all share it");
    assert_eq!(key_of(&"x".repeat(1_024)), Some(vec![b'x'; 1_024]));
    let long = key_of(&"x".repeat(1_025)).expect("it has a key");
    assert_eq!((long.len(), long[0]), (33, 0xff));
    assert_ne!(Some(long), key_of(&"x".repeat(1_026)));
}

#[test]
fn what_is_wrong_is_told_with_the_place_of_its_descriptor() {
    let good = descriptor(&[("policy", "users")]);
    let bad = descriptor(&[("k", "v\u{1b}[2J")]);
    assert_eq!(
        asked(&message("sluicegate", vec![good, bad])),
        Err("descriptors[1].entries: unknown key `k`, expected `policy`, `key`, `app` or `sluicegate_permit`".into()),
    );
}

proptest! {
    #[test]
    fn no_bytes_make_the_codec_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = request_in(&bytes, &tree(TREE), &policies(POLICIES));
        let _ = json::decode(&bytes);
    }

    #[test]
    fn every_message_has_an_ask_for_each_descriptor_or_is_refused(
        domain in "shop|users|sluicegate|x|",
        descriptors in proptest::collection::vec(any_descriptor(), 0..4),
        hits_addend in any::<u32>(),
    ) {
        let message = RateLimitRequest { hits_addend, ..message(&domain, descriptors) };
        let (tree, policies) = (tree(TREE), policies(POLICIES));
        if let Ok(asks) = decode(&message, &tree, &policies) {
            prop_assert_eq!(asks.len(), message.descriptors.len());
            for ask in &asks {
                if let DescriptorRequest::Budget(budget) = ask {
                    prop_assert!(budget.request_by(None).key.is_none_or(|key| key.len() <= 1_024));
                }
            }
        }
    }

    #[test]
    fn different_entries_of_a_policy_are_different_budgets(
        a in proptest::collection::vec((r"[a|\\]{0,2}", r"[a|\\]{0,2}"), 0..3),
        b in proptest::collection::vec((r"[a|\\]{0,2}", r"[a|\\]{0,2}"), 0..3),
    ) {
        let entries = |of: &[(String, String)]| {
            let pairs: Vec<_> = of.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            descriptor(&pairs)
        };
        let message = message("users", vec![entries(&a), entries(&b)]);
        let (tree, policies) = (DescriptorTree::default(), policies(POLICIES));
        let asks = decode(&message, &tree, &policies).expect("it makes sense");
        let budget = |ask: &DescriptorRequest<'_>| match ask {
            DescriptorRequest::Budget(budget) => budget.request_by(None).key.map(<[u8]>::to_owned),
            other => panic!("no budget: {other:?}"),
        };
        prop_assert_eq!(budget(&asks[0]) == budget(&asks[1]), a == b);
    }
}

fn any_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let entries =
        proptest::collection::vec(("user|path|policy|key|app|.", ".{0,3}|root|eve"), 0..4);
    let limit = proptest::option::of((any::<u32>(), -1..9_i32));
    let hits = proptest::option::of(prop_oneof![0..3_u64, any::<u64>()]);
    (entries, limit, hits, any::<bool>()).prop_map(|(entries, limit, hits_addend, negative)| {
        let pairs: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let limit =
            limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
        RateLimitDescriptor { limit, hits_addend, is_negative_hits: negative, ..descriptor(&pairs) }
    })
}

#[test]
fn a_budget_tells_what_it_is_asked() {
    let message = message("shop", vec![descriptor(&[("user", "ann")])]);
    let (tree, policies) = (tree(TREE), policies(POLICIES));
    let asks = decode(&message, &tree, &policies).expect("it makes sense");
    let [DescriptorRequest::Budget(BudgetRequest { name, limit, .. })] = &asks[..] else {
        panic!("{asks:?}")
    };
    assert_eq!((*name, *limit), (Some("base"), None));
}
