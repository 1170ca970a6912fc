//! Configurations and descriptor trees that change while the server runs, for gateways and
//! operators.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use serde_json::Value;
use sluicegate_testkit::until;

use super::{Server, ask, configuration, path, request};

/// Longest time a test waits for a change, which takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

fn file(domain: &str, key: &str, limit: u32) -> String {
    let limit = format!("rate_limit: {{ unit: year, requests_per_unit: {limit} }}");
    format!("domain: {domain}\ndescriptors: [{{ key: {key}, {limit} }}]")
}

/// The status of the policies for operators.
fn status(server: &Server) -> Value {
    let mut stream = TcpStream::connect(server.admin).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let head = "GET /v1/policies HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (_, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    serde_json::from_str(body).expect("it is JSON")
}

/// Waits until the status is `done`.
async fn seen(server: &Server, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let look = async || Some(status(server)).filter(&done);
    until(what, PATIENCE, look).await.expect("it comes true")
}

/// The limit and its remaining permits.
async fn limit(server: &Server, domain: &str, key: &str) -> (Option<u32>, u32) {
    let response = ask(&mut server.client().await, request(domain, &[(key, "x")])).await;
    let status = &response.statuses[0];
    let limit = status.current_limit.as_ref();
    (limit.map(|RateLimit { requests_per_unit, .. }| *requests_per_unit), status.limit_remaining)
}

#[tokio::test]
async fn a_configuration_that_changes_is_in_force_within_seconds_and_usage_stays() {
    let folder = configuration(&[("a.yaml", &file("shop", "user", 10))]);
    let server = Server::start(&["--envoy-config", path(folder.path())]);
    assert_eq!(limit(&server, "shop", "user").await, (Some(10), 9));
    assert_eq!(limit(&server, "edge", "path").await, (None, 0));
    let first = status(&server);
    fs::write(folder.path().join("a.yaml"), file("shop", "user", 5)).unwrap();
    fs::write(folder.path().join("b.yaml"), file("edge", "path", 3)).unwrap();
    let has_both = |seen: &Value| seen["policies"].as_array().is_some_and(|all| all.len() == 2);
    let second = seen(&server, "both are in force", has_both).await;
    assert_ne!(first["descriptors"]["hash"], second["descriptors"]["hash"]);
    // One was taken under the limit of ten.
    seen(&server, "both files are read", |seen| seen["error"] == Value::Null).await;
    assert_eq!(limit(&server, "shop", "user").await, (Some(5), 3));
    assert_eq!(limit(&server, "edge", "path").await, (Some(3), 2));
    fs::remove_file(folder.path().join("b.yaml")).unwrap();
    let has_one = |seen: &Value| seen["policies"].as_array().is_some_and(|all| all.len() == 1);
    seen(&server, "only one is left", has_one).await;
    assert_eq!(limit(&server, "edge", "path").await, (None, 0));
}

#[tokio::test]
async fn a_bad_change_of_a_configuration_is_refused_whole_and_told() {
    let folder = configuration(&[("a.yaml", &file("shop", "user", 10))]);
    let server = Server::start(&["--envoy-config", path(folder.path())]);
    let bad = file("edge", "path", 3).replace("year", "decade");
    fs::write(folder.path().join("b.yaml"), &bad).unwrap();
    let problem = "b.yaml: descriptors[0].rate_limit.unit: expected `second`";
    let refused = |seen: &Value| seen["error"].as_str().is_some_and(|it| it.contains(problem));
    let told = seen(&server, "it is refused", refused).await;
    assert_eq!((&told["version"], &told["refused"]), (&1.into(), &1.into()));
    // The valid part of it is not in force, either.
    fs::write(folder.path().join("a.yaml"), file("shop", "user", 20)).unwrap();
    seen(&server, "it is refused again", |seen| seen["refused"] == 2).await;
    assert_eq!(limit(&server, "shop", "user").await, (Some(10), 9));
    fs::remove_file(folder.path().join("b.yaml")).unwrap();
    seen(&server, "it is good", |seen| seen["version"] == 2).await;
    assert_eq!(limit(&server, "shop", "user").await, (Some(20), 18));
}

#[tokio::test]
async fn a_tree_changes_together_with_the_policies_that_it_leads_to() {
    let policy = |name: &str| {
        format!(
            "policies: [{{ name: {name}, rules: [{{ fixed_window: {{ limit: 9, window: 365d }} }}] }}]"
        )
    };
    let tree = |key: &str, policy: &str| {
        format!("descriptors: [{{ domain: d, entries: [{{ key: {key} }}], policy: {policy} }}]")
    };
    let (first_tree, first_policy) = (tree("a", "one"), policy("one"));
    let folder = configuration(&[("tree.yaml", &first_tree), ("policies.yaml", &first_policy)]);
    let (at_tree, at_policies) =
        (folder.path().join("tree.yaml"), folder.path().join("policies.yaml"));
    let server =
        Server::start(&["--policies", path(&at_policies), "--descriptors", path(&at_tree)]);
    assert_eq!(limit(&server, "d", "a").await, (Some(9), 8));
    // A tree that leads to a policy which does not exist yet.
    fs::write(&at_tree, tree("b", "two")).unwrap();
    let leads_nowhere =
        |seen: &Value| seen["error"].as_str().is_some_and(|error| error.contains("`two`"));
    seen(&server, "it leads nowhere", leads_nowhere).await;
    assert_eq!(limit(&server, "d", "a").await, (Some(9), 7));
    fs::write(&at_policies, policy("two")).unwrap();
    seen(&server, "it leads there", |seen| seen["version"] == 2).await;
    assert_eq!(limit(&server, "d", "a").await, (None, 0));
    assert_eq!(limit(&server, "d", "b").await, (Some(9), 8));
}

#[tokio::test]
async fn no_request_fails_while_limits_come_and_go() {
    let folder = configuration(&[("a.yaml", &file("shop", "user", 1_000_000))]);
    let server = Server::start(&["--envoy-config", path(folder.path())]);
    let mut client = server.client().await;
    for version in 2..5 {
        let key = if version % 2 == 0 { "other" } else { "user" };
        fs::write(folder.path().join("a.yaml"), file("shop", key, 1_000_000)).unwrap();
        let asked = async || {
            for _ in 0..50 {
                let mut client = client.clone();
                let response = client.should_rate_limit(request("shop", &[("user", "x")]));
                response.await.expect("it is decided, or meets no limit");
            }
            (status(&server)["version"] == version).then_some(())
        };
        until("it is in force", PATIENCE, asked).await.expect("it comes true");
    }
    ask(&mut client, request("shop", &[("user", "x")])).await;
}
