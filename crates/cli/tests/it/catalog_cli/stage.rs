//! A catalog with its admin API on a port of its own, and the program as a client of it.

use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::program::program;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sluicegate::{ManualClock, Micros};
use sluicegate_control::access::Scope;
use sluicegate_control::api::{Api, ClientAddress, NoBudgets, Setup};
use sluicegate_control::catalog::{NewToken, PolicyState, PolicyView};
use sluicegate_control::identity::{Secret, SecretKind};
use sluicegate_control::{Catalog, ChangeContext, Url};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// The time of tests.
const NOW_S: u64 = 1_800_000_000;
const NOW_MS: i64 = 1_800_000_000_000;

/// A catalog with the apps `shop` and `bank`, its API, and a folder for files.
pub(crate) struct Stage {
    pub(crate) catalog: Catalog,
    pub(crate) folder: TempDir,
    address: SocketAddr,
    /// A token of `shop`, with the scopes to read and write policies.
    token: String,
    /// Changes that the API answers with 503, before it makes them or after.
    failures: Arc<Failures>,
    runtime: Runtime,
}

struct Failures {
    before: AtomicU32,
    after: AtomicU32,
    /// Changes before which another client makes a policy.
    meddled: AtomicU32,
    catalog: Catalog,
}

/// Output and exit status of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) status: Option<i32>,
}

impl Stage {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = TempDir::with_prefix("sluicegate-cli-").unwrap();
        let url: Url =
            format!("sqlite:{}", folder.path().join("catalog.db").display()).parse().unwrap();
        let clock = Arc::new(ManualClock::at(Micros::from_secs(NOW_S)));
        let catalog = runtime.block_on(async {
            let catalog = Catalog::open(&url).await.unwrap();
            for app in ["shop", "bank"] {
                catalog.create_app(&by(), app, "", &[]).await.unwrap();
            }
            catalog
        });
        let (_, setup) = Setup::new(NOW_MS);
        let router = Api::new(catalog.clone(), clock, setup, Arc::new(NoBudgets)).router();
        let none = || AtomicU32::new(0);
        let failures =
            Failures { before: none(), after: none(), meddled: none(), catalog: catalog.clone() };
        let failures = Arc::new(failures);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, router, Arc::clone(&failures)));
        let stage = Self { catalog, folder, address, token: String::new(), failures, runtime };
        let token = stage.token("shop", &[Scope::PolicyRead, Scope::PolicyWrite]);
        Self { token, ..stage }
    }

    /// Runs a future on the catalog to its end.
    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// Creates a token and returns its secret.
    pub(crate) fn token(&self, app: &str, scopes: &[Scope]) -> String {
        let secret = Secret::new(SecretKind::Token);
        let new = NewToken { name: "ci", scopes, expires_at: NOW_MS + 1_000, hash: &secret.hash() };
        self.wait(self.catalog.create_token(&by(), app, new)).unwrap();
        secret.expose().to_owned()
    }

    /// Creates a policy of `shop`.
    pub(crate) fn policy(&self, name: &str, rate: &str) {
        let document = document(name, rate);
        self.wait(self.catalog.create_policy(&by(), "shop", &document, PolicyState::Active))
            .unwrap();
    }

    /// The policies of `shop`.
    pub(crate) fn policies(&self) -> Vec<PolicyView> {
        self.wait(self.catalog.policies(
            "shop",
            None,
            &sluicegate_control::catalog::Page::default(),
        ))
        .unwrap()
    }

    /// Writes a file to the folder, which other users cannot read: it may hold a token.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// The next `count` changes are answered with 503, though they are made.
    pub(crate) fn lose_answers(&self, count: u32) {
        self.failures.after.store(count, Ordering::Relaxed);
    }

    /// The next `count` changes are answered with 503, and not made.
    pub(crate) fn lose_changes(&self, count: u32) {
        self.failures.before.store(count, Ordering::Relaxed);
    }

    /// Another client makes a policy `meddled` just before the next change.
    pub(crate) fn meddle(&self) {
        self.failures.meddled.store(1, Ordering::Relaxed);
    }

    /// Runs `sluicegate COMMAND` in the folder, with the token and the address of the API, and the URL of the catalog.
    pub(crate) fn run(&self, command: &str) -> Ran {
        finish(&mut self.command(command))
    }

    /// The command of [`run`](Self::run), not yet started.
    pub(crate) fn command(&self, command: &str) -> Command {
        let mut program = program();
        program.args(command.split_whitespace());
        self.placed(&mut program);
        program
    }

    /// Runs a line of a shell, in which `sluicegate` is the program.
    pub(crate) fn shell(&self, line: &str) -> Ran {
        let folder = PathBuf::from(env!("CARGO_BIN_EXE_sluicegate"));
        let path = std::env::var("PATH").unwrap();
        let mut program = Command::new("bash");
        program.args(["-c", line]);
        program.env("PATH", format!("{}:{path}", folder.parent().unwrap().display()));
        finish(self.placed(&mut program))
    }

    fn placed<'c>(&self, program: &'c mut Command) -> &'c mut Command {
        program
            .current_dir(self.folder.path())
            .env("SLUICEGATE_ADMIN_URL", format!("http://{}", self.address))
            .env("SLUICEGATE_TOKEN", &self.token)
            .env("SLUICEGATE_CATALOG_URL", "sqlite:catalog.db")
            .env_remove("SLUICEGATE_IMPORT_URL")
    }
}

/// Runs a program to its end.
pub(crate) fn finish(program: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = program.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { out: text(stdout), err: text(stderr), status: status.code() }
}

/// The operator, now.
pub(crate) fn by() -> ChangeContext {
    ChangeContext::operator("because", NOW_MS)
}

pub(crate) fn document(name: &str, rate: &str) -> Value {
    json!({ "name": name, "rules": [{ "token_bucket": { "rate": rate } }] })
}

impl Ran {
    /// Its standard output, parsed as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its standard output, after checking that it succeeded without messages.
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }
}

async fn serve(listener: TcpListener, router: Router, failures: Arc<Failures>) {
    loop {
        let (stream, peer) = listener.accept().await.unwrap();
        let (router, failures) = (router.clone(), Arc::clone(&failures));
        let answer = service_fn(move |request: Request<Incoming>| {
            let (router, failures) = (router.clone(), Arc::clone(&failures));
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(ClientAddress(peer.ip().to_string()));
                Ok::<_, Infallible>(answer(router, &failures, request).await)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

async fn answer(router: Router, failures: &Failures, request: Request<Body>) -> Response {
    let is_change = request.method() == "PUT" && !request.uri().to_string().contains("dry_run");
    let fails = |which: &AtomicU32| {
        let less = |count: u32| count.checked_sub(1);
        is_change && which.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    };
    if fails(&failures.before) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if fails(&failures.meddled) {
        let document = document("meddled", "1/s");
        failures
            .catalog
            .create_policy(&by(), "shop", &document, PolicyState::Active)
            .await
            .unwrap();
    }
    let answered = router.oneshot(request).await.unwrap();
    if fails(&failures.after) { StatusCode::SERVICE_UNAVAILABLE.into_response() } else { answered }
}
