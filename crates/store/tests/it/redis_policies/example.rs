//! The example of `spec/redis-protocol.md` is what clients send.

use std::fmt::Write as _;
use std::path::Path;

use sluicegate_kernel::{Cost, Micros, Moment, Verb};
use sluicegate_policy::Policy;
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::codec::{
    PreviousRules, RulesBlob, ScriptClock, ScriptRequest, rules_key, state_key,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

#[test]
fn the_example_of_the_page_is_what_clients_send() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/redis-protocol.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let (_, example) = page.split_once("```json\n").expect("there is an example");
    let (document, _) = example.split_once("```").expect("it ends");
    let policy = Policy::parse_one(document).expect("a policy");
    let rules = policy.rules_at(b"alice", Micros::ZERO).rules.set();
    let since = Micros::from_secs(1_767_225_600 + 60);
    let blob = RulesBlob::new(rules, RuleOrigin::Policy { since });
    let stamp = blob.stamp().expect("it is a policy's");
    let verb = Verb::Check { cost: Cost::ONE };
    let at = Moment::new(Micros::from_secs(1));
    let question = ScriptRequest {
        verb: &verb,
        at: &at,
        clock: ScriptClock::Server,
        before: PreviousRules::Unsaid,
    };
    for (what, value) in [
        ("key", state_key(policy.name(), b"alice")),
        ("blob, in hex", hex(blob.as_bytes())),
        ("rules, at", rules_key(policy.name(), stamp.generation())),
        ("request, in hex", hex(&question.encode(rules))),
    ] {
        let line = format!("| {what} | `{value}` |");
        assert!(page.contains(&line), "the page lacks {line}");
    }
}
