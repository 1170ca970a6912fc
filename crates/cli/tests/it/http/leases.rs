//! A server that leases permits of hot keys from its Redis.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};
use sluicegate_testkit::{Options, RedisServer, need, until};
use tempfile::TempDir;

use super::{PATIENCE, Server, signal};

/// Requests for a hot key: leases promise one call in 96 of them.
const ASKS: usize = 1_000;

/// Most calls that they may take on a machine that is busy with other tests: a tenth.
const CALLS_MAX: u64 = 100;

const POLICIES: &str = "policies:
  - { name: hot, rules: [ { token_bucket: { rate: 2000/s, burst: 2000 } } ] }
  - { name: daily, rules: [ { fixed_window: { limit: 100000, window: 1d } } ] }
  - { name: central, rules: [ { token_bucket: { rate: 2000/s, burst: 2000 } } ], leases: off }
  - { name: small, rules: [ { token_bucket: { rate: 5/s } } ] }
";

/// Servers with the policies above.
struct Stage {
    folder: TempDir,
    redis: RedisServer,
}

impl Stage {
    fn new(redis: RedisServer) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.yaml"), POLICIES).unwrap();
        Self { folder, redis }
    }

    fn start(&self, config: &str) -> Server {
        let path = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("sluicegate.toml"), config).unwrap();
        let url = format!("{}?deadline_ms=5000", self.redis.url());
        let options = ["--config", &path("sluicegate.toml"), "--store", &url];
        let told = fs::File::create(path("told")).unwrap();
        Server::spawn(&path("policies.yaml"), &options, Stdio::from(told))
    }

    fn told(&self) -> String {
        fs::read_to_string(self.folder.path().join("told")).unwrap()
    }

    /// Number of script calls in Redis.
    async fn calls(&self) -> u64 {
        let stats = self.redis.cli(&["INFO", "commandstats"]).await.expect("it answers").text();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        let calls = calls.and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    }
}

/// Sends `count` checks over one connection, and returns the decisions.
fn checks(server: &Server, policy: &str, count: usize) -> Vec<Value> {
    let stream = TcpStream::connect(server.address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = json!({"policy": policy, "key": "k"}).to_string();
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut ask = || {
        (&stream).write_all(request.as_bytes()).expect("the server reads");
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("the server answers");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        serde_json::from_slice(&body).expect("a decision")
    };
    (0..count).map(|_| ask()).collect()
}

fn leased(decisions: &[Value]) -> usize {
    decisions.iter().filter(|decision| decision["mode"] == "leased").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_keys_are_decided_with_few_calls_unless_their_policy_or_the_server_is_set_otherwise() {
    let stage = Stage::new(need!(RedisServer::start(Options::default()).await));
    let server = stage.start("");
    let before = stage.calls().await;
    let decisions = checks(&server, "hot", ASKS);
    let calls = stage.calls().await - before;
    assert!(calls <= CALLS_MAX, "{calls} calls for {ASKS} asks");
    let leased_here = leased(&decisions);
    assert!(leased_here >= ASKS * 9 / 10, "{leased_here} of {ASKS} are leased");
    for decision in decisions.iter().filter(|decision| decision["mode"] == "leased") {
        assert!(decision["as_of_us"].as_u64().is_some_and(|age| age < 3_000_000), "{decision}");
        assert!(decision["remaining"].as_u64().is_some_and(|left| left < 2_000), "{decision}");
    }
    let (_, metrics) = super::ask(server.admin, "/metrics");
    let counted = metrics.lines().find(|line| {
        line.starts_with("sluicegate_decisions_total{")
            && line.contains("mode=\"leased\"")
            && line.contains("policy=\"hot\"")
            && !line.ends_with(" 0")
    });
    assert!(counted.is_some_and(|line| line.ends_with(&format!(" {leased_here}"))), "{counted:?}");
    let lease = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.expect("it is there").trim().parse::<u64>().expect("a number")
    };
    assert_eq!(lease("sluicegate_lease_keys "), 1);
    assert!(lease("sluicegate_lease_messages_total{kind=\"first\",outcome=\"answered\"}") >= 1);
    let fate = |what| lease(&format!("sluicegate_lease_permits_total{{what=\"{what}\"}}"));
    assert!(fate("granted") >= leased_here as u64 && fate("spent") > 0, "{metrics}");
    assert_eq!((fate("void"), lease("sluicegate_lease_repairs_total ")), (0, 0));
    let central = checks(&server, "central", 50);
    assert_eq!(leased(&central), 0);
    assert!(central.iter().all(|decision| decision.get("as_of_us").is_none()));

    let without = stage.start("[store]\nleases = false");
    assert_eq!(leased(&checks(&without, "hot", 50)), 0);
    assert!(!stage.told().contains("store.leases"), "{}", stage.told());
    let by_its_own_clock = stage.start("[store]\ntime_source = \"client\"");
    assert_eq!(leased(&checks(&by_its_own_clock, "daily", 50)), 0);
    assert!(stage.told().contains("store.leases: off"), "{}", stage.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_what_is_leased_and_why_a_policy_never_is() {
    let stage = Stage::new(need!(RedisServer::start(Options::default()).await));
    let servers = [(); 2].map(|()| stage.start("[admin]\nkeys = \"clear\""));
    for server in &servers {
        assert!(leased(&checks(server, "daily", 50)) > 0);
    }
    let (_, seen) = super::ask(servers[0].admin, "/v1/leases");
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let [lease] = seen["leases"].as_array().expect("a list").as_slice() else { panic!("{seen}") };
    assert_eq!((&lease["policy"], &lease["key"]), (&json!("daily"), &json!("k")), "{seen}");
    assert!(lease["rate"].as_u64().is_some_and(|rate| rate > 0), "{seen}");
    let (_, policies) = super::ask(servers[0].admin, "/v1/policies");
    let policies: Value = serde_json::from_str(&policies).unwrap();
    let statuses = json!({
        "central": "off", "daily": "max_share 5%, term 2s", "hot": "max_share 5%, term 2s",
        "small": "never: limit 5 is below 160",
    });
    assert_eq!(policies["leases"], statuses);

    let explain = |policy| servers[0].post("/v1/explain", &json!({"policy": policy, "key": "k"})).1;
    assert_eq!(explain("small")["leases"], json!({"status": "never: limit 5 is below 160"}));
    assert_eq!(explain("central")["leases"], json!({"status": "off"}));
    // Requests continue until both have permits: idle leases end soon.
    let both = || {
        servers.iter().for_each(|server| _ = checks(server, "daily", 20));
        let leases = explain("daily")["leases"].take();
        let has_left = leases["left"].as_u64().is_some_and(|left| left > 0);
        (leases["holders"] == 2 && has_left && leases["out"].as_u64() > leases["left"].as_u64())
            .then_some(leases)
    };
    let leases = until("both hold permits", PATIENCE, async || both()).await.expect("they do");
    assert_eq!(leases["status"], "max_share 5%, term 2s");
    let told = crate::program::program()
        .args(["explain", "daily", "k"])
        .env("SLUICEGATE_URL", format!("http://{}", servers[0].address))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("\nleases: max_share 5%, term 2s; "), "{told}");

    let in_memory = Server::start();
    let (_, policies) = super::ask(in_memory.admin, "/v1/policies");
    assert!(!policies.contains("leases"), "{policies}");
    assert_eq!(super::ask(in_memory.admin, "/v1/leases").1, r#"{"leases":[]}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_gives_its_permits_back() {
    let stage = Stage::new(need!(RedisServer::start(Options::default()).await));
    let mut server = stage.start("");
    let asks = 300;
    assert!(leased(&checks(&server, "daily", asks)) > asks / 2);
    signal(&server);
    assert!(server.process.wait().expect("it stops").success());
    // Permits that are not returned count as used, even after the lease ends.
    let (_, peeked) = stage.start("").post("/v1/peek", &json!({"policy": "daily", "key": "k"}));
    assert_eq!(peeked["remaining"], 100_000 - asks, "{peeked}");
}
