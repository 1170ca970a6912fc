//! Every path of the wire, as a client uses it.

use std::fs;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};
use sluicegate_testkit::{Options, RedisServer, need};

use super::{Server, ask};

/// Budgets that do not refill while a test runs.
const POLICIES: &str = "
policies:
  - { name: ten, rules: [ { name: day, token_bucket: { rate: 10/d, burst: 10 } } ] }
  - { name: five, rules: [ { name: day, token_bucket: { rate: 5/d, burst: 5 } } ] }
  - { name: shop, apps: [checkout], rules: [ { token_bucket: { rate: 1/d } } ] }
  - { name: tokens, rules: [ { name: day, token_bucket: { rate: 1000/d, burst: 1000 } } ] }
  - { name: soon, rules: [ { token_bucket: { rate: 1/min, burst: 1 } } ] }
  - { name: held, rules: [ { name: both, concurrency: { limit: 2, ttl: 1h } } ] }
  - { name: shadow, overflow: shadow, rules: [ { token_bucket: { rate: 1/d } } ] }
  - { name: queue, overflow: { queue: { max_wait: 10s } }, rules: [ { token_bucket: { rate: 1/s } } ] }
  - name: two
    rules:
      - { name: burst, token_bucket: { rate: 5/d, burst: 5 } }
      - { name: daily, sliding_window: { limit: 100, window: 1d } }
    overrides:
      - { key: vip, rules: [ { name: burst, token_bucket: { rate: 50/d, burst: 50 } } ] }
";

/// A server with these policies, and the folder that holds them.
struct Started {
    server: Server,
    _folder: tempfile::TempDir,
}

fn start(options: &[&str]) -> Started {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("policies.yaml");
    fs::write(&path, POLICIES).expect("there is room for a file");
    let path = path.to_str().expect("the folder has a plain name");
    Started { server: Server::spawn(path, options, Stdio::inherit()), _folder: folder }
}

impl Started {
    /// Returns the answer, which must have status 200.
    fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.server.post(path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    fn remaining(&self, policy: &str, key: &str) -> u64 {
        let peeked = self.ok("/v1/peek", &json!({"policy": policy, "key": key}));
        peeked["remaining"].as_u64().expect("it is a number")
    }

    /// Status, head and body of a check.
    fn check(&self, query: &str, body: &Value) -> (u16, String, String) {
        let body = body.to_string();
        let request = format!(
            "POST /v1/check{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.server.raw(request.as_bytes())
    }
}

#[test]
fn a_decision_has_the_code_of_the_three_answers() {
    let started = start(&[]);
    let one = json!({"policy": "five", "key": "k", "cost": 5});
    assert_eq!(started.ok("/v1/check", &one)["code"], 1);
    assert_eq!(started.ok("/v1/check", &one)["code"], -1);
    for (body, status, kind) in [
        (json!({"policy": "none"}), 404, "urn:sluicegate:problem:unknown-policy"),
        (json!({"policy": "shop", "app": "check"}), 403, "urn:sluicegate:problem:not-configured"),
        (json!({"policy": "shop"}), 403, "urn:sluicegate:problem:not-configured"),
    ] {
        let (given, problem) = started.server.post("/v1/check", &body);
        assert_eq!((given, &problem["code"]), (status, &json!(0)), "{problem}");
        assert_eq!(problem["type"], kind);
    }
    let (_, problem) = started.server.post("/v1/check", &json!({"policy": "five", "cost": 0}));
    assert_eq!((&problem["type"], problem.get("code")), (&json!("about:blank"), None));
}

#[test]
fn a_check_that_may_wait_is_told_for_how_long() {
    let started = start(&[]);
    let soon = json!({"policy": "soon", "key": "k", "max_wait_ms": 60_000});
    assert_eq!(started.ok("/v1/check", &soon)["wait_us"], 0);
    let second = started.ok("/v1/check", &soon);
    let wait_us = second["wait_us"].as_u64().unwrap();
    assert!(second["allowed"] == true && (1..=60_000_000).contains(&wait_us), "{second}");
    let impatient = json!({"policy": "soon", "key": "k", "max_wait_ms": 1});
    assert_eq!(started.ok("/v1/check", &impatient)["allowed"], false);
}

#[test]
fn at_most_takes_what_there_is_and_says_how_much() {
    let started = start(&[]);
    let seven = json!({"policy": "ten", "key": "k", "cost": 7});
    assert_eq!(started.ok("/v1/at_most", &seven)["granted"], 7);
    assert_eq!(started.ok("/v1/at_most", &seven)["granted"], 3);
    let refused = started.ok("/v1/at_most", &seven);
    assert_eq!((&refused["allowed"], &refused["granted"]), (&json!(false), &json!(0)));
}

#[test]
fn a_permit_is_held_under_its_name_until_it_is_released() {
    let started = start(&[]);
    let held = json!({"policy": "held", "key": "k"});
    let first = started.ok("/v1/acquire", &held)["id"].as_str().unwrap().to_owned();
    let second = started.ok("/v1/acquire", &held)["id"].as_str().unwrap().to_owned();
    assert!(first.len() == 32 && first != second, "{first} {second}");
    assert_eq!(started.ok("/v1/acquire", &held)["allowed"], false);
    let permit = json!({"policy": "held", "key": "k", "id": first});
    assert_eq!(started.ok("/v1/renew", &permit)["allowed"], true);
    assert_eq!(started.ok("/v1/release", &permit)["allowed"], true);
    for path in ["/v1/renew", "/v1/release"] {
        assert_eq!(started.ok(path, &permit)["allowed"], false, "{path}");
    }
    let named = json!({"policy": "held", "key": "k", "id": "job 7"});
    let acquired = started.ok("/v1/acquire", &named);
    assert_eq!((&acquired["allowed"], &acquired["id"]), (&json!(true), &json!("job 7")));
    let (status, problem) = started.server.post("/v1/check", &held);
    assert_eq!(status, 400, "{problem}");
}

#[test]
fn each_check_of_a_batch_is_decided_on_its_own_and_in_order() {
    let started = start(&[]);
    let batch = json!({"checks": [
        {"policy": "five", "key": "k", "cost": 4},
        {"policy": "none"},
        {"policy": "five", "key": "k", "cost": 2},
        {"policy": "five", "key": "k", "cost": -1},
        {"policy": "five", "key": "k"},
        {"policy": "shadow"}, {"policy": "shadow"},
    ]});
    let answer = started.ok("/v1/check:batch", &batch);
    let answers = answer["answers"].as_array().unwrap();
    let codes: Vec<_> = answers.iter().map(|answer| answer["code"].as_i64()).collect();
    assert_eq!(codes, [Some(1), Some(0), Some(-1), None, Some(1), Some(1), Some(1)], "{answer}");
    assert_eq!((&answers[1]["status"], &answers[3]["status"]), (&json!(404), &json!(400)));
    let whole = "checks[3]: cost: `-1` is not a whole number 1..=2147483648";
    assert_eq!(answers[3]["detail"], whole);
    assert_eq!(answers[6]["overflow"], "shadow");
    assert_eq!(started.remaining("five", "k"), 0);
}

fn all_or_nothing(started: &Started) {
    let batch = |checks: Value| json!({"checks": checks, "atomic": true});
    let passes = batch(json!([
        {"policy": "ten", "key": "a", "cost": 4}, {"policy": "five", "key": "a", "cost": 5},
    ]));
    let answer = started.ok("/v1/check:batch", &passes);
    assert_eq!((&answer["allowed"], &answer["code"]), (&json!(true), &json!(1)), "{answer}");
    assert_eq!(answer["answers"].as_array().map(Vec::len), Some(2));
    assert_eq!((started.remaining("ten", "a"), started.remaining("five", "a")), (6, 0));

    let refused = started.ok("/v1/check:batch", &passes);
    assert_eq!((&refused["allowed"], &refused["code"]), (&json!(false), &json!(-1)));
    assert_eq!((&refused["refused"], &refused["answers"][0]["code"]), (&json!(1), &json!(-1)));
    assert_eq!(started.remaining("ten", "a"), 6);

    // A peek at each alone finds no refusal: the third is refused when it is charged.
    let twice = batch(json!([
        {"policy": "ten", "key": "b", "cost": 9}, {"policy": "five", "key": "b", "cost": 3},
        {"policy": "five", "key": "b", "cost": 3},
    ]));
    assert_eq!(started.ok("/v1/check:batch", &twice)["refused"], 2);
    assert_eq!((started.remaining("ten", "b"), started.remaining("five", "b")), (10, 5));

    let unsupported = batch(json!([{"policy": "ten", "key": "b"}, {"policy": "held", "key": "b"}]));
    let (status, problem) = started.server.post("/v1/check:batch", &unsupported);
    assert_eq!(status, 400, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("checks[1]: op: ") && detail.ends_with("; nothing was charged"));
    assert_eq!(started.remaining("ten", "b"), 10);
}

#[test]
fn an_atomic_batch_is_charged_as_a_whole_or_not_at_all() {
    let started = start(&[]);
    all_or_nothing(&started);
    let waits = json!({"checks": [{"policy": "queue"}, {"policy": "queue"}], "atomic": true});
    let refused = started.ok("/v1/check:batch", &waits);
    assert_eq!((&refused["allowed"], &refused["refused"]), (&json!(false), &json!(1)));
    let shadow = json!({"checks": [{"policy": "shadow"}, {"policy": "shadow"}], "atomic": true});
    assert_eq!(started.ok("/v1/check:batch", &shadow)["allowed"], true);
}

fn settles(started: &Started, key: &str) {
    let check = json!({"policy": "tokens", "key": key, "cost": 500});
    assert_eq!(started.ok("/v1/check", &check)["allowed"], true);
    let settle = |id: &str, charged: u64, cost: u64| {
        let body = json!({
            "policy": "tokens", "key": key, "id": id, "charged": charged, "cost": cost,
        });
        started.server.post("/v1/settle", &body)
    };
    let done = |answer: &Value| ["refunded", "taken", "missing"].map(|part| answer[part].as_u64());
    let (status, less) = settle("a", 500, 200);
    assert_eq!((status, done(&less)), (200, [Some(300), Some(0), Some(0)]), "{less}");
    assert_eq!(started.remaining("tokens", key), 800);
    for (charged, cost) in [(500, 200), (500, 500), (1, 400)] {
        let (status, problem) = settle("a", charged, cost);
        assert_eq!((status, &problem["status"]), (409, &json!(409)), "{problem}");
        assert_eq!(problem["type"], "urn:sluicegate:problem:settled");
    }
    assert_eq!(started.remaining("tokens", key), 800);
    let (_, more) = settle("b", 500, 1_200);
    assert_eq!(done(&more), [Some(0), Some(700), Some(0)], "{more}");
    let (_, short) = settle("c", 500, 1_000);
    assert_eq!(done(&short), [Some(0), Some(100), Some(400)], "{short}");
    let (_, none) = settle("d", 500, 1_000);
    assert_eq!(done(&none), [Some(0), Some(0), Some(500)], "{none}");
    let (_, same) = settle("e", 500, 500);
    assert_eq!((&same["code"], done(&same)), (&json!(1), [Some(0); 3]), "{same}");
    let (_, free) = settle("f", 500, 0);
    assert_eq!(done(&free), [Some(500), Some(0), Some(0)], "{free}");
    assert_eq!(started.remaining("tokens", key), 500);
}

/// Settles one id eight times at the same moment, on all of `servers` in turn.
fn settle_at_once(servers: &[&Started], key: &str) {
    let check = json!({"policy": "tokens", "key": key, "cost": 900});
    servers[0].ok("/v1/check", &check);
    let settle = json!({"policy": "tokens", "key": key, "id": "same", "charged": 900, "cost": 850});
    let statuses: Vec<u16> = thread::scope(|scope| {
        let settle = &settle;
        let threads: Vec<_> = servers
            .iter()
            .cycle()
            .take(8)
            .map(|started| scope.spawn(move || started.server.post("/v1/settle", settle).0))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 7, "{statuses:?}");
    assert_eq!(servers[0].remaining("tokens", key), 150);
}

#[test]
fn a_settlement_corrects_what_was_charged_once() {
    let started = start(&[]);
    settles(&started, "k");
    settle_at_once(&[&started], "at once");
    let shop = json!({"policy": "shop", "id": "i", "charged": 1, "cost": 0});
    assert_eq!(started.server.post("/v1/settle", &shop).0, 403);
    let held = json!({"policy": "held", "id": "i", "charged": 1, "cost": 2});
    assert_eq!(started.server.post("/v1/settle", &held).0, 400);
}

fn explains(started: &Started) {
    started.ok("/v1/check", &json!({"policy": "two", "key": "k", "cost": 3}));
    let why = started.ok("/v1/explain", &json!({"policy": "two", "key": "k", "cost": 3}));
    assert_eq!((&why["would_charge"], &why["rules_of"]), (&json!(0), &json!("policy")), "{why}");
    assert_eq!((&why["overflow"], &why["decision"]["code"]), (&json!("reject"), &json!(-1)));
    let rules = why["rules"].as_array().unwrap();
    let told = |rule: &Value| {
        let part = |name: &str| rule[name].clone();
        let left = |name: &str| rule["left"][name].clone();
        [part("name"), part("algorithm"), part("limit"), left("remaining"), left("allowed")]
    };
    let burst = [json!("burst"), json!("token_bucket"), json!(5), json!(2), json!(false)];
    let daily = [json!("daily"), json!("sliding_window"), json!(100), json!(97), json!(true)];
    assert_eq!(rules.iter().map(told).collect::<Vec<_>>(), [burst, daily], "{why}");
    assert_eq!(started.remaining("two", "k"), 2);
    let vip = started.ok("/v1/explain", &json!({"policy": "two", "key": "vip"}));
    assert_eq!((&vip["would_charge"], &vip["rules_of"]), (&json!(1), &json!("override")));
    assert_eq!(vip["rules"][0]["left"]["remaining"], 50);
}

#[test]
fn an_explanation_names_every_rule_and_charges_nothing() {
    let started = start(&[]);
    explains(&started);
    let shop = started.ok("/v1/explain", &json!({"policy": "shop", "app": "checkout"}));
    assert_eq!((&shop["apps"], &shop["app"]), (&json!(["checkout"]), &json!("checkout")));
}

#[test]
fn an_explanation_shows_how_long_a_full_budget_admits_a_load() {
    let started = start(&[]);
    started.ok("/v1/check", &json!({"policy": "two", "key": "k", "cost": 5}));
    let of = |policy, at| json!({"policy": policy, "key": "k", "at": at});
    let two = started.ok("/v1/explain", &of("two", "120r/m"));
    let (at, lasts) = ("120/m", 2_500_000);
    let over = json!({"rule": "burst", "full_after_us": 5 * 17_280_000_000_u64 - lasts});
    let expected = json!({"at": at, "admitted": 5, "lasts_us": lasts, "delay_us": 0, "over": over});
    assert_eq!(two["endurance"], expected);
    let soon = started.ok("/v1/explain", &of("soon", "1/min"));
    assert_eq!(soon["endurance"]["over"], Value::Null, "{soon}");
    for without in [of("held", "1/s"), json!({"policy": "two", "key": "k"})] {
        assert_eq!(started.ok("/v1/explain", &without).get("endurance"), None, "{without}");
    }
    for (at, problem) in [
        (json!("5"), "at: invalid rate `5`: expected up to 4294967296 permits"),
        (json!(5), "at: `5` is not a rate (string), such as `500/s`"),
    ] {
        let asked = json!({"policy": "two", "at": at});
        let (status, answer) = started.server.post("/v1/explain", &asked);
        let detail = answer["detail"].as_str().unwrap();
        assert!(status == 400 && detail.starts_with(problem), "{status} {detail}");
    }
    let peek = json!({"policy": "two", "at": "5/s"});
    assert_eq!(started.server.post("/v1/peek", &peek).0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_batches_settlements_and_explanations_are_the_same_for_all_servers() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=5000", redis.url());
    let servers = [(); 2].map(|()| start(&["--store", &url]));
    all_or_nothing(&servers[0]);
    settles(&servers[0], "k");
    settle_at_once(&[&servers[0], &servers[1]], "at once");
    explains(&servers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_store_a_server_settles_nothing_and_explains_what_it_can() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let started = start(&["--store", &format!("{}?deadline_ms=200", redis.url())]);
    redis.kill();
    let settle = json!({"policy": "tokens", "key": "k", "id": "i", "charged": 5, "cost": 1});
    let (status, problem) = started.server.post("/v1/settle", &settle);
    assert_eq!((status, &problem["type"]), (503, &json!("urn:sluicegate:problem:no-store")));
    let why = started.ok("/v1/explain", &json!({"policy": "two", "key": "k"}));
    assert_eq!((&why["decision"]["mode"], why["rules"][0].get("left")), (&json!("local"), None));
}

#[test]
fn a_check_tells_in_its_head_what_is_left_and_when_to_come_again() {
    let started = start(&[]);
    let ten = json!({"policy": "ten", "key": "k", "cost": 7});
    let (status, head, _) = started.check("", &ten);
    assert!(status == 200 && head.contains("\r\nratelimit-policy: \"day\";q=10;w=86400"), "{head}");
    assert!(head.contains("\r\nratelimit: \"day\";r=3;t=60480"), "{head}");
    assert!(!head.contains("retry-after") && !head.contains("x-ratelimit"), "{head}");
    let (status, head, _) = started.check("", &ten);
    assert!(status == 200 && head.contains("\r\nretry-after: 34560"), "{head}");
}

#[test]
fn a_refusal_can_be_asked_for_with_a_status_of_its_own() {
    let started = start(&[]);
    let ten = json!({"policy": "ten", "key": "k", "cost": 7});
    assert_eq!(started.check("?deny=429", &ten).0, 200);
    let (status, head, body) = started.check("?deny=429", &ten);
    assert!(status == 429 && head.contains("content-type: application/problem+json"), "{head}");
    assert!(head.contains("\r\nretry-after: ") && head.contains("\r\nratelimit: "), "{head}");
    let problem: Value = serde_json::from_str(&body).unwrap();
    let quota = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!((&problem["type"], &problem["status"]), (&json!(quota), &json!(429)), "{problem}");
    assert_eq!(problem["violated-policies"], json!(["day"]));
    assert_eq!((&problem["code"], &problem["remaining"]), (&json!(-1), &json!(3)));
    for chosen in [403, 503] {
        let (status, head, body) = started.check(&format!("?deny={chosen}"), &ten);
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &problem["status"]), (chosen, &json!(chosen)), "{body}");
        assert_eq!((&problem["type"], &problem["code"]), (&json!(quota), &json!(-1)));
        assert!(head.contains("\r\nretry-after: "), "{head}");
    }
    for (query, detail) in [
        ("?deny=200", "query: deny: `200` is invalid, expected a status 400..=599"),
        ("?denied=429", "query: unknown parameter, expected `deny=STATUS`"),
    ] {
        let (status, _, body) = started.check(query, &ten);
        assert!(status == 400 && body.contains(detail), "{body}");
    }
    let (status, problem) = started.server.post("/v1/peek?deny=429", &ten);
    assert_eq!(
        (status, &problem["detail"]),
        (400, &json!("query: unknown parameter, expected none"))
    );
}

#[test]
fn an_id_that_is_held_is_not_called_a_cost_above_the_limit() {
    let started = start(&[]);
    let run = json!({"policy": "held", "key": "k", "id": "run"});
    assert_eq!(started.server.post("/v1/acquire?deny=429", &run).0, 200);
    let (status, problem) = started.server.post("/v1/acquire?deny=429", &run);
    let detail = "the id is held, or the cost exceeds the limit of 2";
    assert_eq!((status, &problem["detail"]), (429, &json!(detail)), "{problem}");
}

#[test]
fn which_head_fields_there_are_is_a_setting() {
    let started =
        start(&["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/http.toml")]);
    let (_, head, _) = started.check("", &json!({"policy": "ten", "key": "k"}));
    for field in ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 9", "x-ratelimit-reset: 8640"] {
        assert!(head.contains(field), "{head}");
    }
    assert!(!head.contains("\r\nratelimit"), "{head}");
}

#[test]
fn the_description_is_served() {
    let started = start(&[]);
    let (status, text) = ask(started.server.address, "/v1/openapi.json");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    assert_eq!(status, 200);
    assert!(text == fs::read_to_string(committed).unwrap());
}
