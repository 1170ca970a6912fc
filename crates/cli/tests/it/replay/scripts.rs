//! Scripts that limit in Redis, as people write them, beside the policies of the page on migration.

use sluicegate_testkit::{Client, Options, RedisServer, need};

use super::{allowed, decisions, numbers};

const POLICIES: &str = include_str!("../../../../../examples/migrate/scripts.yaml");

/// The instant of the first request, in ms: a whole second.
const BEGIN_MS: u64 = 1_800_000_000_000;

/// A generator of numbers, always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A script on a Redis of its own.
struct Script {
    redis: RedisServer,
    client: Client,
    text: String,
}

impl Script {
    async fn start(name: &str, redis: RedisServer) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/migrate/scripts");
        let text = std::fs::read_to_string(format!("{folder}/{name}.lua")).unwrap();
        let client = redis.client().await.unwrap();
        Self { redis, client, text }
    }

    async fn call(&mut self, arguments: &[&str]) -> i64 {
        let command = [&["EVAL", self.text.as_str(), "1", "k"], arguments].concat();
        self.client.call(&command).await.unwrap().int()
    }
}

/// Requests of `cost` at `at_ms`, decided by the policy `name`.
fn events(name: &str, op: &str, requests: &[(u64, u64)]) -> Vec<String> {
    let event = |(id, (at_ms, cost)): (usize, &(u64, u64))| {
        let at_us = at_ms * 1_000;
        let id = if op == "acquire" { format!(r#","id":"{id}""#) } else { String::new() };
        format!(r#"{{"at_us":{at_us},"policy":"{name}","key":"k","cost":{cost},"op":"{op}"{id}}}"#)
    };
    requests.iter().enumerate().map(event).collect()
}

fn requests(steps_ms: u64, cost_max: u64) -> Vec<(u64, u64)> {
    let (mut random, mut at_ms) = (Random(7), BEGIN_MS);
    let mut next = || {
        at_ms += random.below(steps_ms);
        (at_ms, 1 + random.below(cost_max))
    };
    (0..1_000).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_with_a_clock_of_their_caller_decide_as_their_policies() {
    for (name, op, arguments, cost_max, differ_max) in [
        ("aligned", "check", "5 1000 NOW", 1, 0),
        ("log", "check", "5 1000 NOW ID", 1, 0),
        ("buckets", "check", "5 1000 100 NOW", 1, 0),
        // Its sums of fractions are rounded.
        ("bucket", "check", "5 2.5 COST NOW", 3, 5),
        ("semaphore", "acquire", "3 1000 NOW ID", 1, 0),
    ] {
        let requests = requests(400, cost_max);
        let mut script =
            Script::start(name, need!(RedisServer::start(Options::default()).await)).await;
        let mut passed = Vec::new();
        for (id, (at_ms, cost)) in requests.iter().enumerate() {
            let words =
                [("NOW", at_ms.to_string()), ("COST", cost.to_string()), ("ID", id.to_string())];
            let word = |word| {
                words
                    .iter()
                    .find(|(name, _)| *name == word)
                    .map_or(word, |(_, value)| value.as_str())
            };
            let arguments: Vec<&str> = arguments.split(' ').map(word).collect();
            passed.push(script.call(&arguments).await == 1);
        }
        let decided = allowed(&decisions(POLICIES, &events(name, op, &requests)));
        let differ = passed.iter().zip(&decided).filter(|(a, b)| a != b).count();
        let passes = decided.iter().filter(|passes| **passes).count();
        assert!(
            differ <= differ_max && (100..900).contains(&passes),
            "{name}: {differ} of 1,000 differ, {passes} pass"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_with_an_end_decides_as_its_policy() {
    let options = Options { clock: true, ..Options::default() };
    let mut script = Script::start("counter", need!(RedisServer::start(options).await)).await;
    let (mut requests, mut passed) = (Vec::new(), Vec::new());
    let mut random = Random(7);
    let mut after_ms = 0_u64;
    for _ in 0..200 {
        // No request is near the end of a window, as the clock of Redis goes on meanwhile.
        after_ms += 400 * random.below(2);
        script.redis.set_clock_offset_us(i64::try_from(after_ms * 1_000).unwrap()).unwrap();
        passed.push(script.call(&["5", "1"]).await == 1);
        requests.push((BEGIN_MS + after_ms, 1));
    }
    assert_eq!(allowed(&decisions(POLICIES, &events("counter", "check", &requests))), passed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_of_guavas_limiter_has_the_waits_of_its_policy() {
    let mut script =
        Script::start("guava", need!(RedisServer::start(Options::default()).await)).await;
    let requests = requests(900, 3);
    let mut waits = Vec::new();
    for (at_ms, cost) in &requests {
        let (cost, now_us) = (cost.to_string(), (at_ms * 1_000).to_string());
        waits.push(Some(u64::try_from(script.call(&["8", "4", &cost, &now_us]).await).unwrap()));
    }
    let lines = decisions(POLICIES, &events("guava", "reserve", &requests));
    assert_eq!(numbers(&lines, "wait_us"), waits);
}
