//! A client of an API that is not on any network, and the API.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{ThreadId, current};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::{Value as Json, json};
use sluicegate::{ManualClock, Micros, PermitId};
use sluicegate_control::api::{
    Api, Budget, BudgetError, BudgetFuture, Budgets, ClientAddress, ExplainError, ExplainFuture,
    HeldError, HeldFuture, HeldPermit, HeldPermits, ReleaseFuture, Setup, StoreFuture, ToExplain,
};
use sluicegate_control::{Catalog, Url};
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;
use tower::ServiceExt;

/// The time at which tests begin.
pub(crate) const NOW_S: u64 = 1_800_000_000;

pub(crate) const PASSWORD: &str = "correct horse battery";

/// An API with a catalog of its own.
pub(crate) struct Served {
    router: Router,
    pub(crate) api: Api,
    pub(crate) catalog: Catalog,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) setup_token: String,
    pub(crate) budgets: Arc<Noted>,
    pub(crate) dir: Arc<TempDir>,
}

/// A client of the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// A cookie, or a token.
    pub(crate) cookie: Option<String>,
    pub(crate) token: Option<String>,
    /// The content type of a body; none: JSON.
    pub(crate) content_type: Option<&'static str>,
    /// The address; none: the one of all clients.
    pub(crate) source: Option<String>,
    /// More header fields.
    pub(crate) fields: Vec<(&'static str, String)>,
}

/// The response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Json,
}

/// Budgets that record the calls and their threads, and whose store can be unavailable: at once, or only when it changes a
/// budget, which it has perhaps done.
#[derive(Debug, Default)]
pub(crate) struct Noted(
    pub(crate) Mutex<Vec<String>>,
    pub(crate) Mutex<Vec<ThreadId>>,
    pub(crate) AtomicBool,
    pub(crate) Mutex<Option<BudgetError>>,
);

impl Noted {
    fn note(&self, what: String) -> BudgetFuture<'_> {
        self.1.lock().expect("nothing panics while it is held").push(current().id());
        self.0.lock().expect("nothing panics while it is held").push(what);
        let budget = Budget {
            allowed: true,
            limit: 10,
            remaining: 10,
            retry_after_us: Some(0),
            reset_after_us: 0,
            rule: "r".to_owned(),
            mode: "store",
        };
        let is_away = self.2.load(Relaxed);
        let answer = if is_away { Err("store: no answer".into()) } else { Ok(budget) };
        Box::pin(std::future::ready(answer))
    }
}

impl Budgets for Noted {
    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        self.note(format!("peek {policy} {}", String::from_utf8_lossy(key)))
    }

    fn check_store<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> StoreFuture<'a> {
        let looked = self.note(format!("look {policy} {}", String::from_utf8_lossy(key)));
        Box::pin(async { looked.await.map(drop).map_err(|error| error.reason) })
    }

    fn check_try(&self, asked: &ToExplain) -> Result<(), ExplainError> {
        match asked.key.as_deref() {
            Some("slots") => Err(ExplainError::NoChecks),
            _ => Ok(()),
        }
    }

    fn explain(&self, asked: ToExplain) -> ExplainFuture<'_> {
        let ToExplain { app, policy, key, request, cost } = asked;
        let path = request.and_then(|request| request.path);
        self.0
            .lock()
            .expect("nothing panics while it is held")
            .push(format!("explain {app} {policy:?} {key:?} {path:?} {cost}"));
        Box::pin(std::future::ready(Err(ExplainError::NoPolicy)))
    }

    fn try_one(&self, asked: ToExplain) -> ExplainFuture<'_> {
        let noted = format!("try {:?} {:?} {}", asked.policy, asked.key, asked.cost);
        self.0.lock().expect("nothing panics while it is held").push(noted);
        Box::pin(std::future::ready(Err(ExplainError::NoPolicy)))
    }

    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        self.note(format!("reset {policy} {}", String::from_utf8_lossy(key)))
    }

    /// The key `slots` holds 101 permits of 2 at first; no other holds any, and the policy `orders` has none.
    fn held<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> HeldFuture<'a> {
        let looked = self.note(format!("held {policy} {}", String::from_utf8_lossy(key)));
        let released = self.0.lock().expect("nothing panics while it is held");
        let released: Vec<_> =
            released.iter().filter_map(|call| call.strip_prefix("release slots slots ")).collect();
        let permits = (1..=101)
            .map(PermitId)
            .filter(|permit| key == b"slots" && !released.contains(&&*permit.to_string()));
        let item = |permit| HeldPermit { permit, cost: 2, lapses_after_us: 30_000_000 };
        let held = HeldPermits::of(permits.map(item).collect(), 3);
        let answer = if policy == "slots" { Ok(held) } else { Err(HeldError::NoPermits) };
        Box::pin(async {
            looked.await.map_err(|error| HeldError::Unavailable(error.reason))?;
            answer
        })
    }

    /// The permit 1 is gone when it is to be released.
    fn release<'a>(
        &'a self,
        policy: &'a str,
        key: &'a [u8],
        permit: PermitId,
    ) -> ReleaseFuture<'a> {
        let key = String::from_utf8_lossy(key);
        let released = self.note(format!("release {policy} {key} {permit}"));
        let error = self.3.lock().expect("nothing panics while it is held").take();
        Box::pin(async move {
            released.await?;
            error.map_or(Ok(permit != PermitId(1)), Err)
        })
    }

    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a> {
        let granted =
            self.note(format!("grant {policy} {} {permits}", String::from_utf8_lossy(key)));
        let error = self.3.lock().expect("nothing panics while it is held").take();
        error.map_or(granted, |error| Box::pin(std::future::ready(Err(error))))
    }
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::start_with(|api| api).await
    }

    /// Starts an API that `made` configures.
    pub(crate) async fn start_with(made: impl FnOnce(Api) -> Api) -> Self {
        let dir = TempDir::with_prefix("sluicegate-api-").expect("a folder for the test");
        let url = format!("sqlite:{}", dir.path().join("catalog.db").display());
        let url: Url = url.parse().expect("it is a URL");
        let catalog = Catalog::open(&url).await.expect("the tables can be made");
        let clock = Arc::new(ManualClock::at(Micros::from_secs(NOW_S)));
        let (token, setup) = Setup::new(i64::try_from(NOW_S * 1_000).expect("it is soon"));
        let budgets = Arc::new(Noted::default());
        let api = made(Api::new(catalog.clone(), clock.clone(), setup, budgets.clone()));
        let setup_token = token.expose().to_owned();
        Self { router: api.router(), api, catalog, clock, setup_token, budgets, dir: Arc::new(dir) }
    }

    /// Starts another API of the same catalog.
    #[cfg(feature = "oidc")]
    pub(crate) fn beside(&self, made: impl FnOnce(Api) -> Api) -> Self {
        let (budgets, clock) = (Arc::clone(&self.budgets), Arc::clone(&self.clock));
        let api = Api::new(self.catalog.clone(), clock.clone(), Setup::none(), budgets.clone());
        let api = made(api);
        let (catalog, setup_token) = (self.catalog.clone(), String::new());
        let dir = Arc::clone(&self.dir);
        Self { router: api.router(), api, catalog, clock, setup_token, budgets, dir }
    }

    /// Changes the database itself.
    pub(crate) async fn harm(&self, sql: &'static str) {
        let path = self.dir.path().join("catalog.db");
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
        let mut database = options.connect().await.expect("it is there");
        let met = database.execute(sql).await.expect("it is done").rows_affected();
        assert!(met > 0, "{sql}");
    }

    /// Starts an API with an administrator `ada`, who is the client.
    pub(crate) async fn with_admin() -> (Self, Client) {
        Self::with_admin_of(|api| api).await
    }

    /// Starts an API that `made` configures, with an administrator `ada`, who is the client.
    pub(crate) async fn with_admin_of(made: impl FnOnce(Api) -> Api) -> (Self, Client) {
        let served = Self::start_with(made).await;
        let body = json!({ "token": served.setup_token, "account": "ada", "password": PASSWORD });
        let made = served.ask(&Client::default(), "POST /setup", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
        let admin = served.signed_in("ada").await;
        (served, admin)
    }

    /// Signs `account` in, and returns its client.
    pub(crate) async fn signed_in(&self, account: &str) -> Client {
        let body = json!({ "account": account, "password": PASSWORD });
        let answer = self.ask(&Client::default(), "POST /session", Some(body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        Client { cookie: Some(answer.cookie()), ..Client::default() }
    }

    /// Creates an account that is signed in, with this role in `app`.
    pub(crate) async fn member(&self, admin: &Client, name: &str, app: &str, role: &str) -> Client {
        let body = json!({ "name": name, "password": PASSWORD });
        assert_eq!(self.ask(admin, "POST /accounts", Some(body)).await.status, 201);
        let put = format!("PUT /apps/{app}/members/{name}");
        let answer = self.ask(admin, &put, Some(json!({ "role": role }))).await;
        assert_eq!(answer.status, 204, "{answer:?}");
        self.signed_in(name).await
    }

    /// Creates a token of `app`.
    pub(crate) async fn token(&self, owner: &Client, app: &str, scopes: &[&str]) -> Client {
        let name = scopes.join("-").replace(':', "-");
        let body = json!({ "name": name, "scopes": scopes, "expires_in_days": 30 });
        let answer = self.ask(owner, &format!("POST /apps/{app}/tokens"), Some(body)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let token = answer.body["secret"].as_str().expect("it is shown once").to_owned();
        Client { token: Some(token), ..Client::default() }
    }

    /// Sends the request `what`, a method and a path below the prefix.
    pub(crate) async fn ask(&self, client: &Client, what: &str, body: Option<Json>) -> Answer {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(format!("/v1/admin{path}"));
        if let Some(cookie) = &client.cookie {
            request = request.header("cookie", format!("a=b; {cookie}; c=d"));
        }
        if let Some(token) = &client.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            let kind = client.content_type.unwrap_or("application/json");
            request = request.header("content-type", kind);
        }
        for (name, value) in &client.fields {
            request = request.header(*name, value);
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(client, request.body(body).expect("it is a request")).await
    }

    /// Sends the request `what` with a body of YAML.
    pub(crate) async fn ask_yaml(&self, client: &Client, what: &str, body: &str) -> Answer {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(format!("/v1/admin{path}"));
        request = request.header("content-type", "application/yaml; charset=utf-8");
        if let Some(cookie) = &client.cookie {
            request = request.header("cookie", cookie);
        }
        for (name, value) in &client.fields {
            request = request.header(*name, value);
        }
        let body = Body::from(body.to_owned());
        self.send(client, request.body(body).expect("it is a request")).await
    }

    async fn send(&self, client: &Client, mut request: Request<Body>) -> Answer {
        let source = client.source.as_deref().unwrap_or("192.0.2.1");
        request.extensions_mut().insert(ClientAddress(source.to_owned()));
        let response = self.router.clone().oneshot(request).await.expect("it always answers");
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 24).await.expect("the body is there");
        // A body that is not JSON is text, such as YAML.
        let text = || String::from_utf8_lossy(&bytes).into_owned().into();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| match bytes.is_empty() {
            true => Json::Null,
            false => text(),
        });
        Answer { status: head.status, headers: head.headers, body }
    }
}

impl Client {
    /// Returns the client with this version in `If-Match`.
    pub(crate) fn at_version(&self, version: i64) -> Self {
        self.with("if-match", &format!("\"{version}\""))
    }

    /// Returns the client with one more header field.
    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut client = self.clone();
        client.fields.push((name, value.to_owned()));
        client
    }
}

impl Answer {
    /// Returns the cookie that was set, without its attributes.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.headers["set-cookie"].to_str().expect("it is plain text");
        cookie.split(';').next().expect("split gives one").to_owned()
    }
}

pub(crate) fn document(name: &str, rate: &str) -> Json {
    json!({ "name": name, "rules": [{ "token_bucket": { "rate": rate } }] })
}
