//! The layer that holds a permit for the time of a request.
#![cfg(all(feature = "tower", feature = "engine"))]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::MemoryStore;
use sluicegate::tower::ConcurrencyLayer;
use sluicegate::{Clock, Cost, Engine, Micros, Request as Ask, Verb};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt};

const POLICIES: &str = "
policies:
  - { name: five, rules: [ { name: running, concurrency: { limit: 5, ttl: 30s } } ] }
  - { name: line, overflow: { queue: { max_wait: 10s } }, rules: [ { concurrency: { limit: 1, ttl: 30s, queue: 2 } } ] }
  - { name: quiet, overflow: shadow, rules: [ { concurrency: { limit: 1, ttl: 30s } } ] }
  - { name: bucket, rules: [ { token_bucket: { rate: 1/s } } ] }
";

/// The time of tokio, which stands still in these tests unless all wait.
#[derive(Debug)]
struct Paused(tokio::time::Instant);

impl Clock for Paused {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

fn engine() -> Arc<Engine> {
    let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
    let clock = Arc::new(Paused(tokio::time::Instant::now()));
    Arc::new(Engine::new(policies, MemoryStore::default(), clock))
}

/// Number of permits of a policy that nobody holds, after tasks that are due have run.
async fn free(engine: &Arc<Engine>, policy: &str) -> u64 {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let peek = Ask::new(policy, None, Verb::Peek { cost: Cost::ONE });
    engine.turn().decide(&peek).await.unwrap().answer.decision.remaining
}

type Answer = Response<Body>;

/// A service of axum behind the layer.
fn service(
    engine: &Arc<Engine>,
    policy: &str,
    handler: axum::routing::MethodRouter,
) -> axum::Router {
    axum::Router::new().route("/", handler).layer(ConcurrencyLayer::by_policy(
        Arc::clone(engine),
        policy,
        (),
    ))
}

async fn ask(service: &axum::Router) -> Answer {
    service.clone().oneshot(Request::new(Body::empty())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn five_of_fifty_run_at_once_and_the_others_are_refused() {
    let engine = engine();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let most = Arc::clone(&most);
        get(async move || {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            "done"
        })
    };
    let service = service(&engine, "five", handler);
    let answers = join_all((0..50).map(|_| ask(&service))).await;
    let count = |status| answers.iter().filter(|answer| answer.status() == status).count();
    assert_eq!((count(StatusCode::OK), count(StatusCode::TOO_MANY_REQUESTS)), (5, 45));
    assert_eq!(most.load(Ordering::SeqCst), 5);
    let refused = answers.iter().find(|answer| answer.status() != 200).unwrap();
    assert_eq!(refused.headers()["retry-after"], "30");
    assert_eq!(refused.headers()["ratelimit"], "\"running\";r=0;t=30");
    // The bodies are not sent yet.
    assert_eq!(free(&engine, "five").await, 0);
    drop(answers);
    assert_eq!(free(&engine, "five").await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_free_again_after_every_end_of_a_request() {
    let engine = engine();
    let hangs = service(&engine, "five", get(async || pending::<&str>().await));
    // A client that goes away, before and after the store has answered.
    for polls in 0..3 {
        let mut asking = Box::pin(ask(&hangs));
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut asking).is_pending());
            tokio::task::yield_now().await;
        }
        drop(asking);
        assert_eq!(free(&engine, "five").await, 5, "after {polls} polls");
    }
    let timeout = tokio::time::timeout(Duration::from_secs(9), ask(&hangs)).await;
    assert!(timeout.is_err());
    assert_eq!(free(&engine, "five").await, 5);
    let panics = service(&engine, "five", get(async || -> &str { panic!("as a test does") }));
    let task = tokio::spawn(async move { ask(&panics).await });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(free(&engine, "five").await, 5);
    // An empty body, one that is read to its end, and one that is not.
    let empty = service(&engine, "five", get(async || StatusCode::NO_CONTENT));
    drop(ask(&empty).await);
    assert_eq!(free(&engine, "five").await, 5);
    let text = service(&engine, "five", get(async || "text"));
    let mut body = ask(&text).await.into_body();
    assert_eq!(free(&engine, "five").await, 4);
    while body.frame().await.is_some() {}
    assert_eq!(free(&engine, "five").await, 5);
    drop(body);
    assert_eq!(free(&engine, "five").await, 5);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_an_hour_holds_its_permit() {
    let engine = engine();
    let (frames, sent) =
        tokio::sync::mpsc::channel::<Result<http_body::Frame<axum::body::Bytes>, Infallible>>(1);
    let sent = Arc::new(tokio::sync::Mutex::new(Some(sent)));
    let handler = get(async move || {
        let mut sent = sent.lock().await.take().unwrap();
        let frames = futures_util::stream::poll_fn(move |cx| sent.poll_recv(cx));
        Body::new(StreamBody::new(frames))
    });
    let service = service(&engine, "five", handler);
    let answer = ask(&service).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(free(&engine, "five").await, 4);
    drop(frames);
    assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(free(&engine, "five").await, 5);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_line_as_the_policy_permits() {
    let engine = engine();
    let order = Arc::new(Semaphore::new(0));
    let service = service(&engine, "line", {
        let order = Arc::clone(&order);
        get(async move || {
            order.acquire().await.unwrap().forget();
            "done"
        })
    });
    let first = tokio::spawn({
        let service = service.clone();
        async move { ask(&service).await.status() }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Two wait, of which one goes away, and the place of that is taken by another.
    let mut gone = Box::pin(ask(&service));
    assert!(futures_util::poll!(&mut gone).is_pending());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let (second, third) = (ask(&service), ask(&service));
    drop(gone);
    tokio::time::sleep(Duration::from_millis(1)).await;
    order.add_permits(3);
    let (second, third) =
        tokio::join!(async { second.await.status() }, async { third.await.status() });
    assert_eq!([first.await.unwrap(), second, third], [StatusCode::OK; 3]);
    assert_eq!(free(&engine, "line").await, 1);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_requests_leave_no_permit_held() {
    let engine = engine();
    let service = service(&engine, "five", get(async || "done"));
    for _ in 0..2_000 {
        join_all((0..5).map(async |_| {
            let answer = ask(&service).await;
            answer.into_body().collect().await.unwrap();
        }))
        .await;
    }
    assert_eq!(free(&engine, "five").await, 5);
}

#[tokio::test(start_paused = true)]
async fn shadow_passes_and_a_policy_without_permits_is_a_fault_of_the_server() {
    let engine = engine();
    let quiet = service(&engine, "quiet", get(async || "done"));
    let answers = join_all((0..3).map(|_| ask(&quiet))).await;
    assert!(answers.iter().all(|answer| answer.status() == 200));
    for policy in ["bucket", "unknown"] {
        let answer = ask(&service(&engine, policy, get(async || "done"))).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR, "{policy}");
    }
}

#[test]
fn without_a_runtime_a_request_is_not_decided() {
    let layer = {
        let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
        ConcurrencyLayer::by_policy(Arc::new(Engine::in_memory(policies)), "five", ())
    };
    let inner =
        tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let answer = futures_util::FutureExt::now_or_never(layer.layer(inner).call(Request::new(())));
    assert_eq!(answer.unwrap().unwrap().status(), StatusCode::INTERNAL_SERVER_ERROR);
}
