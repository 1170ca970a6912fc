//! Data that is sent: keys, and requests.

use serde_json::{Value, json};
use sluicegate::{Cost, Micros, PermitId, Verb};
use sluicegate_kernel::Moment;
use sluicegate_policy::Policy;
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::codec::{
    PreviousRules, RulesBlob, ScriptClock, ScriptRequest, rules_key, state_key,
};

use super::{hex, is_fresh};

/// 2026-03-29, when clocks in Europe skip an hour.
const NOW: Micros = Micros::from_secs(1_774_746_000);

/// A policy without a calendar, and one with two.
pub(super) const POLICIES: [&str; 2] = [
    r#"{"name":"orders","rules":[{"name":"minute","fixed_window":{"limit":10,"window":"1m"}}]}"#,
    r#"{"name":"mails","rules":[{"name":"day","fixed_window":{"limit":500,"calendar":"day","time_zone":"Europe/Berlin"}},{"name":"burst","token_bucket":{"rate":"10/s","burst":20}},{"name":"month","fixed_window":{"limit":9000,"calendar":"month"}}]}"#,
];

/// Parses a policy.
pub(super) fn policy(text: &str) -> Policy {
    Policy::parse_one(text).expect("it makes sense")
}

#[test]
fn keys_are_as_every_language_makes_them() {
    let long = "k".repeat(1024);
    let policies = ["a", "orders", "x.y-z_0", &"n".repeat(128)].map(String::from);
    let keys: [&[u8]; 10] = [
        b"",
        b"b",
        b"alice",
        b"203.0.113.7",
        b"a|b",
        "\u{fc}".as_bytes(),
        "u\u{308}".as_bytes(),
        b"\xff\x00\x80",
        b"{x}",
        long.as_bytes(),
    ];
    let mut entries = Vec::new();
    for policy in &policies {
        for key in keys {
            let at = state_key(policy, key);
            entries.push(json!({ "policy": policy, "key_hex": hex(key), "state_key": at }));
        }
    }
    let blob =
        RulesBlob::new(super::asks::policy(POLICIES[0]).rules().set(), RuleOrigin::default());
    let generation = blob.stamp().expect("a policy's").generation();
    for policy in &policies {
        let at = rules_key(policy, generation);
        entries.push(
            json!({ "policy": policy, "generation": generation.to_string(), "rules_key": at }),
        );
    }
    for id in ["", "mine", "\u{fc}", &"i".repeat(1024)] {
        let permit = PermitId::named(id).0.to_be_bytes();
        entries.push(json!({ "permit_id": id, "permit_hex": hex(&permit) }));
    }
    is_fresh(
        "keys",
        "Where states and rules are, and what a permit's id becomes: redis.md, Keys and A request.",
        &entries,
    );
}

#[test]
fn requests_are_the_bytes_that_the_script_reads() {
    let mut entries = Vec::new();
    for text in POLICIES {
        let policy = policy(text);
        let (rules, windows) = (policy.rules(), policy.rules().windows(NOW));
        let at = Moment::with_windows(NOW, windows.as_slice());
        let since = Micros::from_secs(1_767_225_660);
        let wrote = RulesBlob::new(rules.set(), RuleOrigin::Policy { since });
        for (verb, told) in verbs() {
            for clock in [ScriptClock::Server, ScriptClock::Given, ScriptClock::Client] {
                for (before, of) in [
                    (PreviousRules::Unsaid, "unsaid"),
                    (PreviousRules::Rules(&wrote), "rules"),
                    (PreviousRules::Lost, "lost"),
                ] {
                    if of != "unsaid" && clock == ScriptClock::Given {
                        continue;
                    }
                    let request = ScriptRequest { verb: &verb, at: &at, clock, before };
                    let windows: Vec<_> = windows
                        .as_slice()
                        .iter()
                        .take(rules.set().rules().len())
                        .map(|window| window.map(|it| [it.start.get(), it.end.get()]))
                        .collect();
                    let mut entry = told.clone();
                    entry["policy"] = json!(policy.name());
                    entry["clock"] = json!(["server", "given", "client"][clock as usize]);
                    entry["at_us"] = json!(NOW.get());
                    entry["windows"] = json!(windows);
                    entry["before"] = match of {
                        "rules" => json!({ "blob_hex": hex(wrote.as_bytes()) }),
                        of => json!(of),
                    };
                    entry["request_hex"] = json!(hex(&request.encode(rules.set())));
                    entries.push(entry);
                }
            }
        }
    }
    is_fresh(
        "requests",
        "Requests under the policies `orders` and `mails` of records.json: redis.md, A request.",
        &entries,
    );
}

/// Each verb, and its fields in the file.
fn verbs() -> Vec<(Verb, Value)> {
    let cost = |permits| Cost::new(permits).expect("a cost");
    let permit = PermitId::named("mine");
    let (two, most) = (cost(2), cost(1 << 31));
    let reserve = |max_wait| Verb::Reserve { cost: two, max_wait };
    vec![
        (Verb::Check { cost: Cost::ONE }, json!({ "verb": "check", "cost": 1 })),
        (Verb::Check { cost: most }, json!({ "verb": "check", "cost": most.get() })),
        (
            reserve(Micros::from_millis(250)),
            json!({ "verb": "reserve", "cost": 2, "max_wait_us": 250_000 }),
        ),
        (
            reserve(Micros::new(u64::MAX)),
            json!({ "verb": "reserve", "cost": 2, "max_wait_us": null }),
        ),
        (Verb::AtMost { cost: two }, json!({ "verb": "at_most", "cost": 2 })),
        (Verb::Peek { cost: Cost::ONE }, json!({ "verb": "peek", "cost": 1 })),
        (Verb::Refund { cost: two }, json!({ "verb": "refund", "cost": 2 })),
        (Verb::Reset, json!({ "verb": "reset" })),
        (
            Verb::Acquire { cost: two, permit },
            json!({ "verb": "acquire", "cost": 2, "id": "mine" }),
        ),
        (Verb::Release { permit }, json!({ "verb": "release", "id": "mine" })),
        (Verb::Renew { permit }, json!({ "verb": "renew", "id": "mine" })),
    ]
}
