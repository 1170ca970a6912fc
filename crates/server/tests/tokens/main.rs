//! Who may ask a server with a catalog: the real program, on every wire, with tokens of every kind.
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

mod wires;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use sluicegate::{Clock, WallClock};
use sluicegate_control::catalog::{NewToken, Page, State};
use sluicegate_control::identity::{Secret, SecretKind};
use sluicegate_control::{By, Catalog, Scope};
use sluicegate_testkit::until;
use tempfile::TempDir;

/// Longest time a test waits for the program, which answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A catalog with tokens of the apps `shop` and `other`, and the policy `p` of `shop`.
struct Stage {
    folder: TempDir,
    catalog: Catalog,
    /// The secrets of tokens, by what they are.
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
        catalog.create_policy(&by(), "shop", &policy, State::Active).await.unwrap();
        let both = [Scope::Check, Scope::Refund];
        let (good, _) = token(&catalog, "shop", &both, &by()).await;
        let (checks, _) = token(&catalog, "shop", &[Scope::Check], &by()).await;
        let (foreign, _) = token(&catalog, "other", &both, &by()).await;
        // It ended years ago.
        let (ended, _) = token(&catalog, "shop", &both, &By::operator("", 1)).await;
        let (revoked, id) = token(&catalog, "shop", &both, &by()).await;
        catalog.revoke_token(&by(), "shop", &id).await.unwrap();
        Self { folder, catalog, good, checks, foreign, ended, revoked }
    }

    /// A server on this catalog, to whose addresses tokens have to be shown as is said here.
    fn server(&self, tokens_required: &str) -> Server {
        let wires = ["HTTP", "RESP", "RLS"];
        let mut process = Command::new(env!("CARGO_BIN_EXE_sluicegate"))
            .arg("serve")
            .env("SLUICEGATE__CATALOG__URL", url(self.folder.path()))
            .env("SLUICEGATE__CATALOG__KEPT", self.folder.path().join("kept.json"))
            .env("SLUICEGATE__CATALOG__TOKENS_REQUIRED", tokens_required)
            .env("SLUICEGATE__ADMIN__LISTEN", "127.0.0.1:0")
            .envs(wires.map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "127.0.0.1:0")))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        let addresses = said.map(Result::unwrap).map_while(|line| {
            let (scheme, address) = line.strip_prefix("listening on ")?.split_once("://")?;
            Some((scheme.to_owned(), address.parse().unwrap()))
        });
        Server { addresses: addresses.take(4).collect(), process }
    }
}

/// A server on free ports. It ends with this.
struct Server {
    process: Child,
    addresses: Vec<(String, SocketAddr)>,
}

impl Server {
    fn address(&self, scheme: &str) -> SocketAddr {
        self.addresses.iter().find(|(of, _)| of == scheme).expect("it listens").1
    }

    /// What is answered to `sent`, as it is, until the end.
    fn raw(&self, scheme: &str, sent: &str) -> String {
        let mut stream = TcpStream::connect(self.address(scheme)).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        stream.write_all(sent.as_bytes()).expect("the server reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("the server says text");
        said
    }

    /// The status, head and body of a request with these fields.
    fn http(&self, line: &str, fields: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let said = self.raw(
            "http",
            &format!(
                "{line} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{fields}\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        );
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), head.to_lowercase(), body.to_owned())
    }

    /// Tells it to stop, and waits until it has.
    fn stop(&mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn url(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("catalog.db").display())
}

fn now() -> i64 {
    i64::try_from(WallClock.now().get() / 1_000).unwrap()
}

fn by() -> By {
    By::operator("a test", now())
}

/// A new token that ends a minute after it was made: its secret and its id.
async fn token(catalog: &Catalog, app: &str, scopes: &[Scope], by: &By) -> (String, String) {
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
    // A connection that has logged in.
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
    let tokens = stage.catalog.tokens("shop", &Page::default()).await.unwrap();
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
    let request = "GET /metrics HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
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
