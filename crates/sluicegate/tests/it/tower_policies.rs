//! The layer by policies: the decisions of an engine, as clients of an HTTP service see them.
#![cfg(all(feature = "tower", feature = "engine"))]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::tower::{Header, Key, KeyExtractor, PeerAddr, RateLimitLayer};
use sluicegate::{Clock, Cost, Disposition, Engine, ManualClock, Micros, StoreFailure};
use sluicegate_kernel::Moment;
use sluicegate_store::{Executed, Store, StoreAnswer, StoreRequest};
use tower::{Layer, ServiceExt};

const POLICIES: &str = "
policies:
  - { name: plain, rules: [ { name: burst, token_bucket: { rate: 1/10s, burst: 2 } } ] }
  - { name: two, rules: [ { name: burst, token_bucket: { rate: 1/s, burst: 9 } }, { name: day, fixed_window: { limit: 1, window: 1d } } ] }
  - { name: queue, overflow: { queue: { max_wait: 2s } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: leaky, rules: [ { leaky_bucket: { rate: 1/s, burst: 10 } } ] }
  - { name: shadow, overflow: shadow, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: busy, overflow: { degrade: { response: { status: 203, body: old, headers: { x-mine: served } } } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: divert, overflow: { divert: { target: slow } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: open, on_store_failure: allow, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: closed, on_store_failure: deny, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: own, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: shop, apps: [shop], rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: jobs, rules: [ { concurrency: { limit: 1, ttl: 30s } } ] }
";

/// The time of tokio, which stands still in these tests unless all wait.
#[derive(Debug)]
struct Paused(tokio::time::Instant);

impl Clock for Paused {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

/// A store in memory that can be switched off and is always awaited.
#[derive(Clone, Debug, Default)]
struct Switchable(Arc<(MemoryStore, AtomicBool)>);

impl Store for Switchable {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        tokio::task::yield_now().await;
        if self.0.1.load(Ordering::Relaxed) {
            let reason = "switched off".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        Ok(self.0.0.decide_now(request, at)?.into())
    }
}

fn policies() -> PolicySet {
    PolicySet::new(Document::parse(POLICIES).unwrap())
}

fn memory() -> Arc<Engine> {
    let clock = Arc::new(Paused(tokio::time::Instant::now()));
    Arc::new(Engine::new(policies(), MemoryStore::default(), clock))
}

/// Returns the body `inner`, and the mark of the request.
async fn inner(request: Request<()>) -> Result<Response<String>, Infallible> {
    let body = match request.extensions().get::<Disposition>() {
        None => "inner".to_owned(),
        Some(way) => format!("inner, {:?}", way.target().map_or("degraded", |target| target)),
    };
    Ok(Response::new(body))
}

async fn get(layer: &RateLimitLayer<impl KeyExtractor>) -> Response<String> {
    get_with(layer, Request::new(())).await
}

async fn get_with(
    layer: &RateLimitLayer<impl KeyExtractor>,
    request: Request<()>,
) -> Response<String> {
    layer.layer(tower::service_fn(inner)).oneshot(request).await.unwrap()
}

fn by(policy: &str) -> RateLimitLayer<()> {
    RateLimitLayer::by_policy(memory(), policy, ())
}

fn field<'a>(response: &'a Response<String>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

/// Returns the status, `Retry-After` and body of each of `n` responses one after the other.
async fn answers(layer: &RateLimitLayer<()>, n: usize) -> Vec<(u16, Option<String>, String)> {
    let mut answers = Vec::new();
    for _ in 0..n {
        let response = get(layer).await;
        let retry_after = field(&response, "retry-after").map(ToOwned::to_owned);
        answers.push((response.status().as_u16(), retry_after, response.into_body()));
    }
    answers
}

fn inner_body() -> (u16, Option<String>, String) {
    (200, None, "inner".to_owned())
}

#[tokio::test(start_paused = true)]
async fn exactly_the_limit_of_the_policy_passes_and_the_rest_is_a_problem() {
    let layer = by("plain");
    for remaining in [1, 0] {
        let response = get(&layer).await;
        assert_eq!((response.status(), &**response.body()), (StatusCode::OK, "inner"));
        let expected = format!("\"burst\";r={remaining};t={}", 10 * (2 - remaining));
        assert_eq!(field(&response, "ratelimit"), Some(&*expected));
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"burst\";q=2;w=20"));
        assert_eq!(field(&response, "x-sluicegate-mode"), None);
    }
    let refused = get(&layer).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&refused, "retry-after"), Some("10"));
    assert_eq!(field(&refused, "ratelimit"), Some("\"burst\";r=0;t=10"));
    assert_eq!(field(&refused, "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(refused.body()).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["burst"]));
}

#[tokio::test(start_paused = true)]
async fn policy_key_and_cost_come_from_the_request() {
    fn policy_of(request: &http::request::Parts) -> &str {
        if request.uri.path() == "/two" { "two" } else { "plain" }
    }
    let layer = RateLimitLayer::by_policy_of(memory(), policy_of, Header::new("user").unwrap())
        .cost(|request| Cost::new(request.uri.path().len() as u64 - 3).unwrap())
        .named("api")
        .unwrap();
    let ask = async |path: &str, user: &str| {
        let request = Request::get(path).header("user", user).body(()).unwrap();
        get_with(&layer, request).await
    };
    // A cost of 2 takes all of the plain policy; another user and another policy have budgets of their own.
    assert_eq!(ask("/12345", "ann").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&ask("/1234", "ann").await, "ratelimit"), Some("\"api\";r=0;t=20"));
    assert_eq!(ask("/123", "ann").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("/123", "bob").await.status(), StatusCode::OK);
    let two = ask("/two", "ann").await;
    assert_eq!(two.status(), StatusCode::OK);
    assert_eq!(field(&two, "ratelimit"), Some("\"api.day\";r=0;t=86400"));
}

#[tokio::test(start_paused = true)]
async fn a_queue_and_a_leaky_bucket_hold_requests_back() {
    for policy in ["queue", "leaky"] {
        let (layer, start) = (by(policy), tokio::time::Instant::now());
        for second in [0, 1, 2] {
            assert_eq!(get(&layer).await.status(), StatusCode::OK, "{policy}");
            assert_eq!(start.elapsed(), Duration::from_secs(second), "{policy}");
        }
        let never = by(policy).hold_never();
        assert_eq!(get(&never).await.status(), StatusCode::OK);
        let refused = get(&never).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{policy}");
        assert_eq!(field(&refused, "retry-after"), Some("1"));
        let short = by(policy).hold_up_to(Duration::from_millis(500));
        assert_eq!(get(&short).await.status(), StatusCode::OK);
        assert_eq!(get(&short).await.status(), StatusCode::TOO_MANY_REQUESTS, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn shadow_passes_and_a_fallback_response_is_served() {
    assert_eq!(answers(&by("shadow"), 3).await, vec![inner_body(); 3]);
    let layer = by("busy");
    get(&layer).await;
    let served = get(&layer).await;
    assert_eq!((served.status().as_u16(), &**served.body()), (203, "old"));
    assert_eq!(field(&served, "x-mine"), Some("served"));
    assert_eq!(field(&served, "ratelimit"), Some("\"token_bucket\";r=0;t=1"));
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_marks_is_refused_unless_the_service_looks_at_it() {
    for (policy, body) in [("tag", "inner, \"degraded\""), ("divert", "inner, \"slow\"")] {
        let layer = by(policy);
        assert_eq!(get(&layer).await.status(), StatusCode::OK);
        assert_eq!(get(&layer).await.status(), StatusCode::TOO_MANY_REQUESTS, "{policy}");
        let layer = by(policy).marks_overflow(true);
        assert_eq!(get(&layer).await.body(), "inner");
        assert_eq!(get(&layer).await.body(), body);
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_each_policy_decides() {
    let store = Switchable::default();
    let clock = Arc::new(ManualClock::default());
    let engine = Engine::new(policies(), store.clone(), Arc::clone(&clock) as _);
    let engine = Arc::new(engine.with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)));
    let by = |policy| RateLimitLayer::by_policy(Arc::clone(&engine), policy, ());
    assert_eq!(get(&by("plain")).await.status(), StatusCode::OK);
    store.0.1.store(true, Ordering::Relaxed);
    let mut seen = Vec::new();
    for policy in ["open", "open", "closed", "own", "own"] {
        let response = get(&by(policy)).await;
        let fields = ["x-sluicegate-mode", "retry-after"].map(|name| field(&response, name));
        let [mode, retry_after] = fields.map(|value| value.unwrap_or("-").to_owned());
        seen.push((policy, response.status().as_u16(), mode, retry_after));
    }
    let expected = [
        ("open", 200, "allow", "-"),
        ("open", 200, "allow", "-"),
        ("closed", 503, "deny", "1"),
        ("own", 200, "local", "-"),
        ("own", 429, "local", "1"),
    ];
    let expected = expected.map(|(policy, status, mode, retry_after)| {
        (policy, status, mode.to_owned(), retry_after.to_owned())
    });
    assert_eq!(seen, expected);
    let closed = get(&by("closed")).await;
    let problem: serde_json::Value = serde_json::from_str(closed.body()).unwrap();
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
}

/// A log that a test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the last response, and the log.
async fn logged(
    layer: &RateLimitLayer<impl KeyExtractor>,
    requests: usize,
) -> (Response<String>, String) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    let _logs = tracing::subscriber::set_default(subscriber);
    let mut response = get(layer).await;
    for _ in 1..requests {
        response = get(layer).await;
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (response, text)
}

#[tokio::test(start_paused = true)]
async fn what_is_set_up_wrong_is_logged_and_not_returned() {
    let no_peer = RateLimitLayer::by_policy(memory(), "plain", PeerAddr::new());
    for ((response, log), words) in [
        (logged(&by("unknown"), 5).await, "policy: unknown policy `unknown`"),
        (logged(&by("jobs"), 5).await, "op: "),
        (logged(&no_peer, 5).await, "into_make_service_with_connect_info"),
    ] {
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let expected = r#"{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"see the log of the server"}"#;
        assert_eq!(response.body(), expected);
        assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
        let lines: Vec<_> = log.lines().filter(|line| line.contains(words)).collect();
        assert!(matches!(&lines[..], [line] if line.trim_start().starts_with("ERROR")), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_without_a_fallback_is_503_and_logged() {
    let store = Switchable::default();
    store.0.1.store(true, Ordering::Relaxed);
    let engine = Arc::new(Engine::new(policies(), store, Arc::new(ManualClock::default())));
    let layer = RateLimitLayer::by_policy(engine, "plain", ());
    let (response, log) = logged(&layer, 1).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(field(&response, "retry-after"), Some("1"));
    assert!(!response.body().contains("switched off"), "{}", response.body());
    assert!(log.contains("switched off"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_an_app_is_for_layers_of_that_app() {
    assert_eq!(get(&by("shop").app("shop")).await.status(), StatusCode::OK);
    let (response, log) = logged(&by("shop").app("other"), 1).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(log.contains("policy `shop` is not available to app `other`"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_all_share_is_no_empty_key() {
    let layer =
        RateLimitLayer::by_policy(memory(), "plain", |_: &http::request::Parts| Ok(Key::shared()));
    assert_eq!(get(&layer).await.status(), StatusCode::OK);
}
