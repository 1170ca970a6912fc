//! Access to a server with a catalog: the real program, on every wire, with tokens of every kind.
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

mod file;
mod verbs;
mod wires;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use serde_json::json;
use sluicegate::Clock;
use sluicegate::internals::WallClock;
use sluicegate_control::catalog::{NewToken, Page, PolicyState};
use sluicegate_control::identity::{Secret, SecretKind};
use sluicegate_control::{Catalog, ChangeContext, Scope};
use sluicegate_testkit::until;
use tempfile::TempDir;

use crate::program::program;
use crate::program::{PATIENCE, Process};

/// A catalog with tokens of the apps `shop` and `other`, and the policy `p` of `shop`.
struct Stage {
    folder: TempDir,
    catalog: Catalog,
    /// The secrets of tokens, by their kind.
    good: String,
    checks: String,
    foreign: String,
    ended: String,
    revoked: String,
}

impl Stage {
    async fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = url(folder.path()).parse().unwrap();
        let catalog = Catalog::open(&url).await.unwrap();
        for app in ["shop", "other"] {
            catalog.create_app(&by(), app, "", &[]).await.unwrap();
        }
        let window = json!({ "limit": 1_000, "window": "1h", "align": "first" });
        let rules = json!([{ "fixed_window": window }]);
        let policy = json!({ "name": "p", "apps": ["shop"], "match": { "path": { "prefix": "/" } }, "key": ["remote_ip"], "rules": rules });
        catalog.create_policy(&by(), "shop", &policy, PolicyState::Active).await.unwrap();
        let both = [Scope::Check, Scope::Refund];
        let (good, _) = token(&catalog, "shop", &both, &by()).await;
        let (checks, _) = token(&catalog, "shop", &[Scope::Check], &by()).await;
        let (foreign, _) = token(&catalog, "other", &both, &by()).await;
        // It expired years ago.
        let (ended, _) = token(&catalog, "shop", &both, &ChangeContext::operator("", 1)).await;
        let (revoked, id) = token(&catalog, "shop", &both, &by()).await;
        catalog.revoke_token(&by(), "shop", &id).await.unwrap();
        Self { folder, catalog, good, checks, foreign, ended, revoked }
    }

    /// A server on this catalog, with this `catalog.tokens_required`.
    fn server(&self, tokens_required: &str) -> Server {
        self.server_with(tokens_required, &[])
    }

    /// Like [`server`](Self::server), with more environment variables.
    fn server_with(&self, tokens_required: &str, more: &[(&str, &str)]) -> Server {
        let wires = ["HTTP", "RESP", "RLS"];
        let mut program = program();
        program
            .arg("serve")
            .env("SLUICEGATE__CATALOG__URL", url(self.folder.path()))
            .env("SLUICEGATE__CATALOG__KEPT", self.folder.path().join("kept.json"))
            .env("SLUICEGATE__CATALOG__TOKENS_REQUIRED", tokens_required)
            .env("SLUICEGATE__ADMIN__LISTEN", "127.0.0.1:0")
            .envs(wires.map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "127.0.0.1:0")))
            .envs(more.iter().copied())
            .stderr(Stdio::null());
        Server { process: Process::start(&mut program, 4) }
    }
}

/// A server on free ports. It ends when this is dropped.
struct Server {
    process: Process,
}

impl Server {
    fn address(&self, scheme: &str) -> SocketAddr {
        self.process.address(scheme)
    }

    /// Sends `sent` unchanged, and returns all bytes until the connection ends.
    fn raw(&self, scheme: &str, sent: &str) -> String {
        let mut stream = TcpStream::connect(self.address(scheme)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        stream.write_all(sent.as_bytes()).expect("the server reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("the server says text");
        said
    }

    /// The status, head and body of the answer to a request with these header fields.
    fn http(&self, line: &str, fields: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let said = self.raw(
            "http",
            &format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{fields}\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        );
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), head.to_lowercase(), body.to_owned())
    }

    /// Stops it, and waits for its end.
    fn stop(&mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait().unwrap().success());
    }
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("catalog.db").display())
}

fn now() -> i64 {
    i64::try_from(WallClock.now().get() / 1_000).unwrap()
}

fn by() -> ChangeContext {
    ChangeContext::operator("a test", now())
}

/// The context of a change that is made in spite of warnings.
fn forced() -> ChangeContext {
    ChangeContext { force: true, ..by() }
}

/// A new token that expires a minute after it was made: its secret and its id.
async fn token(
    catalog: &Catalog,
    app: &str,
    scopes: &[Scope],
    by: &ChangeContext,
) -> (String, String) {
    let secret = Secret::new(SecretKind::Token);
    let (name, hash) = (secret.hash()[..8].to_owned(), secret.hash());
    let new = NewToken { name: &name, scopes, expires_at: by.at + 60_000, hash: &hash };
    let made = catalog.create_token(by, app, new).await.unwrap();
    (secret.expose().to_owned(), made.id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_made_holds_within_a_second_and_one_that_is_revoked_no_longer() {
    let stage = Stage::set().await;
    let server = stage.server("always");
    let (secret, id) = token(&stage.catalog, "shop", &[Scope::Check], &by()).await;
    let status = || {
        let field = format!("authorization: Bearer {secret}\r\n");
        server.http("POST /v1/check", &field, r#"{"policy":"p"}"#).0
    };
    // A connection that has authenticated.
    let mut resp = TcpStream::connect(server.address("resp")).unwrap();
    resp.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut ask = |line: &str| {
        resp.write_all(format!("{line}\r\n").as_bytes()).expect("the server reads");
        let mut said = vec![0; 512];
        let bytes = resp.read(&mut said).expect("the server answers");
        String::from_utf8_lossy(&said[..bytes]).into_owned()
    };
    let is = |expected| (status() == expected).then_some(());
    until("the token is good", PATIENCE, async || is(200)).await.unwrap();
    assert_eq!(ask(&format!("AUTH shop {secret}")), "+OK\r\n");
    assert!(ask("SG.CHECK p k").starts_with("*8\r\n:1\r\n"));
    stage.catalog.revoke_token(&by(), "shop", &id).await.unwrap();
    until("the token is good no longer", PATIENCE, async || is(401)).await.unwrap();
    assert!(ask("SG.CHECK p k").starts_with("-NOAUTH "), "the connection goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_learns_which_tokens_are_used() {
    let stage = Stage::set().await;
    let begin = now();
    let mut server = stage.server("remote");
    let field = format!("authorization: Bearer {}\r\n", stage.checks);
    assert_eq!(server.http("POST /v1/check", &field, r#"{"policy":"p"}"#).0, 200);
    server.stop();
    let tokens = stage.catalog.tokens("shop", &Page::default(), 0).await.unwrap();
    let used: Vec<_> = tokens.iter().filter_map(|token| token.used_at).collect();
    let [at] = used[..] else { panic!("one was used: {tokens:?}") };
    assert!(at > begin - 60_000 && at <= now(), "{at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_counted_without_a_word_of_who_asked() {
    let stage = Stage::set().await;
    let server = stage.server("always");
    let check = |secret: &str| {
        let field = format!("authorization: Bearer {secret}\r\n");
        server.http("POST /v1/check", &field, r#"{"policy":"p"}"#).0
    };
    assert_eq!((check("who-am-i"), check(&stage.good)), (401, 200));
    assert!(server.raw("resp", "AUTH who-am-i\r\nPING\r\nQUIT\r\n").starts_with("-WRONGPASS"));
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let metrics = server.raw("admin", request);
    for sample in [
        r#"sluicegate_callers_refused_total{wire="http",reason="unknown"} 1"#,
        r#"sluicegate_callers_refused_total{wire="resp",reason="unknown"} 1"#,
        r#"sluicegate_callers_refused_total{wire="resp",reason="missing"} 1"#,
        r#"sluicegate_callers_refused_total{wire="rls",reason="scope"} 0"#,
    ] {
        assert!(metrics.lines().any(|line| line == sample), "{sample}: {metrics}");
    }
    assert!(!metrics.contains("who-am-i") && !metrics.contains("sgt_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_guards_requests_of_one_app_does_not_hold_up_those_of_another() {
    let stage = Stage::set().await;
    let window = json!({ "limit": 1, "window": "1h", "align": "first" });
    // Every app may name this policy, but gateways of other apps than its owner did not ask for it.
    let policy = json!({ "name": "all", "apps": ["*"], "key": ["remote_ip"], "match": { "path": { "prefix": "/" } }, "rules": [{ "fixed_window": window }] });
    stage.catalog.create_policy(&forced(), "shop", &policy, PolicyState::Active).await.unwrap();
    let server = stage.server("always");
    let asked = |secret: &str, path: &str| {
        let fields = format!(
            "x-sluicegate-token: {secret}\r\nx-original-uri: /\r\nx-original-method: GET\r\n"
        );
        server.http(&format!("GET /v1/auth{path}"), &fields, "").0
    };
    assert_eq!([asked(&stage.good, ""), asked(&stage.good, "")], [200, 429]);
    assert_eq!([asked(&stage.foreign, ""), asked(&stage.foreign, "")], [200, 200]);
    assert_eq!(asked(&stage.foreign, "/all"), 429, "who names it takes from it");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_policy_of_a_neighbour_touches_the_gateway_of_another_app() {
    let stage = Stage::set().await;
    let guarding = |name: &str, limit: u32| {
        let window = json!({ "limit": limit, "window": "1d", "align": "first" });
        json!({ "name": name, "match": { "path": { "prefix": "/" } }, "rules": [{ "fixed_window": window }] })
    };
    for n in 0..17 {
        let policy = guarding(&format!("n{n}"), 1);
        stage.catalog.create_policy(&by(), "other", &policy, PolicyState::Shadow).await.unwrap();
    }
    let all = json!({ "apps": ["*"] });
    let mut stern = guarding("stern", 1);
    stern["apps"] = all["apps"].clone();
    stage.catalog.create_policy(&forced(), "other", &stern, PolicyState::Active).await.unwrap();
    let fields = "x-original-uri: /\r\nx-original-method: GET\r\n";
    let server = stage.server("remote");
    let ask = |query: &str| server.http(&format!("GET /v1/auth{query}"), fields, "");
    for _ in 0..3 {
        assert_eq!(ask("?app=shop").0, 200);
    }
    assert_eq!([ask("?app=other").0, ask("?app=other").0], [200, 429]);
    let (status, _, body) = ask("");
    assert_eq!(status, 500);
    for remedy in ["app=NAME", "X-Sluicegate-Token", "http.app"] {
        assert!(body.contains(remedy), "{remedy}: {body}");
    }
    // Even an app's own policies may be too many: the first 16 are decided.
    for n in 0..17 {
        let policy = guarding(&format!("own{n:02}"), if n == 15 { 1 } else { 1_000 });
        stage.catalog.create_policy(&forced(), "shop", &policy, PolicyState::Active).await.unwrap();
    }
    let refuses = || (ask("?app=shop").0 == 429).then_some(());
    until("all are in force", PATIENCE, async || refuses()).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let metrics = server.raw("admin", request);
    let count = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    assert_eq!(count(r#"sluicegate_callers_refused_total{wire="http",reason="no_app"}"#), 1);
    assert!(count("sluicegate_forward_auth_policies_left_out_total") > 0, "{metrics}");
    let named = stage.server_with("remote", &[("SLUICEGATE__HTTP__APP", "other")]);
    let status = || named.http("GET /v1/auth", fields, "").0;
    assert_eq!([status(), status()], [200, 429]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_used_of_a_neighbours_policy_can_be_neither_read_nor_used_up_nor_given_back() {
    let stage = Stage::set().await;
    let window = json!({ "limit": 5, "window": "1d", "align": "first" });
    for (name, apps) in [("own", json!({})), ("all", json!({ "apps": ["*"] }))] {
        let mut policy = apps;
        policy["name"] = name.into();
        policy["rules"] = json!([{ "fixed_window": window }]);
        stage.catalog.create_policy(&forced(), "shop", &policy, PolicyState::Active).await.unwrap();
    }
    let server = stage.server("always");
    let ask = |secret: &str, verb: &str, policy: &str, more: &str| {
        let field = format!("authorization: Bearer {secret}\r\n");
        let body = format!(r#"{{"policy":"{policy}","key":"alice"{more}}}"#);
        let (status, _, body) = server.http(&format!("POST /v1/{verb}"), &field, &body);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        (status, body["code"].as_i64(), body["remaining"].as_u64())
    };
    let settle = r#","id":"i","charged":2,"cost":1"#;
    for policy in ["own", "all"] {
        assert_eq!(ask(&stage.good, "check", policy, r#","cost":5"#), (200, Some(1), Some(0)));
        let verbs = [("refund", ""), ("reset", ""), ("settle", settle)];
        for (verb, more) in verbs {
            assert_eq!(ask(&stage.foreign, verb, policy, more), (403, Some(0), None), "{verb}");
        }
        for verb in ["check", "peek"] {
            let (status, ..) = ask(&stage.foreign, verb, policy, "");
            assert_eq!(status, if policy == "own" { 403 } else { 200 }, "{verb} {policy}");
        }
        assert_eq!(ask(&stage.good, "peek", policy, "").2, Some(0), "nothing came back");
        assert_eq!(ask(&stage.good, "settle", policy, settle).0, 200);
        assert_eq!(ask(&stage.good, "reset", policy, ""), (200, Some(1), Some(5)));
    }
    // A refused batch returns the permits that it took, also those of a policy that the token may not refund.
    let checks =
        r#"{"atomic":true,"checks":[{"policy":"all","key":"b"},{"policy":"own","key":"b"}]}"#;
    let field = format!("authorization: Bearer {}\r\n", stage.foreign);
    assert_eq!(server.http("POST /v1/check:batch", &field, checks).0, 403);
    let left = server.http("POST /v1/peek", &field, r#"{"policy":"all","key":"b"}"#).2;
    assert!(left.contains(r#""remaining":5"#), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_callers_bring_along_are_their_apps_own() {
    let stage = Stage::set().await;
    // Such limits are enforced in known domains.
    let known = stage.folder.path().join("descriptors.yaml");
    std::fs::write(&known, "domains: [ d ]\ndescriptors: []\n").expect("it can be written");
    let known = known.to_str().expect("a path of the test");
    let server = stage.server_with("always", &[("SLUICEGATE__RLS__DESCRIPTORS", known)]);
    let descriptors = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"limit":{"requestsPerUnit":1,"unit":"HOUR"}}]}"#;
    for secret in [&stage.good, &stage.foreign] {
        let throttle = || {
            let said =
                server.raw("resp", &format!("AUTH {secret}\r\nCL.THROTTLE k 0 1 3600\r\nQUIT\r\n"));
            said.starts_with("+OK\r\n*5\r\n:0\r\n")
        };
        assert_eq!([throttle(), throttle()], [true, false]);
        let field = format!("authorization: Bearer {secret}\r\n");
        let descriptor = || server.http("POST /json", &field, descriptors).0;
        assert_eq!([descriptor(), descriptor()], [200, 429]);
    }
}
