//! What is read and told: replies, keys made of attributes, header fields and problems.

use serde_json::{Value, json};
use sluicegate::http::{headers, problem};
use sluicegate::policy::attribute::key_of;
use sluicegate::policy::{Attributes, KeyAttribute};
use sluicegate::store::redis::codec::ScriptReply;
use sluicegate::{Cost, Decision, Micros, Outcome, PermitId, Retry, Verb};

use super::asks::{POLICIES, policy};
use super::{hex, is_fresh};

#[test]
fn replies_of_the_script_are_read_alike() {
    let verdict = |kind: u8, rule: u8, granted: u32, numbers: [u64; 3]| {
        let mut bytes = vec![kind, rule];
        bytes.extend(granted.to_le_bytes());
        numbers.iter().for_each(|number| bytes.extend(&number.to_le_bytes()[..7]));
        bytes
    };
    let never = (1 << 56) - 1;
    let most = (1 << 53) - 1;
    let good = verdict(1, 0, 3, [0, 7, 60_000_000]);
    let replies = [
        good.clone(),
        verdict(1, 0, u32::MAX, [most, most, most]),
        verdict(0, 0, 0, [1, 0, 60_000_000]),
        verdict(0, 0, 0, [never, 0, 0]),
        verdict(0, 1, 0, [100_000, 0, 2_000_000]),
        verdict(1, 2, 1, [0, 8_999, 9]),
        verdict(1, 3, 1, [0, 0, 0]),
        good[..26].to_vec(),
        [&good[..], b"\0"].concat(),
        good[..1].to_vec(),
        vec![],
        vec![2],
        vec![2, 0],
        vec![3],
        vec![3, 1, 2, 3],
        b"\x04rules".to_vec(),
        b"\x04ask".to_vec(),
        b"\x04state".to_vec(),
        vec![4],
        vec![5],
        vec![255],
    ];
    let mut entries = Vec::new();
    for text in POLICIES {
        let policy = policy(text);
        for (verb, name) in [
            (Verb::Check { cost: Cost::ONE }, "check"),
            (Verb::Release { permit: PermitId::named("mine") }, "release"),
        ] {
            for bytes in &replies {
                let said = ScriptReply::decode(bytes, policy.rules().set(), &verb);
                let said = match said {
                    Ok(ScriptReply::Verdict(verdict)) => {
                        let rule = &policy.rules().set().rules()[verdict.rule].name;
                        decision(&verdict.decision, rule)
                    }
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
        "What a reply means to a verb under the policies `orders` and `mails` of documents.json; `foreign`: \
         it is none of this script. redis.md, A reply.",
        &entries,
    );
}

/// A decision as a vector of `spec/vectors` has it.
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
                "document": serde_json::from_str::<Value>(text).expect("it is JSON"),
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
