//! Policies that are valid, and that clients can walk around or that have parts without effect.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format};

use core::net::{IpAddr, Ipv6Addr};

use sluicegate_kernel::Micros;

use crate::attribute::{Conditions, KeyAttribute, Matcher, PathMatch};
use crate::path::normal_path;
use crate::quoted::quoted;
use crate::{Policy, PolicySet};

/// A policy that clients can walk around, or a part of one without effect, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The policy.
    pub policy: String,
    /// Problem and remedy, in lower case, without a full stop.
    pub text: String,
}

/// Ends of paths that servers run as programs; the rest of the path is an argument (`PATH_INFO`).
const PROGRAM_ENDS: [&str; 5] = [".php", ".cgi", ".fcgi", ".pl", ".py"];

/// Advice on the policies of a document at `now`, in µs since the Unix epoch.
pub fn advice(policies: &PolicySet, now: Micros) -> Vec<Advice> {
    let mut all = Vec::new();
    for policy in policies.policies() {
        let advice = |text| Advice { policy: policy.name().to_owned(), text };
        let texts = [mixed_advice(policy), ended_advice(policy, now), override_advice(policy)];
        all.extend(texts.into_iter().flatten().map(advice));
        let Some(matcher) = policy.matcher() else { continue };
        let texts = [
            spelling_advice(matcher),
            pattern_advice(matcher),
            path_advice(matcher),
            key_advice(policies, policy, matcher),
        ];
        all.extend(texts.into_iter().flatten().map(advice));
    }
    all
}

/// Advice on overrides that have ended.
fn ended_advice(policy: &Policy, now: Micros) -> Option<String> {
    let ended = policy.overrides().filter_map(|(key, own)| {
        let end = own.until().filter(|end| *end <= now)?;
        Some((key, end))
    });
    let (key, end, others) = first(ended)?;
    let end = jiff::Timestamp::from_microsecond(i64::try_from(end.get()).ok()?).ok()?;
    Some(format!(
        "overrides: the override of {}{others} ended at {end} and has no effect; remove it, or set a later `until`",
        quoted(&String::from_utf8_lossy(key))
    ))
}

/// Advice on an override whose key looks like many keys, or that no client has.
fn override_advice(policy: &Policy) -> Option<String> {
    let is_address = *policy.key() == [KeyAttribute::RemoteIp];
    let found = policy.overrides().filter_map(|(key, _)| {
        let key = str::from_utf8(key).ok()?;
        Some((key, key_problem(key, is_address)?))
    });
    let (key, problem, others) = first(found)?;
    Some(format!("overrides: the key {}{others} {problem}", quoted(key)))
}

/// The reason why no request, or hardly one, has `key`, and the remedy.
fn key_problem(key: &str, is_address: bool) -> Option<String> {
    let network = key.split_once('/').and_then(|(address, bits)| {
        let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse::<u8>().ok()?);
        Some((address, bits))
    });
    match (network, key.parse()) {
        // The key of a client with an IPv6 address is its /64.
        (Some((IpAddr::V6(_), 64)), _) => None,
        (Some(_), _) => Some(
            "is compared as a whole, not as a network; write an override for each address"
                .to_owned(),
        ),
        (None, Ok(IpAddr::V6(address))) if is_address && address.to_ipv4_mapped().is_none() => {
            let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64));
            Some(format!(
                "is no client's: the key of an IPv6 address is its /64; use `{network}/64`"
            ))
        }
        _ if key.contains('*') => Some(
            "is compared as a whole: `*` stands for itself; write an override for each key"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The first of `found` by its key, and how many others there are, in words.
fn first<K: Ord, V>(found: impl Iterator<Item = (K, V)>) -> Option<(K, V, String)> {
    let mut count = 0_usize;
    let (key, value) = found.inspect(|_| count += 1).min_by(|one, other| one.0.cmp(&other.0))?;
    let others = match count {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Some((key, value, others))
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

/// Advice on a path with a placeholder, which stands for itself: the first of the cases.
fn pattern_advice(matcher: &Matcher) -> Option<String> {
    let conditions = matcher.cases().iter().flat_map(|case| {
        [case.conditions()].into_iter().chain(case.except()).filter_map(Conditions::path)
    });
    conditions.into_iter().find_map(|path| {
        let (form, text) = match path {
            PathMatch::Exact(text) => ("exact", text),
            PathMatch::Prefix(text) => ("prefix", text),
            PathMatch::StartsWith(text) => ("starts_with", text),
        };
        let (at, placeholder) = placeholder(text)?;
        let remedy = match &text[..at] {
            "/" => "prefix: /".to_owned(),
            before if before.ends_with('/') => format!("prefix: {}", before.trim_end_matches('/')),
            before => format!("starts_with: {before}"),
        };
        Some(format!(
            "match.path.{form}: `{placeholder}` in {} stands for itself, as there are no patterns; use `{remedy}`",
            quoted(text)
        ))
    })
}

/// The first placeholder of other notations in `path`, and where it begins: `*`, `{id}` or `/:id`.
fn placeholder(path: &str) -> Option<(usize, &str)> {
    path.char_indices().find_map(|(at, char)| {
        let rest = &path[at..];
        let length = match char {
            '*' => 1,
            '{' => rest.find('}')? + 1,
            ':' if path[..at].ends_with('/') => rest.find('/').unwrap_or(rest.len()),
            _ => return None,
        };
        Some((at, &rest[..length]))
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

/// Returns whether `wide` matches all requests that `narrow` matches, as far as the conditions show it: a case with
/// exceptions counts as one that does not.
fn covers(wide: &Matcher, narrow: &Matcher) -> bool {
    narrow.cases().iter().all(|narrow| {
        let mut plain = wide.cases().iter().filter(|wide| wide.except().is_empty());
        plain.any(|wide| are_met_by_all(wide.conditions(), narrow.conditions()))
    })
}

/// Returns whether all requests that meet `narrow` meet `wide`.
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
        // A path that begins with `/a` may be `/ab`, which is not below `/a`.
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

    /// 2026-11-28T00:00:00Z.
    const NOW: Micros = Micros::from_secs(1_795_824_000);

    fn texts(policies: &[&str]) -> Vec<String> {
        let rules = "rules: [ { token_bucket: { rate: 1/s } } ]";
        let policies: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(number, fields)| format!("{{ name: p{number}, {fields}, {rules} }}"))
            .collect();
        let document = Document::parse(&format!("policies: [ {} ]", policies.join(", ")));
        let document = document.expect("tests write policies");
        advice(&PolicySet::new(document), NOW).into_iter().map(|advice| advice.text).collect()
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
    fn a_placeholder_in_a_path_is_warned_about() {
        for (path, placeholder, remedy) in [
            ("prefix: '/api/*'", "*", "prefix: /api"),
            ("exact: '/api/*/x'", "*", "prefix: /api"),
            ("prefix: '/*'", "*", "prefix: /"),
            ("starts_with: '/api*'", "*", "starts_with: /api"),
            ("exact: '/users/{id}'", "{id}", "prefix: /users"),
            ("exact: '/users/:id/orders'", ":id", "prefix: /users"),
        ] {
            let found = texts(&[&format!("match: {{ path: {{ {path} }} }}, key: [remote_ip]")]);
            let (form, _) = path.split_once(':').unwrap();
            let begins = format!("match.path.{form}: `{placeholder}` in ");
            assert!(found[0].starts_with(&begins), "{found:?}");
            assert!(found[0].ends_with(&format!("; use `{remedy}`")), "{found:?}");
            assert_eq!(found.len(), 1);
        }
        let except = "match: { except: [{ path: { prefix: '/a/*' } }] }, key: [remote_ip]";
        assert!(texts(&[except])[0].contains("`*` in `/a/*` stands for itself"));
        for path in ["exact: /v1/things:run", "prefix: '/a{b'"] {
            let fields = format!("match: {{ path: {{ {path} }} }}, key: [remote_ip]");
            assert_eq!(texts(&[&fields]), [""; 0], "{path}");
        }
    }

    #[test]
    fn an_override_of_a_key_that_looks_like_many_is_warned_about() {
        let rules = "rules: [ { token_bucket: { rate: 2/s } } ]";
        let of = |keys: &[&str]| {
            let all = keys.iter().map(|key| format!("{{ key: '{key}', {rules} }}"));
            texts(&[&format!(
                "key: [remote_ip], overrides: [ {} ]",
                all.collect::<Vec<_>>().join(", ")
            )])
        };
        for (keys, text) in [
            (
                &["10.0.0.0/8"][..],
                "overrides: the key `10.0.0.0/8` is compared as a whole, not as a network; write an override for each \
                 address",
            ),
            (
                &["b*", "a*", "c"],
                "overrides: the key `a*` (and 1 more) is compared as a whole: `*` stands for itself; write an override \
                 for each key",
            ),
            (
                &["2001:db8::1"],
                "overrides: the key `2001:db8::1` is no client's: the key of an IPv6 address is its /64; use \
                 `2001:db8::/64`",
            ),
        ] {
            assert_eq!(of(keys), [text]);
        }
        assert_eq!(of(&["10.0.0.1", "2001:db8::/64", "a/8", "::ffff:10.0.0.1"]), [""; 0]);
        let other = format!("key: [header:x], overrides: [ {{ key: '2001:db8::1', {rules} }} ]");
        assert_eq!(texts(&[&other]), [""; 0], "a header can have any text");
    }

    #[test]
    fn an_override_that_has_ended_is_warned_about() {
        let rules = "rules: [ { token_bucket: { rate: 2/s } } ]";
        let until = |until: &str| {
            texts(&[&format!("overrides: [ {{ key: a, until: '{until}', {rules} }} ]")])
        };
        assert_eq!(
            until("2026-11-27T18:00:00Z"),
            [
                "overrides: the override of `a` ended at 2026-11-27T18:00:00Z and has no effect; remove it, or set a \
              later `until`"
            ]
        );
        assert_eq!(until("2026-11-28T00:00:01Z"), [""; 0]);
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
