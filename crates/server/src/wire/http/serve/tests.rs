//! Time limits of a connection, and the paths of the wire.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::policy::Document;
use sluicegate::{Engine, Micros};
use sluicegate_policy::{DescriptorTree, PolicySet};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::body::{BODY_BYTES_MAX, BODY_WAIT_MAX};
use super::*;
use crate::authenticator::tests::open_listener;
use crate::config::Listen;
use crate::store::AnyStore;
use crate::wire::foreign::ForeignClients;
use crate::wire::rls::{self, RateLimits};

const LIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n";

fn handler() -> HttpHandler {
    let (engine, headers) =
        (ServerEngine::in_memory(PolicySet::default()), BudgetHeaders::default());
    HttpHandler { engine, headers, listener_auth: open_listener(Wire::Http) }
}

/// A client, and the server that it is connected to, which the token stops.
fn connect() -> (DuplexStream, CancellationToken, JoinHandle<()>) {
    let (client, server) = tokio::io::duplex(BODY_BYTES_MAX);
    let stop = CancellationToken::new();
    let handler = handler();
    let hosts = Hosts::new(Some(&Listen::Unix("/s".into())), Arc::new([]));
    let service = Arc::new(HttpService {
        router: decision_routes(health::routes(CancellationToken::new()), handler.clone()),
        handler,
        hosts,
        foreign: ForeignClients::default(),
    });
    let serving =
        tokio::spawn(decisions(service, server, Peer::Local, Arc::default(), stop.clone()));
    (client, stop, serving)
}

/// The server's answer to `request` until it closes the connection, and the seconds it took.
async fn answer(request: &[u8]) -> (String, u64) {
    let (mut client, _, _) = connect();
    let begin = Instant::now();
    client.write_all(request).await.expect("the server reads");
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.expect("the server says text");
    (reply, begin.elapsed().as_secs())
}

/// Reads the answer to [`LIVE`] on a connection that goes on.
async fn live(client: &mut DuplexStream) {
    client.write_all(LIVE).await.expect("the server reads");
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n\r\nok\n") {
        reply.push(client.read_u8().await.expect("the server answers"));
    }
}

/// The paths of a router, found in its debug output.
fn paths(router: &Router) -> BTreeSet<String> {
    let told = format!("{router:?}");
    let routes = told.split("fallback_router").next().unwrap_or_default();
    let quoted = routes.split('"').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with('/')).map(str::to_owned).collect()
}

/// A clock that counts how often it is read; each time it is a second later.
#[derive(Debug, Default)]
struct Counted(AtomicU64);

impl sluicegate::Clock for Counted {
    fn now(&self) -> Micros {
        Micros::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn what_comes_in_one_request_is_decided_by_one_reading_of_the_clock() {
    let policies = "policies:
      - { name: a, match: { path: { exact: /x } }, rules: [ { token_bucket: { rate: 1/s, burst: 9 } } ] }
      - { name: b, match: { path: { exact: /x } }, rules: [ { token_bucket: { rate: 1/s, burst: 9 } } ] }
      - { name: c, rules: [ { token_bucket: { rate: 1/s, burst: 9 } } ] }";
    let policies = PolicySet::new(Document::parse(policies).expect("it is a document"));
    let (clock, store) = (Arc::new(Counted::default()), AnyStore::Memory(Arc::default()));
    let engine = Arc::new(ServerEngine::new(Engine::new(policies, store, Arc::clone(&clock) as _)));
    let headers = BudgetHeaders::default();
    let handler = HttpHandler {
        engine: Arc::clone(&engine),
        headers,
        listener_auth: open_listener(Wire::Http),
    };
    let limits = Arc::new(RateLimits::new(engine, DescriptorTree::default(), headers));
    let networks = crate::config::Config::default().http.trusted_peers;
    let trusted = Arc::new(TrustedPeers::new(networks.as_slice()));
    let messages = rls::routes(limits, handler.listener_auth.clone(), CancellationToken::new());
    let router = router(&handler, health::routes(CancellationToken::new()), trusted, messages);
    let atomic = r#"{"atomic":true,"checks":[{"policy":"a"},{"policy":"b"},{"policy":"c"}]}"#;
    let each = r#"{"checks":[{"policy":"a"},{"policy":"b"},{"policy":"c"}]}"#;
    let descriptor = |policy| format!(r#"{{"entries":[{{"key":"policy","value":"{policy}"}}]}}"#);
    let descriptors = ["a", "b", "c"].map(descriptor).join(",");
    let message = format!(r#"{{"domain":"sluicegate","descriptors":[{descriptors}]}}"#);
    for (path, body, told) in [
        ("/v1/check:batch", atomic, r#""answers":[{"allowed":true"#),
        ("/v1/check:batch", each, r#""allowed":true"#),
        ("/json", &message, r#""overallCode":"OK""#),
        ("/v1/auth", "", ""),
    ] {
        let before = clock.0.load(Ordering::Relaxed);
        let request = Request::builder().method(Method::POST).uri(path);
        let request = request.header("content-type", "application/json").header("host", "x");
        let request = request.header("x-original-uri", "/x").header("x-original-method", "GET");
        let request = request.body(AnyBody::from(body.to_owned())).expect("it is a request");
        let request = auth::knowing(Peer::Local, request);
        let answered = router.clone().oneshot(request).await.expect("it is answered");
        assert_eq!(answered.status(), StatusCode::OK, "{path}");
        let body = axum::body::to_bytes(answered.into_body(), 1 << 16).await.expect("it is short");
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains(told), "{path}: {text}");
        assert_eq!(clock.0.load(Ordering::Relaxed) - before, 1, "{path} {text}");
    }
}

#[tokio::test]
async fn what_is_answered_is_described_and_nothing_else_is() {
    let handler = handler();
    let (tree, headers) = (DescriptorTree::default(), BudgetHeaders::default());
    let limits = Arc::new(RateLimits::new(Arc::clone(&handler.engine), tree, headers));
    let messages = rls::routes(limits, handler.listener_auth.clone(), CancellationToken::new());
    let router = router(
        &handler,
        health::routes(CancellationToken::new()),
        Arc::new(TrustedPeers::new(&[])),
        messages,
    );
    let description: serde_json::Value = serde_json::from_str(openapi::text()).unwrap();
    let described = description["paths"].as_object().unwrap();
    assert_eq!(paths(&router), described.keys().cloned().collect::<BTreeSet<_>>());
    for (path, methods) in described {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse::<Method>().unwrap();
            let request = Request::builder().method(&method).uri(path);
            let request = auth::knowing(Peer::Local, request.body(AnyBody::empty()).unwrap());
            let answered = router.clone().oneshot(request).await.unwrap();
            assert_ne!(answered.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_end_is_waited_for_so_long_and_no_longer() {
    for head in [&b""[..], b"POST /v1/check HTTP/1.1\r\nhost: t"] {
        assert_eq!(answer(head).await, (String::new(), HEAD_WAIT_MAX.as_secs()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_so_long_and_no_longer() {
    let (reply, seconds) = answer(LIVE).await;
    assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply}");
    assert_eq!(seconds, HEAD_WAIT_MAX.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_gets_a_problem_and_the_connection_ends() {
    let head = "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
    for body in ["content-length: 9\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        let (reply, seconds) = answer(format!("{head}{body}").as_bytes()).await;
        assert!(reply.starts_with("HTTP/1.1 408 Request Timeout"), "{reply}");
        assert!(reply.contains(r#""detail":"body: not received within 10 s""#), "{reply}");
        assert_eq!(seconds, BODY_WAIT_MAX.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_long_is_refused_before_it_ends() {
    let head = format!("GET /livez HTTP/1.1\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
    let (reply, seconds) = answer(head.as_bytes()).await;
    assert!(reply.starts_with("HTTP/1.1 431 "), "{reply}");
    assert_eq!(seconds, 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_for_its_next_request_ends_when_told_to_stop() {
    for asked_before in [true, false] {
        let (mut client, stop, serving) = connect();
        if asked_before {
            live(&mut client).await;
        }
        tokio::task::yield_now().await;
        let begin = Instant::now();
        stop.cancel();
        serving.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "{asked_before}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_flight_is_answered_after_the_server_is_told_to_stop() {
    let (mut client, stop, serving) = connect();
    let (begin, rest) = LIVE.split_at(9);
    client.write_all(begin).await.unwrap();
    tokio::task::yield_now().await;
    stop.cancel();
    tokio::task::yield_now().await;
    client.write_all(rest).await.unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("connection: close"), "{reply}");
    serving.await.unwrap();
}
