//! Two programs with different versions of a policy, in turn on one key; and states that no program wrote.

use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate::store::StoreError;
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::{Cost, Micros, Verb};
use sluicegate_kernel::Moment;
use sluicegate_policy::Policy;
use sluicegate_store::redis::codec::{ScriptClock, state_key};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreRequest};
use sluicegate_testkit::{Options, RedisServer, need};

use super::answers::decision;
use super::records::published;
use super::{hex, is_fresh};

/// Policies before and after a change.
const CHANGES: [[&str; 2]; 12] = [
    [
        r#""rules":[{"token_bucket":{"rate":"10/s","burst":10}}]"#,
        r#""rules":[{"token_bucket":{"rate":"20/s","burst":20}}]"#,
    ],
    [
        r#""rules":[{"token_bucket":{"rate":"10/s","burst":10}}],"carry":"proportional""#,
        r#""rules":[{"token_bucket":{"rate":"20/s","burst":20}}],"carry":"proportional""#,
    ],
    [
        r#""rules":[{"token_bucket":{"rate":"10/s","burst":10}}]"#,
        r#""rules":[{"token_bucket":{"rate":"20/s","burst":20}}],"carry":"reset""#,
    ],
    [
        r#""rules":[{"token_bucket":{"rate":"10/s","burst":10}}]"#,
        r#""rules":[{"sliding_window":{"limit":12,"window":"5s"}}]"#,
    ],
    [
        r#""rules":[{"name":"r","token_bucket":{"rate":"10/s","burst":10}}]"#,
        r#""rules":[{"name":"r","sliding_window":{"limit":12,"window":"5s"}}]"#,
    ],
    [
        r#""rules":[{"name":"r","sliding_log":{"limit":12,"window":"5s"}}]"#,
        r#""rules":[{"name":"r","fixed_window":{"limit":20,"window":"3s"}}]"#,
    ],
    [
        r#""rules":[{"sliding_counter":{"limit":10,"window":"3s"}}]"#,
        r#""rules":[{"sliding_counter":{"limit":20,"window":"6s"}}]"#,
    ],
    [
        r#""rules":[{"name":"day","fixed_window":{"limit":30,"calendar":"day","time_zone":"Europe/Berlin"}}]"#,
        r#""rules":[{"name":"day","fixed_window":{"limit":50,"calendar":"day","time_zone":"Europe/Berlin"}},{"name":"burst","token_bucket":{"rate":"5/s","burst":9}}]"#,
    ],
    [
        r#""rules":[{"name":"a","token_bucket":{"rate":"5/s","burst":9}},{"name":"b","sliding_log":{"limit":20,"window":"9s"}}]"#,
        r#""rules":[{"name":"b","sliding_log":{"limit":12,"window":"9s"}},{"name":"c","leaky_bucket":{"rate":"5/s","burst":9}}]"#,
    ],
    [
        r#""rules":[{"smooth_bursty":{"rate":"5/s","max_burst":"2s"}}]"#,
        r#""rules":[{"smooth_bursty":{"rate":"9/s","max_burst":"1s"}}]"#,
    ],
    [
        r#""rules":[{"name":"r","leaky_bucket":{"rate":"5/s","burst":9}}]"#,
        r#""rules":[{"name":"r","token_bucket":{"rate":"5/s","burst":9,"initial":0}}]"#,
    ],
    [
        r#""rules":[{"token_bucket":{"rate":"3/s","burst":6}}]"#,
        r#""rules":[{"token_bucket":{"rate":"3/s","burst":6}}]"#,
    ],
];

/// States that no script wrote, or that have been cut.
const BAD_STATES: [&[u8]; 6] = [
    b"x",
    b"not a state of any rules, and longer than a head",
    b"\0",
    &[0; 11],
    &[0xff; 40],
    &[7; 2_000],
];

const BEGIN_US: u64 = 1_774_745_000_000_000;

const STEPS: usize = 40;

/// A program that holds one version of the policy `p`.
struct Program {
    store: RedisStore,
    policy: Policy,
    since: Micros,
}

impl Program {
    async fn start(redis: &RedisServer, text: &str, since_us: u64) -> Self {
        let url = format!("{}?deadline_ms=5000", redis.url());
        let config: RedisConfig = url.parse().expect("a URL of the test");
        let store = RedisStore::start(&config).expect("a configuration of the test");
        store.ready().await.expect("the server of the test is there");
        let policy = Policy::parse_one(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        Self { store: store.with_clock(ScriptClock::Given), policy, since: Micros::new(since_us) }
    }

    async fn ask(&self, verb: &Verb, at_us: u64) -> Value {
        let rules = self.policy.rules();
        let windows = rules.windows(Micros::new(at_us));
        let at = Moment::with_windows(Micros::new(at_us), windows.as_slice());
        let request = StoreRequest {
            policy: "p",
            key: b"k",
            rules: rules.set(),
            verb,
            origin: RuleOrigin::Policy { since: self.since },
            quota: Quota::default(),
        };
        match self.store.decide(&request, &at).await {
            Ok(answer) => {
                decision(&answer.verdict.decision, &rules.set().rules()[answer.verdict.rule].name)
            }
            Err(StoreError::Unreadable { .. }) => json!("this_key"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn of_two_versions_the_later_decides_in_every_language() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (mut rng, mut entries) = (Rng::with_seed(23), Vec::new());
    for texts in CHANGES {
        // The later one is the second, or they were taken over at one instant.
        for since_us in [[BEGIN_US - 5_000_000, BEGIN_US - 1_000_000], [BEGIN_US; 2]] {
            redis.cli(&["FLUSHALL"]).await.expect("it answers");
            entries.push(in_turn(&redis, &mut rng, texts, since_us).await);
        }
    }
    for state in BAD_STATES {
        redis.cli(&["FLUSHALL"]).await.expect("it answers");
        entries.push(with_state(&redis, state).await);
    }
    is_fresh(
        "versions",
        "The key `k` of the policy `p`, asked in turn (`by`) by programs that hold one of `records` each, taken \
         over at the instant of `since_us`, by a given time; the key begins with `state_hex` where an entry has it. What \
         is answered, or `this_key` (failure.md), and what is stored then: null if nothing is. redis.md, Other \
         rules than those that wrote the state.",
        &entries,
    );
}

async fn in_turn(
    redis: &RedisServer,
    rng: &mut Rng,
    texts: [&str; 2],
    since_us: [u64; 2],
) -> Value {
    let texts = texts.map(|text| format!(r#"{{"name":"p",{text}}}"#));
    let one = Program::start(redis, &texts[0], since_us[0]).await;
    let programs = [one, Program::start(redis, &texts[1], since_us[1]).await];
    let (mut at_us, mut steps) = (BEGIN_US, Vec::new());
    for place in 0..STEPS {
        at_us += [0, 0, 1, rng.u64(0..300_000), rng.u64(0..4_000_000)][rng.usize(..5)];
        // First by one alone, so that there is something to take over.
        let by = if place < 6 { 0 } else { rng.usize(..2) };
        let cost = Cost::new([1, 1, 2, 5][rng.usize(..4)]).expect("a cost");
        let (verb, op) = match rng.u8(0..6) {
            0 => (Verb::Peek { cost }, "peek"),
            1 => (Verb::AtMost { cost }, "at_most"),
            _ => (Verb::Check { cost }, "check"),
        };
        let expect = programs[by].ask(&verb, at_us).await;
        steps.push(json!({
            "by": by, "at_us": at_us, "op": op, "cost": cost.get(), "expect": expect,
            "stored_hex": stored(redis).await,
        }));
    }
    let since = since_us.map(Micros::new);
    let records = [published(&texts[0], since[0]), published(&texts[1], since[1])];
    json!({ "records": records, "since_us": since_us, "steps": steps })
}

async fn with_state(redis: &RedisServer, state: &[u8]) -> Value {
    let text = format!(r#"{{"name":"p",{}}}"#, CHANGES[0][0]);
    let program = Program::start(redis, &text, BEGIN_US).await;
    let mut client = redis.client().await.expect("a connection");
    let key = state_key("p", b"k");
    client.call(&[b"SET", key.as_bytes(), state]).await.expect("it is written");
    let mut steps = Vec::new();
    for at_us in [BEGIN_US, BEGIN_US + 300_000] {
        let expect = program.ask(&Verb::Check { cost: Cost::ONE }, at_us).await;
        let stored_hex = stored(redis).await;
        steps.push(json!({
            "by": 0, "at_us": at_us, "op": "check", "cost": 1, "expect": expect, "stored_hex": stored_hex,
        }));
    }
    let record = published(&text, Micros::new(BEGIN_US));
    json!({ "records": [record], "since_us": [BEGIN_US], "state_hex": hex(state), "steps": steps })
}

/// Returns the state of the key.
async fn stored(redis: &RedisServer) -> Option<String> {
    let reply = redis.cli(&["GET", &state_key("p", b"k")]).await.expect("it answers");
    match reply {
        sluicegate_testkit::Reply::Bytes(bytes) => Some(hex(&bytes)),
        _ => None,
    }
}
