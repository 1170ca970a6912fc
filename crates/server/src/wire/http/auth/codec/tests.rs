//! Requests that gateways describe, and the answers to them.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use proptest::prelude::*;
use sluicegate::internals::gateway::{Guarding, GuardingBudget, decide};
use sluicegate::policy::{Document, PolicySet};
use sluicegate_policy::Policy;

use super::{AuthError, GatewayRequest, TrustedPeers};
use crate::config::{Config, HeaderStyle};
use crate::engine::ServerEngine;
use crate::protocol::Peer;
use crate::protocol::Wire;
use crate::wire::headers::BudgetHeaders;

const GATEWAY: Peer = Peer::Ip(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(*name).expect("tests give names");
        (name, HeaderValue::from_bytes(value.as_bytes()).expect("tests give values"))
    };
    lines.iter().map(field).collect()
}

/// By default this machine alone is trusted.
fn trusted(networks: &str) -> TrustedPeers {
    if networks.is_empty() {
        return TrustedPeers::new(Config::default().http.trusted_peers.as_slice());
    }
    let networks: Vec<_> = networks.split(',').map(|text| text.parse().expect("one")).collect();
    TrustedPeers::new(&networks)
}

fn policies(fields: &str) -> PolicySet {
    let rules = "rules: [ { token_bucket: { rate: 1/h } } ]";
    let text = format!("policies: [ {{ name: p, {rules}, {fields} }} ]");
    PolicySet::new(Document::parse(&text).expect("tests write policies"))
}

/// The key that `lines` make for `key`.
fn key(key: &str, peer: Peer, lines: &[(&str, &str)]) -> Result<Option<String>, AuthError> {
    let policies = policies(&format!("key: [ {key} ]"));
    let lines = [&[("x-original-uri", "/"), ("x-original-method", "GET")], lines].concat();
    let headers = headers(&lines);
    let guarded = GatewayRequest::decode(&headers, peer, &trusted(""))?;
    let GuardingBudget { key, .. } = guarded.budget(policies.resolve("p").expect("it is there"))?;
    Ok(key.map(|key| String::from_utf8_lossy(&key).into_owned()))
}

fn ip(text: &str) -> Peer {
    Peer::Ip(text.parse().expect("an address"))
}

/// The header fields by default.
fn limits() -> BudgetHeaders {
    BudgetHeaders::of(&[HeaderStyle::Ratelimit])
}

#[test]
fn the_client_is_the_last_hop_that_is_no_gateway() {
    let check = |forwarded_for: &str, expected: &str| {
        for peer in [GATEWAY, ip("::1"), Peer::Local] {
            let lines = [("x-forwarded-for", forwarded_for)];
            let found = key("remote_ip", peer, &lines).unwrap();
            assert_eq!(found.as_deref(), Some(expected), "{forwarded_for}");
        }
    };
    check("203.0.113.7", "203.0.113.7");
    check("6.6.6.6, 203.0.113.7", "203.0.113.7");
    check("6.6.6.6, 203.0.113.7, 127.0.0.9", "203.0.113.7");
    check("203.0.113.7:4711", "203.0.113.7");
    check("::ffff:203.0.113.7", "203.0.113.7");
    check("2001:db8:0:1:aaaa::1", "2001:db8:0:1::/64");
    check("[2001:db8:0:1::2]:80", "2001:db8:0:1::/64");
    // A garbled list leads to the budget of the gateway itself, whatever its client wrote.
    let lines = [("x-forwarded-for", "6.6.6.6, garbage")];
    assert_eq!(key("remote_ip", GATEWAY, &lines).unwrap().as_deref(), Some("127.0.0.1"));
}

#[test]
fn behind_known_proxies_the_client_is_so_many_addresses_from_the_right() {
    let client = |hops, peer, lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        let trusted = trusted("").with_hops(Some(hops));
        trusted.client(peer, &headers(&lines)).unwrap().to_string()
    };
    for (hops, lines, expected) in [
        // A client in the network of the gateway is not taken for a proxy.
        (1, &["6.6.6.6, 127.0.0.7"][..], "127.0.0.7"),
        (1, &["6.6.6.6,203.0.113.7"], "203.0.113.7"),
        (2, &["6.6.6.6, 203.0.113.7, 127.0.0.9"], "203.0.113.7"),
        (2, &["6.6.6.6, 127.0.0.7, 198.51.100.1"], "127.0.0.7"),
        (2, &["6.6.6.6, 203.0.113.7", "198.51.100.1"], "203.0.113.7"),
        (2, &["6.6.6.6", "203.0.113.7", "198.51.100.1"], "203.0.113.7"),
        (3, &["203.0.113.7:4711, [2001:db8::9]:1, 198.51.100.1"], "203.0.113.7"),
        (2, &["::ffff:203.0.113.7\t, 198.51.100.1"], "203.0.113.7"),
        // A list that is shorter, or garbled, is followed as far as it goes.
        (3, &["203.0.113.7, 198.51.100.1"], "203.0.113.7"),
        (2, &["6.6.6.6, garbage, 198.51.100.1"], "198.51.100.1"),
        (2, &["6.6.6.6, , 198.51.100.1"], "198.51.100.1"),
        (1, &["6.6.6.6, garbage"], "127.0.0.1"),
        (1, &["6.6.6.6,"], "127.0.0.1"),
        (1, &[], "127.0.0.1"),
    ] {
        for peer in [GATEWAY, Peer::Local] {
            assert_eq!(client(hops, peer, lines), expected, "{hops} {lines:?}");
        }
    }
    let elsewhere = trusted("").with_hops(Some(1)).client(ip("192.0.2.1"), &HeaderMap::new());
    assert!(matches!(elsewhere, Err(AuthError::Untrusted(_))));
}

#[test]
fn lines_of_x_forwarded_for_are_one_list() {
    let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7")];
    assert_eq!(key("remote_ip", GATEWAY, &lines).unwrap().as_deref(), Some("203.0.113.7"));
}

#[test]
fn whoever_is_no_gateway_is_not_believed() {
    let lines = [("x-forwarded-for", "203.0.113.7")];
    for peer in ["198.51.100.1", "::ffff:198.51.100.1", "2001:db8::1"] {
        let error = key("remote_ip", ip(peer), &lines).unwrap_err();
        assert!(matches!(error, AuthError::Untrusted(_)), "{error}");
    }
    let headers = headers(&[("x-original-uri", "/"), ("x-original-method", "GET")]);
    let decode =
        |peer, networks: &str| GatewayRequest::decode(&headers, peer, &trusted(networks)).is_ok();
    assert!(decode(ip("10.1.2.3"), "10.0.0.0/8"));
    assert!(decode(ip("::ffff:10.1.2.3"), "10.0.0.0/8"));
    assert!(!decode(ip("11.1.2.3"), "10.0.0.0/8"));
    assert!(!decode(GATEWAY, "10.0.0.0/8"));
    assert!(decode(ip("192.0.2.7"), "192.0.2.7,2001:db8::/32"));
    assert!(!decode(ip("192.0.2.8"), "192.0.2.7,2001:db8::/32"));
}

#[test]
fn what_a_client_adds_to_what_its_gateway_says_is_noticed() {
    let check = |lines: &[(&str, &str)], expected: &str| {
        let headers = headers(lines);
        let error = GatewayRequest::decode(&headers, GATEWAY, &trusted("")).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&[], "x-original-uri: is missing, as is x-forwarded-uri");
    let uri = ("x-forwarded-uri", "/");
    check(&[uri], "x-original-method: is missing, as is x-forwarded-method");
    let method = ("x-forwarded-method", "GET");
    let differs = "x-original-uri: differs from x-forwarded-uri";
    check(&[uri, method, ("x-original-uri", "/free")], differs);
    let differs = "x-original-method: differs from x-forwarded-method";
    check(&[uri, method, ("x-original-method", "POST")], differs);
    check(&[uri, method, uri], "x-forwarded-uri: is given twice");
    check(&[("x-original-uri", "free"), method], "path: does not begin with `/`");
    check(&[uri, ("x-forwarded-method", "G\u{e9}")], "x-original-method: is not ASCII");
    let same = headers(&[uri, method, ("x-original-uri", "/"), ("x-original-method", "GET")]);
    assert!(GatewayRequest::decode(&same, GATEWAY, &trusted("")).is_ok());
}

#[test]
fn keys_are_made_of_what_the_request_says() {
    let lines = [
        ("user-agent", "curl"),
        ("x-forwarded-host", "Shop.Example.com.:8080"),
        ("X-Tenant", "acme"),
    ];
    let check = |parts: &str, expected: Option<&str>| {
        assert_eq!(key(parts, GATEWAY, &lines).unwrap().as_deref(), expected, "{parts}");
    };
    check("'header:x-tenant'", Some("acme"));
    check("host", Some("shop.example.com"));
    check("user_agent, method, path", Some("curl|GET|/"));
    check("'header:x-other'", None);
    let ipv6 = key("host", GATEWAY, &[("x-forwarded-host", "[2001:DB8::1]")]).unwrap();
    assert_eq!(ipv6.as_deref(), Some("[2001:db8::1]"));
    let twice = [("x-tenant", "acme"), ("x-tenant", "other")];
    let error = key("'header:x-tenant'", GATEWAY, &twice).unwrap_err();
    assert_eq!(error.to_string(), "x-tenant: is given twice");
    assert_eq!(key("method", GATEWAY, &twice).unwrap().as_deref(), Some("GET"));
}

#[test]
fn a_long_value_is_a_key_like_any_other() {
    let tenant = |text: String| key("'header:x-tenant'", GATEWAY, &[("x-tenant", &text)]).unwrap();
    assert_eq!(tenant("x".repeat(1024)), Some("x".repeat(1024)));
    let (one, other) = (tenant("x".repeat(1025)), tenant("x".repeat(1026)));
    assert!(one.is_some() && one != other);
}

#[test]
fn policies_are_found_by_every_spelling_of_a_path() {
    let policies = policies("apps: [shop], match: { path: { prefix: /orders }, method: [POST] }");
    let found = |uri: &str, method: &str, app| {
        let headers = headers(&[("x-original-uri", uri), ("x-original-method", method)]);
        let guarded = GatewayRequest::decode(&headers, GATEWAY, &trusted("")).unwrap();
        guarded.guarding(&policies, app).unwrap().budgets.len()
    };
    for uri in ["/orders", "//orders/7?a", "/x/../orders", "/%6Frders", "/orders%2f7"] {
        assert_eq!(found(uri, "POST", Some("shop")), 1, "{uri}");
    }
    assert_eq!(found("/orders-old", "POST", Some("shop")), 0);
    assert_eq!(found("/orders", "GET", Some("shop")), 0);
    assert_eq!(found("/orders", "POST", Some("admin")), 0);
    assert_eq!(found("/orders", "POST", None), 0);
}

#[test]
fn of_too_many_policies_those_are_left_out_that_refuse_nothing_then_the_last_by_name() {
    let headers = headers(&[("x-original-uri", "/"), ("x-original-method", "GET")]);
    let guarded = GatewayRequest::decode(&headers, GATEWAY, &trusted("")).unwrap();
    let found = |names: &mut dyn Iterator<Item = String>| {
        let policies = names.fold(PolicySet::default(), |policies, name| {
            let rules = "rules: [ token_bucket: { rate: 1/s } ]";
            let text = format!("{{ name: {name}, match: {{ path: {{ prefix: / }} }}, {rules} }}");
            let policy = Policy::parse_one(&text).unwrap().of_app("shop");
            let shadow = name.starts_with("a-shadow");
            policies.with(if shadow { policy.shadowed() } else { policy }).unwrap()
        });
        let of = |app| guarded.guarding(&policies, Some(app)).unwrap();
        assert_eq!(of("bank").budgets.len(), 0);
        let Guarding { budgets, left_out, .. } = of("shop");
        let names: Vec<_> = budgets.iter().map(|budget| budget.policy.name().to_owned()).collect();
        (names, left_out)
    };
    let shadows = || (0..17).map(|n| format!("a-shadow-{n:02}"));
    let actives = |count| (0..count).rev().map(|n| format!("active-{n:02}"));
    let in_order: Vec<_> = (0..16).map(|n| format!("active-{n:02}")).collect();
    assert_eq!(found(&mut actives(16)).1, 0);
    assert_eq!(found(&mut actives(18)), (in_order.clone(), 2));
    assert_eq!(found(&mut shadows().chain(actives(16))), (in_order, 17));
    let (names, left_out) = found(&mut shadows().chain(actives(2)));
    assert_eq!(
        (&names[..2], names.len(), left_out),
        (&["active-00".to_owned(), "active-01".to_owned()][..], 16, 3)
    );
}

/// The answer to the second request within an hour that takes from all of `documents`.
async fn second(documents: &str, deny: StatusCode) -> Response<axum::body::Body> {
    let document = Document::parse(documents).expect("tests write policies");
    let engine = ServerEngine::in_memory(PolicySet::new(document));
    let policies = engine.core().policies();
    let budget = |policy: &Arc<Policy>| GuardingBudget { policy: Arc::clone(policy), key: None };
    let mut response = None;
    for _ in 0..2 {
        let budgets: Vec<_> = policies.policies().iter().map(budget).collect();
        let turn = engine.turn(Wire::Http);
        let decided = decide(&turn, &budgets, None).await.expect("policies that are there");
        response = Some(super::encode(&decided, deny, limits()));
    }
    response.expect("two were answered")
}

/// A policy of one permit an hour.
fn policy(name: &str, overflow: &str) -> String {
    let rules = "rules: [ { name: r, token_bucket: { rate: 1/h } } ]";
    format!("{{ name: {name}, overflow: {overflow}, {rules} }}")
}

#[tokio::test]
async fn gateways_are_told_what_the_policy_says() {
    let page = "{ degrade: { response: { status: 503, body: later, headers: { X-A: b } } } }";
    let ok = "{ degrade: { response: { status: 200, body: cached } } }";
    for (overflow, deny, status, fields) in [
        ("shadow", 429, 200, &[("verdict", "shadow")][..]),
        ("{ degrade: { tag: old } }", 429, 200, &[("verdict", "degrade"), ("degrade", "old")]),
        ("{ divert: { target: slow é } }", 429, 200, &[("verdict", "divert")]),
        ("reject", 429, 429, &[("verdict", "refuse"), ("policy", "p")]),
        ("reject", 403, 403, &[("verdict", "refuse")]),
        (page, 429, 503, &[("verdict", "degrade")]),
        (page, 403, 403, &[("verdict", "degrade")]),
        (ok, 429, 429, &[("verdict", "degrade")]),
    ] {
        let policies = format!("policies: [ {} ]", policy("p", overflow));
        let response = second(&policies, StatusCode::from_u16(deny).unwrap()).await;
        assert_eq!(response.status(), status, "{overflow}");
        for (name, value) in fields {
            assert_eq!(response.headers()[format!("x-sluicegate-{name}")], value, "{overflow}");
        }
        assert_eq!(response.headers()["ratelimit-policy"], "\"r\";q=1;w=3600");
        let retry_after = response.headers().get("retry-after");
        assert_eq!(retry_after.is_some(), overflow == "reject", "{overflow}");
        assert!(!response.headers().contains_key("content-length"));
    }
}

#[tokio::test]
async fn a_refusal_by_one_charges_no_other() {
    let plenty = "{ name: plenty, rules: [ { token_bucket: { rate: 9/h } } ] }";
    let documents = format!("policies: [ {plenty}, {} ]", policy("scarce", "reject"));
    let engine = ServerEngine::in_memory(PolicySet::new(Document::parse(&documents).unwrap()));
    let policies = engine.core().policies();
    for passes in [true, false, false] {
        let budget =
            |policy: &Arc<Policy>| GuardingBudget { policy: Arc::clone(policy), key: None };
        let budgets: Vec<_> = policies.policies().iter().map(budget).collect();
        let turn = engine.turn(Wire::Http);
        let decided = decide(&turn, &budgets, None).await.unwrap();
        assert_eq!(decided.len(), if passes { 2 } else { 1 });
        let response = super::encode(&decided, StatusCode::TOO_MANY_REQUESTS, limits());
        assert_eq!(response.status() == StatusCode::OK, passes);
        let field = response.headers()["ratelimit"].to_str().unwrap();
        assert_eq!(field.split(", ").count(), decided.len(), "{field}");
    }
    let peek = sluicegate::Verb::Peek { cost: sluicegate::Cost::ONE };
    let request = sluicegate::Request::new("plenty", None, peek);
    let left = engine.turn(Wire::Http).decide(&request).await.unwrap().answer.decision.remaining;
    assert_eq!(left, 8);
}

#[tokio::test]
async fn of_several_that_do_not_let_it_pass_the_sternest_is_told() {
    let tag = policy("tag", "{ degrade: { tag: old } }");
    let divert = policy("divert", "{ divert: { target: slow } }");
    let hour = policy("hour", "reject");
    let day = "{ name: day, rules: [ { token_bucket: { rate: 1/d } } ] }".replace("1/d", "1/day");
    let shadow = policy("shadow", "shadow");
    for (documents, policy) in [
        (vec![&*tag, &divert, &hour, &day, &shadow], "day"),
        (vec![&*shadow, &tag, &divert, &hour], "hour"),
        (vec![&*tag, &divert, &shadow], "divert"),
        (vec![&*shadow, &tag], "tag"),
    ] {
        let documents = format!("policies: [ {} ]", documents.join(", "));
        let response = second(&documents, StatusCode::FORBIDDEN).await;
        assert_eq!(response.headers()["x-sluicegate-policy"], policy);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_charged_is_given_back_when_the_gateway_goes_away_while_it_is_held() {
    let held = "{ name: held, overflow: { queue: { max_wait: 9s } }, rules: [ { token_bucket: { rate: 1/5s, burst: 1 } } ] }";
    let documents = format!("policies: [ {held}, {} ]", policy("scarce", "reject"));
    let documents = documents.replace("rate: 1/h", "rate: 9/h");
    let engine = ServerEngine::in_memory(PolicySet::new(Document::parse(&documents).unwrap()));
    let policies = engine.core().policies();
    let ask = async || {
        let budget =
            |policy: &Arc<Policy>| GuardingBudget { policy: Arc::clone(policy), key: None };
        let budgets: Vec<_> = policies.policies().iter().map(budget).collect();
        decide(&engine.turn(Wire::Http), &budgets, None).await
    };
    let left = async || {
        let peek = sluicegate::Verb::Peek { cost: sluicegate::Cost::ONE };
        let request = sluicegate::Request::new("scarce", None, peek);
        let looked = engine.turn(Wire::Http).decide(&request).await.expect("it is there");
        looked.answer.decision.remaining
    };
    assert_eq!(ask().await.unwrap().len(), 2);
    assert_eq!(left().await, 8);
    let waits = tokio::time::timeout(std::time::Duration::from_secs(1), ask()).await;
    assert!(waits.is_err(), "it is held for five seconds");
    while engine.core().held() > 0 || left().await != 8 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_rules_delay_is_held_here() {
    let leaky = "policies: [ { name: p, rules: [ { leaky_bucket: { rate: 1/s, burst: 100 } } ] } ]";
    let engine = ServerEngine::in_memory(PolicySet::new(Document::parse(leaky).unwrap()));
    let begin = tokio::time::Instant::now();
    let asking = (0..80).map(|_| async {
        let policies = engine.core().policies();
        let budget =
            |policy: &Arc<Policy>| GuardingBudget { policy: Arc::clone(policy), key: None };
        let budgets: Vec<_> = policies.policies().iter().map(budget).collect();
        let turn = engine.turn(Wire::Http);
        let decided = decide(&turn, &budgets, None).await.unwrap();
        (decided[0].admission.way.passes(), begin.elapsed().as_secs())
    });
    let answered = futures_util::future::join_all(asking).await;
    // The wall clock moves on a little while eighty are decided.
    let held = |seconds: u64| move |(_, at): &&(bool, u64)| at.abs_diff(seconds) <= 1;
    assert!(answered[..60].iter().zip(0..).all(|(one, at)| one.0 && held(at)(&one)));
    assert!(answered[63..].iter().all(|one| *one == (false, 0)), "{:?}", &answered[58..]);
}

#[tokio::test]
async fn the_body_of_a_refusal_says_what_its_head_says() {
    use http_body_util::BodyExt;

    for deny in [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN] {
        let response = second(&format!("policies: [ {} ]", policy("p", "reject")), deny).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["status"], deny.as_u16());
        assert_eq!(body["violated-policies"], serde_json::json!(["r"]), "as in RateLimit-Policy");
        assert!(body["type"].as_str().unwrap().ends_with("#quota-exceeded"));
    }
}

proptest! {
    #[test]
    fn no_header_fields_make_it_panic(
        uri in "\\PC{0,20}", method in "\\PC{0,8}", host in "\\PC{0,20}", hops in "[0-9a-f:., \\]\\[]{0,40}",
    ) {
        let fields = [("x-original-uri", uri), ("x-original-method", method),
            ("x-forwarded-host", host), ("x-forwarded-for", hops)];
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
            headers.append(name, value);
        }
        let policies = policies("key: [remote_ip, host, path], match: { path: { prefix: / } }");
        if let Ok(guarded) = GatewayRequest::decode(&headers, GATEWAY, &trusted("")) {
            prop_assert_eq!(guarded.guarding(&policies, None).map(|all| all.budgets.len()), Ok(1));
        }
    }
}
