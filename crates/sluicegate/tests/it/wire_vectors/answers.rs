//! Values that are read and returned: replies, keys made of attributes, header fields and problems.

use serde_json::{Value, json};
use sluicegate::internals::http::{headers, problem};
use sluicegate::{Cost, Decision, Micros, PermitId, Verb};
use sluicegate_kernel::{Outcome, Retry};
use sluicegate_policy::attribute::key_of;
use sluicegate_policy::{Attributes, KeyAttribute, Policy};
use sluicegate_store::StoreAnswer;
use sluicegate_store::redis::codec::ScriptReply;

use super::asks::{POLICIES, policy};
use super::records::published;
use super::{hex, is_fresh};

/// Replies that are not decisions.
const NO_DECISIONS: [&[u8]; 12] = [
    b"\x01",
    b"",
    b"\x02",
    b"\x02\0",
    b"\x03",
    b"\x03\x01\x02\x03",
    b"\x04rules",
    b"\x04ask",
    b"\x04state",
    b"\x04",
    b"\x05",
    b"\xff",
];

/// Replies of the script under so many rules, and others that look like one.
fn replies(rules: usize) -> Vec<Vec<u8>> {
    let seven = |number: u64| number.to_le_bytes()[..7].to_vec();
    let by_one = |kind: u8, rule: u8, granted: u32, numbers: [u64; 3]| {
        [&[kind, rule][..], &granted.to_le_bytes(), &numbers.map(seven).concat()].concat()
    };
    // Of several rules, the permits left under each come last.
    let several = if rules > 1 { rules } else { 0 };
    let by_all = |kind, rule, granted, numbers| {
        [by_one(kind, rule, granted, numbers), seven(5).repeat(several)].concat()
    };
    let never = (1 << 56) - 1;
    let most = (1 << 53) - 1;
    // Two's complement: so many more than the limit are in use.
    let over = |permits: u64| (1 << 56) - permits;
    let good = by_all(1, 0, 3, [0, 7, 60_000_000]);
    let mut replies = vec![
        good.clone(),
        by_all(1, 0, u32::MAX, [most, most, most]),
        by_all(0, 0, 0, [1, 0, 60_000_000]),
        by_all(0, 0, 0, [never, 0, 0]),
        by_all(0, 1, 0, [100_000, 0, 2_000_000]),
        by_all(1, 2, 1, [0, 8_999, 9]),
        by_all(1, 3, 1, [0, 0, 0]),
        by_all(0, 0, 0, [1_000, over(2_950), 60_000_000]),
        by_all(0, 0, 0, [1_000, over(1), 60_000_000]),
        by_all(0, 0, 0, [1_000, over(most), 60_000_000]),
        good[..good.len() - 1].to_vec(),
        [&good[..], b"\0"].concat(),
        [good.clone(), seven(5)].concat(),
    ];
    if rules > 1 {
        let one = by_one(1, 0, 3, [0, 7, 60_000_000]);
        // The reply of one rule, one with a rule less, and one with more left than the limits.
        replies.extend([one.clone(), good[..good.len() - 7].to_vec()]);
        replies.push([one, seven(most).repeat(rules)].concat());
        let refused = by_one(0, 0, 0, [1_000, over(1), 60_000_000]);
        let each = (0..).map(|rule: u64| seven(over(1 + 2_949 * rule))).take(rules);
        replies.push([refused, each.collect::<Vec<_>>().concat()].concat());
    }
    // Requests that wait for a permit are called, or half a one.
    replies.push([good.clone(), vec![7; 48]].concat());
    replies.push([good.clone(), vec![7; 36]].concat());
    replies.extend(NO_DECISIONS.map(<[u8]>::to_vec));
    replies
}

/// Returns the content of an answer.
fn decided(policy: &Policy, answer: &StoreAnswer) -> Value {
    let name = |rule: usize| &*policy.rules().set().rules()[rule].name;
    let mut said = decision(&answer.verdict.decision, name(answer.verdict.rule));
    if !answer.in_use.is_empty() {
        let in_use = answer.in_use.iter().map(|(rule, used)| (name(*rule).to_owned(), json!(used)));
        said["in_use"] = Value::Object(in_use.collect());
    }
    said
}

#[test]
fn replies_of_the_script_are_read_alike() {
    let mut entries = Vec::new();
    for text in POLICIES {
        let policy = policy(text);
        for (verb, name) in [
            (Verb::Check { cost: Cost::ONE }, "check"),
            (Verb::Release { permit: PermitId::named("mine") }, "release"),
        ] {
            for bytes in &replies(policy.rules().set().rules().len()) {
                let said = ScriptReply::decode(bytes, policy.rules().set(), &verb);
                let said = match said {
                    Ok(ScriptReply::Decided(answer)) => decided(&policy, &answer),
                    Ok(ScriptReply::Unsupported(_)) => json!("unsupported"),
                    Ok(ScriptReply::Unknown(state)) => json!({ "unknown": hex(&state) }),
                    Ok(ScriptReply::Malformed(what)) => json!({ "malformed": what }),
                    Err(_) => json!("foreign"),
                };
                entries.push(json!({
                    "policy": policy.name(), "verb": name, "reply_hex": hex(bytes), "means": said,
                }));
            }
        }
    }
    is_fresh(
        "replies",
        "What a reply means to a verb under the policies `orders` and `mails` of records.json; `foreign`: \
         it is none of this script. `in_use` is what the reply says to be in use of each rule: above its limit if less than nothing is left. \
         redis.md, A reply.",
        &entries,
    );
}

/// Returns a decision in the form of `spec/vectors`.
pub(super) fn decision(decision: &Decision, rule: &str) -> Value {
    let (granted, wait_us) = match decision.outcome {
        Outcome::Allow { granted, wait } => (granted, wait.get()),
        Outcome::Deny { .. } => (0, 0),
    };
    let retry = match decision.outcome {
        Outcome::Allow { .. } => Some(0),
        Outcome::Deny { retry: Retry::After(span) } => Some(span.get()),
        Outcome::Deny { retry: Retry::Never } => None,
    };
    json!({
        "allowed": decision.allowed(), "granted": granted, "wait_us": wait_us, "limit": decision.limit,
        "remaining": decision.remaining, "retry_after_us": retry,
        "reset_after_us": decision.reset_after.get(), "rule": rule,
    })
}

#[test]
fn keys_made_of_attributes_are_joined_alike() {
    let request = Attributes {
        remote_ip: Some("203.0.113.7"),
        path: Some("/a|b\\c"),
        method: Some("GET"),
        user_agent: Some("curl/8"),
        status: None,
        host: Some("example.com"),
        headers: &[("x-tenant", "shop"), ("X-Other", "a\\|b"), ("x-empty", "")],
    };
    let told = json!({
        "remote_ip": "203.0.113.7", "path": "/a|b\\c", "method": "GET", "user_agent": "curl/8",
        "host": "example.com", "headers": { "x-tenant": "shop", "X-Other": "a\\|b", "x-empty": "" },
    });
    let parts: [&[&str]; 12] = [
        &["remote_ip"],
        &["path"],
        &["method"],
        &["user_agent"],
        &["status"],
        &["host"],
        &["header:x-tenant"],
        &["header:x-none"],
        &["remote_ip", "path"],
        &["header:x-other", "status", "host"],
        &["header:x-empty", "header:x-tenant"],
        &["method", "user_agent", "remote_ip"],
    ];
    let entries = parts.map(|parts| {
        let attributes: Vec<_> =
            parts.iter().map(|part| KeyAttribute::parse(part).expect("it is known")).collect();
        json!({ "key": parts, "request": told, "made": key_of(&attributes, &request) })
    });
    is_fresh(
        "attribute-keys",
        "Keys made of a request: document.md, Keys made of attributes.",
        &entries,
    );
}

#[test]
fn header_fields_and_problems_are_the_same_texts() {
    let mut entries = Vec::new();
    for text in [
        r#"{"name":"a","rules":[{"token_bucket":{"rate":"5/s","burst":300}}]}"#,
        r#"{"name":"b","rules":[{"name":"burst","token_bucket":{"rate":"7/1s","burst":3}},{"name":"day","fixed_window":{"limit":5000,"calendar":"day"}},{"name":"hour","sliding_window":{"limit":100,"window":"1h"}}]}"#,
        r#"{"name":"c","rules":[{"concurrency":{"limit":4,"ttl":"30s"}}]}"#,
        r#"{"name":"d","rules":[{"sliding_log":{"limit":9,"window":"1ms"}}]}"#,
    ] {
        let policy = policy(text);
        let rules = policy.rules().set().rules();
        let field = |value: &http::HeaderValue| value.to_str().expect("it is text").to_owned();
        let limits = headers::rate_limit_policy(rules.iter().map(|it| (&*it.name, &it.rule)));
        let allow = |granted| Outcome::Allow { granted, wait: Micros::ZERO };
        let deny = |after| Outcome::Deny { retry: Retry::After(Micros::new(after)) };
        for (outcome, remaining, reset_us) in [
            (allow(1), 299, 200_000),
            (allow(1), 0, 29_000_001),
            (allow(0), 3, 0),
            (deny(1), 0, 60_000_000),
            (deny(1_000_000), 0, 60_000_000),
            (deny(1_000_001), 0, 60_000_000),
            (Outcome::Deny { retry: Retry::Never }, 2, 1),
        ] {
            let reset_after = Micros::new(reset_us);
            let limit = rules[0].rule.limit();
            let made = Decision { outcome, limit, remaining, reset_after };
            let name = &rules[0].name;
            let refusal = (!made.allowed()).then(|| {
                let body = problem::quota_exceeded([&**name], &made);
                serde_json::from_str::<Value>(&body).expect("it is JSON")
            });
            entries.push(json!({
                "record": published(text, Micros::ZERO),
                "decision": decision(&made, name),
                "ratelimit-policy": field(&limits),
                "ratelimit": field(&headers::rate_limit(name, &made)),
                "retry-after": headers::retry_after(&made).map(|it| field(&it)),
                "problem": refusal,
            }));
        }
    }
    is_fresh(
        "headers",
        "Header fields and the problem of a 429 that a decision of a policy's first rule has: \
         docs/wires/http.md. `problem` is compared as JSON.",
        &entries,
    );
}
