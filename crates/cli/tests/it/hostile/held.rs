//! Clients that close their connection while a queue holds them: each wire frees their places.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use sluicegate_testkit::until;
use tonic::transport::Endpoint;

use super::{Attacked, post};
use crate::program::PATIENCE;

/// After the first request, others wait for nearly a minute, or for as long as an Envoy waits.
const POLICIES: &str = "
policies:
  - { name: q, overflow: { queue: { max_wait: 1h } }, rules: [ { fixed_window: { limit: 1, window: 55s, align: first } } ] }
  - { name: e, overflow: { queue: { max_wait: 1h } }, rules: [ { fixed_window: { limit: 1, window: 8s, align: first } } ] }
";

/// Longest time until requests of closed connections are no longer held.
const FREED_WITHIN: Duration = Duration::from_secs(4);

const HELD: usize = 5;

/// A server whose only policy is an empty queue.
async fn queue() -> (Attacked, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("there is room for files");
    let path = folder.path().join("policies.yaml");
    fs::write(&path, POLICIES).expect("it can be written");
    let server = crate::server::Server::start(&format!("[policies]\npath = {path:?}"));
    let server = Attacked { server, ca: None, kib: 0 };
    until_held(&server, 0).await;
    (server, folder)
}

/// Number of held requests, according to the metrics.
fn held(server: &Attacked) -> usize {
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let said = server.answer("admin", request);
    let line = said.lines().find_map(|line| line.strip_prefix("sluicegate_held_requests "));
    line.and_then(|held| held.trim().parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

async fn until_held(server: &Attacked, count: usize) {
    let patience = if count == 0 { FREED_WITHIN } else { PATIENCE };
    let held = until("so many are held", patience, async || (held(server) == count).then_some(()));
    held.await.unwrap_or_else(|error| panic!("{error}: {} are", self::held(server)));
}

/// Checks that all of `requests`, each on its own connection, are held except one, and that none is once they close.
async fn check(scheme: &str, requests: &[Vec<u8>], held: usize) {
    let (server, _folder) = queue().await;
    let ask = |request: &Vec<u8>| {
        let mut stream = server.connect(scheme);
        stream.write_all(request).expect("it reads");
        stream
    };
    let asking: Vec<TcpStream> = requests.iter().map(ask).collect();
    until_held(&server, held).await;
    drop(asking);
    until_held(&server, 0).await;
}

#[tokio::test]
async fn who_hangs_up_on_http_is_not_held() {
    let check_q = post("/v1/check", r#"{"policy":"q","key":"k"}"#);
    check("http", &vec![check_q; HELD + 1], HELD).await;
}

#[tokio::test]
async fn a_pipeline_of_http_that_hangs_up_is_not_held() {
    let check_q = post("/v1/check", r#"{"policy":"q","key":"k"}"#);
    let check_q = String::from_utf8(check_q).expect("it is text");
    let pipeline = check_q.replace("connection: close\r\n", "").repeat(3).into_bytes();
    // The first request passes and is answered; the second of its pipeline is held.
    check("http", &vec![pipeline; HELD + 1], HELD + 1).await;
}

#[tokio::test]
async fn who_hangs_up_on_json_of_descriptors_is_not_held() {
    let entries = r#"[{"key":"policy","value":"e"}]"#;
    let json = format!(r#"{{"domain":"sluicegate","descriptors":[{{"entries":{entries}}}]}}"#);
    check("http", &vec![post("/json", &json); HELD + 1], HELD).await;
}

#[tokio::test]
async fn a_gateway_that_hangs_up_is_not_held() {
    let auth = b"GET /v1/auth/q HTTP/1.1\r\nhost: localhost\r\nx-original-uri: /\r\nx-original-method: GET\r\n\r\n";
    check("http", &vec![auth.to_vec(); HELD + 1], HELD).await;
}

#[tokio::test]
async fn a_redis_client_that_hangs_up_is_not_held_whatever_it_has_said_besides() {
    let checks = "SG.CHECK q k\r\n".repeat(HELD + 1);
    check("resp", &[checks.clone().into_bytes()], HELD).await;
    // More than the server reads while the checks wait.
    let more = format!("{checks}{}", "PING\r\n".repeat(20_000));
    check("resp", &[more.into_bytes()], HELD).await;
}

#[tokio::test]
async fn an_envoy_that_hangs_up_is_not_held() {
    let (server, _folder) = queue().await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address("rls")));
    let channel = endpoint.expect("it is a URL").connect().await.expect("it listens");
    let entry = Entry { key: "policy".to_owned(), value: "e".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let asking: Vec<_> = (0..=HELD)
        .map(|_| {
            let mut client = RateLimitServiceClient::new(channel.clone());
            let descriptors = vec![descriptor.clone()];
            let domain = "sluicegate".to_owned();
            let request = RateLimitRequest { domain, descriptors, hits_addend: 1 };
            tokio::spawn(async move { client.should_rate_limit(request).await.map(drop) })
        })
        .collect();
    drop(channel);
    until_held(&server, HELD).await;
    asking.iter().for_each(tokio::task::JoinHandle::abort);
    until_held(&server, 0).await;
}
