//! `/metrics`: its content, and that Prometheus can parse it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sluicegate_testkit::{TlsFiles, need, until};

use super::{PATIENCE, Server, raw, tool};
use crate::program::{Process, serve};

/// Longest time until a server that has stopped is no longer counted: less than a silent one counts.
const LEAVE_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

const OPEN_METRICS: &str = "accept: application/openmetrics-text; version=1.0.0\r\n";

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// Sends requests on every wire.
async fn ask_everywhere(server: &Server) {
    for _ in 0..3 {
        server.check("login", "ann", "");
        server.rate_limit("login", "cid", None).await;
        server.check("shade", "ann", "");
    }
    let commands = "SG.CHECK login bob\r\n".repeat(4) + "SG.PEEK login bob\r\nQUIT\r\n";
    server.raw("resp", &commands);
    server.raw("resp", "CL.THROTTLE mine 1 1 3600\r\nSG.CHECK nope bob\r\nQUIT\r\n");
    server.check("what\n\"nobody} knows", "ann", "");
}

/// Every sample, as it is written, with its value.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name, value.parse().expect("a number"))
    });
    samples.collect()
}

#[tokio::test]
async fn what_was_decided_on_every_wire_is_what_is_counted() {
    let server = Server::start();
    ask_everywhere(&server).await;
    let (head, text) = server.see("/metrics", "");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let samples = samples(&text);
    let mut decisions: Vec<_> = samples
        .iter()
        .filter_map(|(name, count)| {
            let labels = name.strip_prefix("sluicegate_decisions_total{")?.strip_suffix('}')?;
            Some(format!("{labels} {count}"))
        })
        .collect();
    decisions.sort_unstable();
    let decided = |policy: &str, wire: &str, result: &str, mode: &str, count: u32| {
        format!(r#"policy="{policy}",wire="{wire}",result="{result}",mode="{mode}" {count}"#)
    };
    assert_eq!(
        decisions,
        [
            decided("(caller)", "resp", "allowed", "store", 1),
            decided("(unknown)", "http", "error", "none", 1),
            decided("(unknown)", "resp", "error", "none", 1),
            decided("login", "http", "allowed", "store", 2),
            decided("login", "http", "refused", "store", 1),
            decided("login", "resp", "allowed", "store", 2),
            decided("login", "resp", "refused", "store", 2),
            decided("login", "rls", "allowed", "store", 2),
            decided("login", "rls", "refused", "store", 1),
            decided("shade", "http", "allowed", "store", 1),
            decided("shade", "http", "shadowed", "store", 2),
        ]
    );
    for (name, value) in [
        (r#"sluicegate_operations_total{wire="resp",operation="peek"}"#, 1.0),
        (r#"sluicegate_decision_errors_total{wire="http",reason="unknown_policy"}"#, 1.0),
        (r#"sluicegate_connections_accepted_total{wire="resp"}"#, 2.0),
        (r#"sluicegate_connections_accepted_total{wire="http"}"#, 7.0),
        (r#"sluicegate_connections_open{wire="admin"}"#, 1.0),
        ("sluicegate_store_keys", 5.0),
        ("sluicegate_store_breaker_open", 0.0),
        ("sluicegate_policies", 2.0),
        ("sluicegate_policies_version", 1.0),
        ("sluicegate_policies_last_reload_successful", 1.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    let timed = samples[r#"sluicegate_decision_duration_seconds_count{wire="http"}"#];
    assert!((1.0..=7.0).contains(&timed), "{timed}");
    assert!(!text.contains("ann") && !text.contains("nobody") && !text.contains("bob"), "{text}");
}

#[tokio::test]
async fn prometheus_own_lint_has_nothing_to_say() {
    let mut promtool = need!(tool("promtool"));
    let server = Server::start();
    ask_everywhere(&server).await;
    let (_, text) = server.see("/metrics", "");
    let mut lint = promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is installed");
    let mut stdin = lint.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    let said = lint.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && told.is_empty(), "{told}");
}

/// A Prometheus that scrapes a server.
struct Prometheus {
    process: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Prometheus {
    fn start(mut program: Command, server: &Server) -> Self {
        let config = server.folder.path().join("prometheus.yml");
        let admin = server.address("admin");
        let text = format!(
            "global: {{ scrape_interval: 200ms }}\nrule_files: ['{DEPLOY}/prometheus/alerts.yml']\n\
             scrape_configs: [ {{ job_name: sluicegate, static_configs: [ {{ targets: ['{admin}'] }} ] }} ]\n"
        );
        std::fs::write(&config, text).expect("it can be written");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = free.local_addr().expect("it is bound").to_string();
        drop(free);
        let process = program
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", server.folder.path().join("tsdb").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--log.level=error"])
            .stderr(Stdio::inherit())
            .spawn()
            .expect("it is installed");
        Self { process, address }
    }

    /// The answer to `query`; `None` while Prometheus does not answer.
    fn query(&self, query: &str) -> Option<Value> {
        let output = Command::new("curl")
            .args(["-s", "-G", "--data-urlencode", &format!("query={query}")])
            .arg(format!("http://{}/api/v1/query", self.address))
            .output()
            .expect("curl is installed");
        serde_json::from_slice(&output.stdout).ok()
    }
}

/// Every PromQL query of the dashboard, with its variables filled in.
fn of_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(format!("{DEPLOY}/grafana/sluicegate.json"));
    let dashboard: Value = serde_json::from_str(&text.expect("it is there")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("there are panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| {
        let query = target["expr"].as_str().expect("every target has an expression");
        query.replace("$__rate_interval", "1m").replace("$policy", ".*").replace("$instance", ".*")
    });
    queries.collect()
}

/// All queries of the dashboard and of the alerts.
fn queries() -> String {
    let alerts = std::fs::read_to_string(format!("{DEPLOY}/prometheus/alerts.yml"));
    of_dashboard().join("\n") + &alerts.expect("the alerts are there")
}

/// The names of our metrics in `text`.
fn names(text: &str) -> Vec<&str> {
    let is_part = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
    let words = text.split(|char: char| !is_part(char));
    words.filter(|word| word.starts_with("sluicegate_") || word.starts_with("process_")).collect()
}

#[tokio::test]
async fn prometheus_reads_the_newer_format_and_every_query_of_the_dashboard() {
    let prometheus = need!(tool("prometheus"));
    let server = Server::start();
    ask_everywhere(&server).await;
    let (head, text) = server.see("/metrics", OPEN_METRICS);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let prometheus = Prometheus::start(prometheus, &server);
    let sum = r#"sum(sluicegate_decisions_total{policy="login"})"#;
    let scraped = async || {
        let said = prometheus.query(sum)?;
        (said["data"]["result"][0]["value"][1] == "10").then_some(())
    };
    until("Prometheus has read the counts", PATIENCE, scraped).await.expect("it reads them");
    for query in of_dashboard() {
        let said = prometheus.query(&query).expect("it answers");
        assert_eq!(said["status"], "success", "{query}: {said}");
    }
    let queries = queries();
    // Other tests check the metrics of a catalog, of files and of a store on another machine.
    let elsewhere = ["sluicegate_catalog_", "sluicegate_certificate_", "sluicegate_snapshot_"];
    let is_here =
        |name: &&str| !of_redis(name) && !elsewhere.iter().any(|prefix| name.starts_with(prefix));
    let here = names(&queries).into_iter().filter(is_here);
    for name in here {
        let said = prometheus.query(&format!("count({name})")).expect("it answers");
        assert_ne!(said["data"]["result"], serde_json::json!([]), "there is no `{name}`");
    }
}

/// Returns whether `text` has a sample of the metric `name`.
fn has_sample(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
    })
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_alerts_is_served() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let TlsFiles { server_cert: cert, server_key: key, .. } =
        TlsFiles::write(folder.path()).expect("they can be written");
    let at = |name: &str| folder.path().join(name);
    let (catalog, kept, snapshot) = (at("catalog.db"), at("kept.json"), at("counters.snap"));
    let config = format!(
        "[catalog]\nurl = 'sqlite:{}'\nkept = {kept:?}\n[store]\nsnapshot = {snapshot:?}\n\
         [http.tls]\ncert = {cert:?}\nkey = {key:?}\n",
        catalog.display()
    );
    let server = Process::start(serve(&folder, &config).stderr(Stdio::null()), 4);
    let get = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let text = raw(server.address("admin"), get);
    let queries = queries();
    // A histogram has no sample without a decision, and the next test checks stores on Redis.
    let wanted: Vec<_> = names(&queries).into_iter().filter(|name| !of_redis(name)).collect();
    assert!(wanted.len() > 20, "{wanted:?}");
    for name in wanted {
        assert!(
            has_sample(&text, name) || name.starts_with("sluicegate_decisions_"),
            "there is no `{name}`"
        );
    }
}

#[test]
fn every_alert_links_to_its_section_of_the_runbook_and_every_section_is_of_an_alert() {
    let read = |path: &str| {
        std::fs::read_to_string(format!("{DEPLOY}/{path}")).expect("it is in the repository")
    };
    let (alerts, tests) = (read("prometheus/alerts.yml"), read("prometheus/alerts_test.yml"));
    let after = |text: &str, prefix: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(prefix));
        lines.map(str::to_owned).collect()
    };
    let names = after(&alerts, "- alert: ");
    let runbook = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbook.md");
    let urls = names.iter().map(|name| format!("{runbook}#{}", name.to_lowercase()));
    assert_eq!(after(&alerts, "runbook_url: "), urls.collect::<Vec<_>>());
    let mut sections = after(&read("../docs/runbook.md"), "## Sluicegate");
    let mut expected: Vec<_> =
        names.iter().map(|name| name.trim_start_matches("Sluicegate").to_owned()).collect();
    sections.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sections, expected);
    let page = read("../docs/operations.md");
    for name in &names {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in docs/operations.md");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
    }
}

fn of_redis(name: &str) -> bool {
    let is_of_leases = name.starts_with("sluicegate_lease_");
    let mut of_stores = [
        "request_duration",
        "errors",
        "timeouts",
        "unknown",
        "reconnects",
        "calls",
        "forgotten",
        "nodes",
    ]
    .iter();
    is_of_leases || of_stores.any(|what| name.starts_with(&format!("sluicegate_store_{what}")))
}

#[tokio::test]
async fn a_store_on_redis_is_counted_also_when_it_is_gone() {
    let mut redis =
        need!(sluicegate_testkit::RedisServer::start(sluicegate_testkit::Options::default()).await);
    // A machine that is behind itself loses no answer.
    let url = format!("redis://{}?deadline_ms=1000", redis.address());
    let server = Server::start_with(&["--store", &url], Stdio::null());
    server.check("login", "ann", "");
    let (_, text) = server.see("/metrics", "");
    let before = samples(&text);
    assert_eq!(before["sluicegate_store_request_duration_seconds_count"], 1.0);
    assert_eq!(before[r#"sluicegate_decision_duration_seconds_count{wire="http"}"#], 1.0);
    redis.kill();
    for _ in 0..20 {
        server.check("login", "ann", "");
    }
    let (_, text) = server.see("/metrics", "");
    let after = samples(&text);
    assert_eq!(after["sluicegate_store_breaker_open"], 1.0);
    let errors: f64 = ["no", "perhaps"]
        .map(|executed| {
            after[&*format!(r#"sluicegate_store_errors_total{{executed="{executed}"}}"#)]
        })
        .iter()
        .sum();
    // With the one answer before, this many failures open the breaker.
    assert!(errors >= 4.0, "{text}");
    let decided = |mode| {
        let of = |result| {
            let labels = r#"policy="login",wire="http""#;
            format!(r#"sluicegate_decisions_total{{{labels},result="{result}",mode="{mode}"}}"#)
        };
        let counted = |result| after.get(&*of(result)).copied().unwrap_or_default();
        counted("allowed") + counted("refused")
    };
    // A server that is behind itself sheds a request before it takes the store for gone.
    assert_eq!(decided("local") + decided("shed"), 20.0, "{text}");
    assert!(decided("local") >= 15.0, "{text}");
    let (queries, here) = (queries(), names(&text));
    for name in names(&queries).into_iter().filter(|name| of_redis(name)) {
        assert!(here.contains(&name), "there is no `{name}`");
    }
}

#[tokio::test]
async fn errors_of_one_key_are_counted_and_logged_once_with_the_policy() {
    let redis =
        need!(sluicegate_testkit::RedisServer::start(sluicegate_testkit::Options::default()).await);
    let url = format!("redis://{}?deadline_ms=5000", redis.address());
    let folder = tempfile::tempdir().expect("there is room for files");
    let log = folder.path().join("log");
    let told = std::fs::File::create(&log).expect("it can be written");
    let server = Server::start_with(&["--store", &url], Stdio::from(told));
    server.check("login", "zoe7", "");
    let found = redis.cli(&["KEYS", "sg:{??????????????????????}"]).await.expect("it answers");
    let [key] = found.list() else { panic!("one state: {found:?}") };
    let key = key.text();
    redis.cli(&["APPEND", &key, "junk"]).await.expect("it answers");
    for _ in 0..5 {
        server.check("login", "zoe7", "");
        server.check("login", "bob", "");
    }
    let (_, text) = server.see("/metrics", "");
    let seen = samples(&text);
    assert_eq!(seen["sluicegate_store_key_errors_total"], 5.0, "{key}: {text}");
    assert_eq!(seen["sluicegate_store_breaker_open"], 0.0, "others are decided");
    let log = std::fs::read_to_string(&log).expect("it is text");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("error of a key")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("of policy `login`: the script cannot read"), "{log}");
    assert!(!log.contains("zoe7"), "keys are not logged: {log}");
}

#[tokio::test]
async fn a_server_that_stops_is_no_longer_counted_by_the_others() {
    let redis =
        need!(sluicegate_testkit::RedisServer::start(sluicegate_testkit::Options::default()).await);
    let url = format!("redis://{}", redis.address());
    let [stays, mut stops] = [0, 1].map(|_| Server::start_with(&["--store", &url], Stdio::null()));
    let counts = async |live: f64| {
        let counted = async || {
            let (_, text) = stays.see("/metrics", "");
            let now = samples(&text);
            (now["sluicegate_store_nodes"] == live && now["sluicegate_store_nodes_live"] == live)
                .then_some(())
        };
        // A server that is silent counts for at least 15 s.
        until("the servers are counted", LEAVE_WAIT_MAX, counted).await.expect("they are");
    };
    counts(2.0).await;
    stops.process.signal("TERM");
    assert!(stops.process.wait().expect("it ends").success());
    counts(1.0).await;
}

#[test]
fn the_alerts_are_sound_and_fire_when_they_should() {
    need!(tool("promtool"));
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let said = Command::new("promtool")
            .args(arguments)
            .current_dir(format!("{DEPLOY}/prometheus"))
            .output()
            .expect("it is installed");
        let told = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{arguments:?}: {told}");
    }
}
