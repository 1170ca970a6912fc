//! Tests of the layer in front of a service: the requests that pass, those that do not, and the responses.
#![cfg(all(feature = "tower", feature = "tokio"))]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use sluicegate::tower::{Header, HeaderFormat, Key, KeyError, RateLimit, RateLimitLayer};
use sluicegate::{
    Cost, Delay, KeyedRateLimiter, LeakyBucket, ManualClock, Micros, Rate, Rule, SlidingLog,
    TokenBucket,
};
use tower::{Layer, Service, ServiceExt};

/// A service that counts its calls and its polls for readiness, and is ready at the second poll.
#[derive(Clone, Default)]
struct Inner {
    ready: bool,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    polls: AtomicUsize,
    calls: AtomicUsize,
}

impl Counts {
    fn both(&self) -> (usize, usize) {
        (self.polls.load(Ordering::SeqCst), self.calls.load(Ordering::SeqCst))
    }
}

impl Service<Request<()>> for Inner {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.counts.polls.fetch_add(1, Ordering::SeqCst);
        if !std::mem::replace(&mut self.ready, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been ready");
        self.counts.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new("inner".to_owned())))
    }
}

fn limiter<const N: usize>(
    rules: [(&str, Rule); N],
    clock: &Arc<ManualClock>,
) -> Arc<KeyedRateLimiter<[u8]>> {
    Arc::new(KeyedRateLimiter::with_rules(rules, 100, Arc::clone(clock) as _).unwrap())
}

/// Returns a rule of `burst` at once, then `permits` every `seconds`.
fn bucket(permits: u64, seconds: u64, burst: u64) -> Rule {
    let rate = Rate::new(permits, Micros::from_secs(seconds)).unwrap();
    TokenBucket::new(rate, burst).unwrap().into()
}

fn layer(rule: Rule, clock: &Arc<ManualClock>) -> RateLimitLayer<()> {
    RateLimitLayer::new(limiter([("burst", rule)], clock), ())
}

async fn get<S>(service: &S) -> Response<String>
where
    S: Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone,
{
    service.clone().oneshot(Request::new(())).await.unwrap()
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn exactly_the_burst_passes_and_the_rest_after_retry_after() {
    let clock = Arc::new(ManualClock::default());
    let inner = Inner::default();
    let service = layer(bucket(1, 10, 3), &clock).layer(inner.clone());
    for remaining in [2, 1, 0] {
        let response = get(&service).await;
        assert_eq!((response.status(), response.body().as_str()), (StatusCode::OK, "inner"));
        let reset = 10 * (3 - remaining);
        let expected = format!("\"burst\";r={remaining};t={reset}");
        assert_eq!(field(response.headers(), "ratelimit"), Some(&*expected));
        assert_eq!(field(response.headers(), "ratelimit-policy"), Some("\"burst\";q=3;w=30"));
        assert_eq!(field(response.headers(), "retry-after"), None);
    }
    clock.advance(Micros::from_millis(500));
    let refused = get(&service).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(refused.headers(), "retry-after"), Some("10"));
    assert_eq!(field(refused.headers(), "ratelimit"), Some("\"burst\";r=0;t=10"));
    assert_eq!(field(refused.headers(), "ratelimit-policy"), Some("\"burst\";q=3;w=30"));

    clock.advance(Micros::from_secs(10));
    assert_eq!(get(&service).await.status(), StatusCode::OK);
    assert_eq!(get(&service).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(inner.counts.calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_refusal_is_a_problem_document() {
    let clock = Arc::new(ManualClock::default());
    let service = layer(bucket(1, 10, 1), &clock).named("login").unwrap().layer(Inner::default());
    get(&service).await;
    let refused = get(&service).await;
    assert_eq!(field(refused.headers(), "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(refused.body()).unwrap();
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": "retry in 10 s",
        "violated-policies": ["login"],
    });
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn the_inner_service_is_neither_called_nor_polled_for_a_refusal() {
    let clock = Arc::new(ManualClock::default());
    let inner = Inner::default();
    let mut service = layer(bucket(1, 1, 1), &clock).layer(inner.clone());
    // Ready without a poll; then polled until ready, then called once.
    service.ready().await.unwrap();
    assert_eq!(inner.counts.both(), (0, 0));
    service.call(Request::new(())).await.unwrap();
    assert_eq!(inner.counts.both(), (2, 1));
    service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert_eq!(inner.counts.both(), (2, 1));
}

#[tokio::test]
async fn a_cost_that_can_never_pass_has_no_retry_after() {
    let clock = Arc::new(ManualClock::default());
    let cost = |request: &Parts| {
        let cost = request.headers.get("cost").map_or("1", |cost| cost.to_str().unwrap());
        Cost::new(cost.parse().unwrap()).unwrap()
    };
    let service = layer(bucket(1, 1, 5), &clock).cost(cost).layer(Inner::default());
    let ask = async |cost: u64| {
        let request = Request::get("/").header("cost", cost).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap()
    };
    let never = ask(6).await;
    assert_eq!(never.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(never.headers(), "retry-after"), None);
    assert!(never.body().contains("the cost exceeds the limit of 5"));
    let all = ask(5).await;
    assert_eq!(field(all.headers(), "ratelimit"), Some("\"burst\";r=0;t=5"));
    assert_eq!(field(ask(2).await.headers(), "retry-after"), Some("2"));
}

#[tokio::test]
async fn each_key_has_its_own_budget() {
    let clock = Arc::new(ManualClock::default());
    let limiter = limiter([("burst", bucket(1, 1, 1))], &clock);
    let layer = RateLimitLayer::new(limiter, Header::new("x-api-key").unwrap());
    let service = layer.layer(Inner::default());
    let ask = async |key: &str| {
        let request = Request::get("/").header("x-api-key", key).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(ask("alice").await, StatusCode::OK);
    assert_eq!(ask("alice").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask("bob").await, StatusCode::OK);
}

#[tokio::test]
async fn a_request_without_a_key_goes_no_further() {
    let clock = Arc::new(ManualClock::default());
    let limiter = limiter([("burst", bucket(1, 1, 1))], &clock);
    let inner = Inner::default();
    let missing = RateLimitLayer::new(limiter.clone(), Header::new("x-api-key").unwrap())
        .layer(inner.clone());
    let response = get(&missing).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let problem: serde_json::Value = serde_json::from_str(response.body()).unwrap();
    assert_eq!(problem["status"], 400);
    assert_eq!(problem["detail"], "header `x-api-key`: is missing");

    let no_peer = sluicegate::tower::PeerAddr::new();
    let response = get(&RateLimitLayer::new(limiter, no_peer).layer(inner.clone())).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!response.body().contains("into_make_service_with_connect_info"));
    assert_eq!(inner.counts.both(), (0, 0));
}

#[tokio::test]
async fn the_rule_that_refused_is_named() {
    let clock = Arc::new(ManualClock::default());
    let hourly = SlidingLog::new(3, Micros::from_secs(3_600)).unwrap().into();
    let limiter = limiter([("burst", bucket(2, 1, 2)), ("hourly", hourly)], &clock);
    let layer = RateLimitLayer::new(limiter, ()).named("api").unwrap();
    let service = layer.layer(Inner::default());
    let mut answers = Vec::new();
    for _ in 0..3 {
        let response = get(&service).await;
        let policy = field(response.headers(), "ratelimit-policy");
        assert_eq!(policy, Some("\"api.burst\";q=2;w=1, \"api.hourly\";q=3;w=3600"));
        let limit = field(response.headers(), "ratelimit").unwrap().to_owned();
        answers.push((response.status().as_u16(), limit));
    }
    clock.advance(Micros::SECOND);
    for _ in 0..2 {
        let response = get(&service).await;
        let limit = field(response.headers(), "ratelimit").unwrap().to_owned();
        answers.push((response.status().as_u16(), limit));
    }
    let expected = [
        (200, "\"api.burst\";r=1;t=1"),
        (200, "\"api.burst\";r=0;t=1"),
        (429, "\"api.burst\";r=0;t=1"),
        (200, "\"api.hourly\";r=0;t=3600"),
        (429, "\"api.hourly\";r=0;t=3599"),
    ];
    assert_eq!(answers, expected.map(|(status, limit)| (status, limit.to_owned())));
}

#[tokio::test]
async fn of_two_rules_with_the_same_limit_the_one_that_refused_is_named() {
    let clock = Arc::new(ManualClock::default());
    let rules = [("quick", bucket(1, 1, 1)), ("slow", bucket(1, 60, 1))];
    let service = RateLimitLayer::new(limiter(rules, &clock), ()).layer(Inner::default());
    get(&service).await;
    let refused = get(&service).await;
    assert_eq!(field(refused.headers(), "ratelimit"), Some("\"slow\";r=0;t=60"));
}

#[tokio::test]
async fn the_header_fields_are_a_choice() {
    let clock = Arc::new(ManualClock::default());
    let silent = layer(bucket(1, 1, 1), &clock).formats([]).layer(Inner::default());
    assert!(get(&silent).await.headers().is_empty());
    let refused = get(&silent).await;
    assert_eq!(field(refused.headers(), "retry-after"), Some("1"));
    assert_eq!(field(refused.headers(), "ratelimit"), None);

    let refusals = layer(bucket(1, 1, 1), &clock).headers_on_allowed(false).layer(Inner::default());
    assert!(get(&refusals).await.headers().is_empty());
    assert_eq!(field(get(&refusals).await.headers(), "ratelimit"), Some("\"burst\";r=0;t=1"));

    let older = layer(bucket(1, 1, 1), &clock).formats([HeaderFormat::XRateLimit]);
    let headers = get(&older.layer(Inner::default())).await.headers().clone();
    assert_eq!(field(&headers, "x-ratelimit-limit"), Some("1"));
    assert_eq!(field(&headers, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(field(&headers, "x-ratelimit-reset"), Some("1"));
    assert_eq!(field(&headers, "ratelimit"), None);
}

#[tokio::test]
async fn a_custom_response_to_a_refusal_still_says_when_to_come_again() {
    let clock = Arc::new(ManualClock::default());
    let layer = layer(bucket(1, 7, 1), &clock).on_denied(|request, decision, rule| {
        let body = format!("{rule} {} {}", request.uri, decision.limit);
        Response::builder().status(503).header("x-mine", "1").body(body).unwrap()
    });
    let service = layer.layer(Inner::default());
    get(&service).await;
    let refused = get(&service).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.body(), "burst / 1");
    assert_eq!(field(refused.headers(), "x-mine"), Some("1"));
    assert_eq!(field(refused.headers(), "retry-after"), Some("7"));
}

/// Returns the delay of each of four requests at once, ms, or the seconds of its `Retry-After`.
async fn held(
    rule: Rule,
    hold: impl FnOnce(RateLimitLayer<()>) -> RateLimitLayer<()>,
) -> Vec<Result<u128, String>> {
    let clock = Arc::new(ManualClock::default());
    let service = hold(layer(rule, &clock)).layer(Inner::default());
    let calls = std::iter::repeat_with(|| service.clone().call(Request::new(()))).take(4);
    let start = tokio::time::Instant::now();
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        let response = call.await.unwrap();
        answers.push(match field(response.headers(), "retry-after") {
            None => Ok(start.elapsed().as_millis()),
            Some(seconds) => Err(seconds.to_owned()),
        });
    }
    answers
}

fn refused(seconds: &str) -> Result<u128, String> {
    Err(seconds.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_holds_requests_back_as_long_as_it_says() {
    let rule = || LeakyBucket::new(Rate::per_second(1).unwrap(), 2, Delay::Above(0)).unwrap();
    let as_told = held(rule().into(), |layer| layer).await;
    assert_eq!(as_told, [Ok(0), Ok(1_000), Ok(2_000), refused("1")]);
    // Without delays, a request that would have to wait is refused, and not charged.
    let never = held(rule().into(), RateLimitLayer::hold_never).await;
    assert_eq!(never, [Ok(0), refused("1"), refused("1"), refused("1")]);
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_books_the_future_up_to_the_longest_wait() {
    let never = held(bucket(1, 1, 2), |layer| layer).await;
    assert_eq!(never, [Ok(0), Ok(0), refused("1"), refused("1")]);
    let up_to = held(bucket(1, 1, 2), |layer| layer.hold_up_to(Micros::SECOND)).await;
    assert_eq!(up_to, [Ok(0), Ok(0), Ok(1_000), refused("1")]);
}

#[test]
fn a_policy_has_a_name_that_fits() {
    let clock = Arc::new(ManualClock::default());
    let error = layer(bucket(1, 1, 1), &clock).named("no name").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid name `no name`: expected 1 to 128 bytes of `[a-z0-9._-]`"
    );
}

#[test]
fn a_service_is_clone_send_and_sync_and_its_layer_too() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn send<T: Send + 'static>(_: &T) {}
    let clock = Arc::new(ManualClock::default());
    let layer = layer(bucket(1, 1, 1), &clock);
    let mut service: RateLimit<Inner, ()> = layer.layer(Inner::default());
    check(&layer);
    check(&service);
    send(&service.call(Request::new(())));
}

#[tokio::test]
async fn a_function_can_say_whose_budget_it_is_or_why_not() {
    let clock = Arc::new(ManualClock::default());
    let limiter = limiter([("burst", bucket(1, 1, 1))], &clock);
    let key = |request: &Parts| match request.uri.query() {
        Some(user) => Key::new(user),
        None => Err(KeyError::Rejected("expected a user".to_owned())),
    };
    let service = RateLimitLayer::new(limiter, key).layer(Inner::default());
    let ask = async |uri: &str| {
        let request = Request::get(uri).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ask("/?alice").await, 200);
    assert_eq!(ask("/?alice").await, 429);
    assert_eq!(ask("/?bob").await, 200);
    assert_eq!(ask("/").await, 400);
    assert_eq!(ask(&format!("/?{}", "x".repeat(1025))).await, 400);
}
