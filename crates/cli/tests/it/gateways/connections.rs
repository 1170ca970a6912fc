//! Permits that gateways hold for the time of a request: as many at once as a `concurrency` rule permits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use sluicegate_import::{ImportSource, import};
use sluicegate_testkit::{Error, Options, Port, Program, RedisServer, need};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::client::{Call, get, probe, send};
use super::stage::{Places, Server, changed, example, root};
use super::{PATIENCE, envoy, haproxy, nginx, soon};

/// Permits of the policy `connections`.
const LIMIT: usize = 5;

/// The gateways, and nginx with a limit of its own.
#[derive(Clone, Copy, Debug)]
enum Gateway {
    Own,
    Nginx,
    Njs,
    Lua,
    Haproxy,
    Envoy,
}

const ALL: [Gateway; 5] =
    [Gateway::Nginx, Gateway::Njs, Gateway::Lua, Gateway::Haproxy, Gateway::Envoy];

/// The limit of nginx itself.
const OWN: &str = "
limit_conn_zone $binary_remote_addr zone=connections:1m;
server {
    listen 127.0.0.1:8000;
    limit_conn_status 429;
    location / {
        limit_conn connections 5;
        proxy_pass http://127.0.0.1:9000;
    }
}
";

impl Gateway {
    fn start(self, places: &Places) -> Result<Program, Error> {
        self.start_changed(places, ToOwned::to_owned)
    }

    /// Starts the gateway with its configuration as `change` returns it.
    fn start_changed(
        self,
        places: &Places,
        change: impl FnOnce(&str) -> String,
    ) -> Result<Program, Error> {
        let folder = root().join("examples/gateways/nginx").display().to_string();
        let nginx = |text: &str| nginx::start(places, &change(text));
        match self {
            Self::Own => nginx(OWN),
            Self::Nginx => nginx(&example("gateways/nginx/limit_conn.conf")),
            Self::Njs => {
                let site = example("gateways/nginx/limit_conn_njs.conf");
                nginx(&changed(&site, &[("/etc/nginx/njs", &folder)]))
            }
            Self::Lua => {
                let site = example("gateways/nginx/limit_conn_lua.conf");
                nginx(&changed(&site, &[("/etc/nginx/lua", &folder)]))
            }
            Self::Haproxy => haproxy::start(places),
            Self::Envoy => envoy::launch(&example("gateways/envoy/limit_conn.yaml"), places),
        }
    }
}

/// An application that answers when the test lets it.
pub(super) struct SlowApp {
    address: SocketAddr,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
    serving: JoinHandle<()>,
}

impl SlowApp {
    pub(super) async fn start() -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(Semaphore::new(0));
        let shared = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&answers));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (running, most, answers) = shared.clone();
                tokio::spawn(async move {
                    serve(stream, &running, &most, &answers).await.ok();
                });
            }
        });
        Ok(Self { address, running, most, answers, serving })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests that wait for an answer.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Lets it answer so many requests.
    pub(super) fn answer(&self, requests: usize) {
        self.answers.add_permits(requests);
    }
}

impl Drop for SlowApp {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers a request as soon as there is a permit in `answers`. A request for `/dead` gets no answer.
async fn serve(
    mut stream: TcpStream,
    running: &AtomicUsize,
    most: &AtomicUsize,
    answers: &Semaphore,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let gone = async { stream.read_u8().await };
    tokio::select! {
        permit = answers.acquire() => permit.expect("it is never closed").forget(),
        _ = gone => {}
    }
    running.fetch_sub(1, Ordering::SeqCst);
    if head.starts_with(b"GET /dead") {
        return Ok(());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await
}

fn places(server: &Server, app: &SlowApp, gateway: SocketAddr) -> Places {
    Places(vec![
        (8080, server.http),
        (6380, server.resp),
        (8081, server.rls),
        (9000, app.address),
        (8000, gateway),
    ])
}

/// A gateway before the application, and a server whose policies are those of the examples.
struct Stage {
    kind: Gateway,
    server: Server,
    app: SlowApp,
    gateway: SocketAddr,
    program: Program,
    _port: Port,
}

impl Stage {
    async fn set(gateway: Gateway, options: &[&str]) -> Result<Self, Error> {
        // The rule of requests a second lets all pass.
        let policies =
            changed(&example("gateways/policies.yaml"), &[("10/s, burst: 5", "1000000/s")]);
        Self::with(gateway, &policies, options).await
    }

    async fn with(gateway: Gateway, policies: &str, options: &[&str]) -> Result<Self, Error> {
        let (server, app) = (Server::start(policies, options).await?, SlowApp::start().await?);
        let port = Port::free()?;
        let address = port.address();
        let mut program = gateway.start(&places(&server, &app, address))?;
        app.answers.add_permits(1);
        program.ready(PATIENCE, async || probe(address, "/").await == Some(200)).await?;
        Ok(Self { kind: gateway, server, app, gateway: address, program, _port: port })
    }

    /// Starts the gateway anew with its configuration as `change` returns it.
    async fn restart(
        &mut self,
        gateway: Gateway,
        change: impl FnOnce(&str) -> String,
    ) -> Result<(), Error> {
        self.program.kill();
        let places = places(&self.server, &self.app, self.gateway);
        self.program = gateway.start_changed(&places, change)?;
        let address = self.gateway;
        self.program.ready(PATIENCE, async || probe(address, "/").await == Some(200)).await
    }

    /// Number of permits that the client does not hold.
    async fn free(&self) -> u64 {
        let (path, body, remaining) = match self.kind {
            // nginx does not say.
            Gateway::Own => return (LIMIT - self.app.running()) as u64,
            Gateway::Envoy => (
                "/json",
                r#"{"domain":"connections","descriptors":[{"hitsAddend":0,"entries":
                    [{"key":"masked_remote_address","value":"127.0.0.1/32"}]}]}"#,
                "/statuses/0/limitRemaining",
            ),
            _ => ("/v1/peek", r#"{"policy":"connections","key":"127.0.0.1"}"#, "/remaining"),
        };
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let call = send(self.server.http, [127, 0, 0, 1].into(), &request).await;
        let call = call.expect("the server answers");
        let peeked: serde_json::Value = serde_json::from_str(&call.body).expect("it is JSON");
        // JSON of protocol buffers has no zeros.
        peeked.pointer(remaining).and_then(serde_json::Value::as_u64).unwrap_or(0)
    }

    async fn all_are_free(&self) {
        soon("all permits are free", async || self.free().await == LIMIT as u64).await;
    }
}

/// Thirty requests at once: five get to the application, and the others are refused; when those are answered, all permits
/// are free.
async fn five_of_thirty_run(stage: &Stage) {
    let refused = AtomicUsize::new(0);
    let calls = join_all((0..30).map(async |_| {
        let call = get(stage.gateway, "/", "").await;
        refused.fetch_add(usize::from(call.status == 429), Ordering::SeqCst);
        call
    }));
    let judge = async {
        soon("five run", async || stage.app.running() == LIMIT).await;
        soon("all others are refused", async || refused.load(Ordering::SeqCst) == 30 - LIMIT).await;
        assert_eq!(stage.free().await, 0);
        stage.app.answers.add_permits(LIMIT);
    };
    let (calls, ()) = tokio::join!(calls, judge);
    assert_eq!(calls.iter().filter(|call| call.status == 200).count(), LIMIT, "{calls:?}");
    let of_sluicegate = |call: &&Call| call.status == 429 && !matches!(stage.kind, Gateway::Own);
    for call in calls.iter().filter(of_sluicegate) {
        assert!(
            call.header("retry-after").is_some_and(|s| (1..=60).contains(&s.parse().unwrap_or(0))),
            "{}",
            call.head
        );
    }
    assert_eq!(stage.app.most.load(Ordering::SeqCst), LIMIT);
    stage.all_are_free().await;
}

#[tokio::test]
async fn five_requests_of_a_client_run_at_once_behind_each_gateway() {
    for gateway in ALL {
        let stage = need!(Stage::set(gateway, &[]).await);
        five_of_thirty_run(&stage).await;
    }
}

#[tokio::test]
async fn five_requests_run_at_once_with_permits_in_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=5000", redis.url());
    let stage = need!(Stage::set(Gateway::Lua, &["--store", &url]).await);
    five_of_thirty_run(&stage).await;
}

#[tokio::test]
async fn a_request_that_ends_in_any_way_gives_its_permit_back() {
    for gateway in ALL {
        let stage = need!(Stage::set(gateway, &[]).await);
        // A client that goes away.
        let mut stream = TcpStream::connect(stage.gateway).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n").await.unwrap();
        soon("it runs", async || stage.app.running() == 1).await;
        soon("it holds a permit", async || stage.free().await == LIMIT as u64 - 1).await;
        drop(stream);
        stage.all_are_free().await;
        // An application that does not answer.
        stage.app.answers.add_permits(1);
        let status = get(stage.gateway, "/dead", "").await.status;
        assert!([502, 503].contains(&status), "{gateway:?}: {status}");
        stage.all_are_free().await;
        // Many, one after the other, with bodies.
        stage.app.answers.add_permits(50);
        let post =
            "POST / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
        for _ in 0..50 {
            let call = send(stage.gateway, [127, 0, 0, 1].into(), post).await.expect("it answers");
            assert!([200, 429].contains(&call.status), "{gateway:?}: {}", call.head);
        }
        stage.all_are_free().await;
    }
}

#[tokio::test]
async fn scripts_of_nginx_count_a_network_of_ipv6_and_an_address_of_ipv4_as_one_client() {
    for gateway in [Gateway::Njs, Gateway::Lua] {
        let stage = need!(Stage::set(gateway, &[]).await);
        let from = async |address: &str| {
            get(stage.gateway, "/", &format!("x-test-address: {address}\r\n")).await
        };
        let clients = [
            ("2001:db8::1", "2001:db8::9:1", "2001:db8:0:1::1"),
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ];
        for (one, same, other) in clients {
            let running = join_all((0..LIMIT).map(|_| from(one)));
            let judge = async {
                soon("five run", async || stage.app.running() == LIMIT).await;
                assert_eq!(from(same).await.status, 429, "{gateway:?}: {same} is {one}");
                stage.app.answers.add_permits(LIMIT + 1);
                assert_eq!(from(other).await.status, 200, "{gateway:?}: {other} is not {one}");
            };
            let (calls, ()) = tokio::join!(running, judge);
            assert!(calls.iter().all(|call| call.status == 200), "{gateway:?}: {calls:?}");
        }
    }
}

/// The site of a file, `index.html`, in `folder`: each request is redirected internally.
fn of_files(site: &str, folder: &std::path::Path) -> String {
    let files = format!("root {}; index index.html;", folder.display());
    changed(site, &[("proxy_pass http://127.0.0.1:9000;", &files)])
}

#[tokio::test]
async fn nginx_gives_permits_back_after_internal_redirects() {
    let folder = tempfile::tempdir().expect("there is room");
    std::fs::write(folder.path().join("index.html"), "index").expect("there is room");
    std::fs::create_dir(folder.path().join("none")).expect("there is room");
    for gateway in [Gateway::Nginx, Gateway::Njs, Gateway::Lua] {
        let mut stage = need!(Stage::set(gateway, &[]).await);
        let redirects = |site: &str| of_files(site, folder.path());
        need!(stage.restart(gateway, redirects).await);
        for path in ["/", "/none/", "/index.html", "/missing"] {
            for _ in 0..2 * LIMIT {
                let status = get(stage.gateway, path, "").await.status;
                assert!([200, 403, 404, 429].contains(&status), "{gateway:?} {path}: {status}");
            }
            stage.all_are_free().await;
        }
    }
}

#[tokio::test]
async fn an_imported_limit_of_connections_lets_as_many_run_as_nginx_itself() {
    for is_dry in [false, true] {
        let own = if is_dry {
            OWN.replace("limit_conn ", "limit_conn_dry_run on; limit_conn ")
        } else {
            OWN.to_owned()
        };
        let imported = import(ImportSource::Nginx, &own).expect("nginx reads it, too");
        let policies: Vec<_> = imported.policies.iter().map(|policy| &policy.document).collect();
        let policies = serde_json::json!({ "policies": policies }).to_string();
        for gateway in [Gateway::Nginx, Gateway::Own] {
            let stage = need!(Stage::with(gateway, &policies, &[]).await);
            match (is_dry, gateway) {
                (true, Gateway::Own) => {}
                (true, _) => {
                    stage.app.answers.add_permits(30);
                    let calls = join_all((0..30).map(|_| get(stage.gateway, "/", ""))).await;
                    assert!(calls.iter().all(|call| call.status == 200), "{calls:?}");
                }
                (false, _) => five_of_thirty_run(&stage).await,
            }
        }
    }
}
