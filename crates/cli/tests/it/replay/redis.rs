//! A replay on Redis gives the decisions of a replay in memory, byte for byte.

use std::fmt::Write as _;

use sluicegate_testkit::{Options, RedisServer, need};

use super::replay;

const POLICIES: &str = "
policies:
  - { name: bucket, rules: [ { token_bucket: { rate: 7/s, burst: 5 } } ] }
  - { name: initial, rules: [ { token_bucket: { rate: 7/s, burst: 5, initial: 0 } } ] }
  - { name: stepped, rules: [ { token_bucket: { rate: 3/s, burst: 5, refill: interval } } ] }
  - { name: bursty, rules: [ { smooth_bursty: { rate: 5/s } } ] }
  - { name: warmup, rules: [ { smooth_warmup: { rate: 5/s, warmup: 2s } } ] }
  - { name: leaky, rules: [ { leaky_bucket: { rate: 5/s, burst: 4 } } ] }
  - { name: daily, rules: [ { fixed_window: { limit: 40, calendar: day, time_zone: Europe/Berlin } } ] }
  - { name: fixed, rules: [ { fixed_window: { limit: 5, window: 1s } } ] }
  - { name: window, rules: [ { sliding_window: { limit: 5, window: 1s } } ] }
  - { name: counter, rules: [ { sliding_counter: { limit: 5, window: 1s } } ] }
  - { name: log, rules: [ { sliding_log: { limit: 5, window: 1s } } ] }
  - name: several
    rules:
      - { name: burst, token_bucket: { rate: 10/s, burst: 4 } }
      - { name: hourly, sliding_window: { limit: 30, window: 1h, buckets: 60 } }
      - { name: log, sliding_log: { limit: 6, window: 2s } }
  - { name: jobs, rules: [ { concurrency: { limit: 3, ttl: 2s } } ] }
";

const CHECKED: [&str; 12] = [
    "bucket", "initial", "stepped", "bursty", "warmup", "leaky", "daily", "fixed", "window",
    "counter", "log", "several",
];

const OPS: [&str; 6] = ["check", "check", "peek", "refund", "at_most", "reserve"];

/// A few thousand events of every policy and operation, and a policy that changes in between.
fn events() -> String {
    let (mut events, mut at_us, mut seed) = (String::new(), 1_800_000_000_000_000_u64, 7_u64);
    let mut random = move |below: usize| {
        // Knuth's MMIX generator: the same events every time.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).expect("31 bits") % below
    };
    for number in 0..3_000 {
        at_us += random(60_000) as u64;
        let (key, cost) = (random(3), 1 + random(3));
        let line = if number % 500 == 499 {
            let rules =
                format!(r#"[{{"token_bucket":{{"rate":"{}/s","burst":{}}}}}]"#, cost, 4 + key);
            format!(r#""op":"configure","document":{{"name":"bucket","rules":{rules}}}"#)
        } else if number % 13 == 0 {
            let op = ["acquire", "release", "renew"][random(3)];
            format!(r#""policy":"jobs","key":"k{key}","op":"{op}","id":"p{cost}""#)
        } else {
            let (policy, op) = (CHECKED[random(CHECKED.len())], OPS[random(OPS.len())]);
            let wait = if op == "reserve" { r#","max_wait_us":300000"# } else { "" };
            format!(r#""policy":"{policy}","key":"k{key}","cost":{cost},"op":"{op}"{wait}"#)
        };
        writeln!(events, r#"{{"at_us":{at_us},{line}}}"#).expect("a string can be written");
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_the_same_byte_for_byte_and_twice_the_same() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (events, url) = (events(), format!("{}?deadline_ms=5000", redis.url()));
    let told = |options: &[&str]| {
        let options = [&["--decisions", "-"], options].concat();
        let replayed = replay(POLICIES, &events, &options);
        assert_eq!(replayed.code, 0, "{}", replayed.stderr);
        replayed.stdout
    };
    let in_memory = told(&[]);
    assert_eq!(in_memory.lines().count(), 3_000);
    for _ in 0..2 {
        let in_redis = told(&["--store", &url]);
        for (number, (memory, redis)) in in_memory.lines().zip(in_redis.lines()).enumerate() {
            assert_eq!(memory, redis, "line {}", number + 1);
        }
        assert_eq!(in_memory.len(), in_redis.len());
    }
}

/// A server has 20 ms for a decision; a replay with that deadline would decide later events differently.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_pauses_changes_no_decision() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (events, url) = (events(), redis.url());
    let in_memory = replay(POLICIES, &events, &["--decisions", "-"]);
    let replaying = tokio::task::spawn_blocking(move || {
        replay(POLICIES, &events, &["--decisions", "-", "--store", &url])
    });
    let mut pauses = 0;
    while !replaying.is_finished() && pauses < 8 {
        redis.cli(&["CLIENT", "PAUSE", "120", "ALL"]).await.expect("a pause");
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        pauses += 1;
    }
    let in_redis = replaying.await.expect("the replay ended");
    assert_eq!(in_redis.code, 0, "after {pauses} pauses: {}", in_redis.stderr);
    assert!(in_memory.stdout == in_redis.stdout, "{pauses} pauses");
    assert!(pauses > 1, "the replay was over before the second pause");
}
