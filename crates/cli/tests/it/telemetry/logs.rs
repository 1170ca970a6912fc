//! The standard error of a server.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::Value;

use super::Server;
use crate::program::program;

/// The first line with `what` after the policies became invalid.
fn told_of_spoilt_policies(options: &[&str], what: &str) -> String {
    let mut server = Server::start_with(options, Stdio::piped());
    let lines = BufReader::new(server.process.stderr.take().expect("it is piped")).lines();
    let spoilt = "policies: [ { name: \"a\\nERROR b\\e[31m\", rules: [] } ]";
    fs::write(server.folder.path().join("policies.yaml"), spoilt).expect("it can be written");
    let mut lines = lines.map(|line| line.expect("it says text"));
    lines.find(|line| line.contains(what)).expect("it says so")
}

#[test]
fn a_line_of_text_is_what_is_said_and_nothing_can_be_put_into_it() {
    let line = told_of_spoilt_policies(&[], "reload rejected");
    let (time, message) = line.split_once("Z  WARN ").expect("time, level and message");
    assert!(time.parse::<jiff::civil::DateTime>().is_ok(), "{line}");
    assert!(
        message.starts_with("policies: reload rejected, keeping the current version: "),
        "{line}"
    );
    assert!(line.contains("policies[0].name") && !line.contains('\u{1b}'), "{line}");
}

#[test]
fn a_line_of_json_is_an_object() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let config = folder.path().join("c.toml");
    fs::write(&config, "[log]\nformat = 'json'\nlevel = 'warn'\n").expect("it can be written");
    let options = ["--config", config.to_str().expect("a plain name")];
    let line = told_of_spoilt_policies(&options, "policies");
    let line: Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(
        (&line["level"], &line["target"]),
        (&"WARN".into(), &"sluicegate_server::policies::live".into())
    );
    let message = line["message"].as_str().expect("a text");
    assert!(
        message.starts_with("policies: reload rejected, keeping the current version: "),
        "{message}"
    );
    assert!(line["timestamp"].is_string());
}

#[tokio::test]
async fn unknown_policies_and_domains_are_named_once_in_a_while() {
    let server = crate::server::Server::start("");
    for _ in 0..3 {
        let mut client = TcpStream::connect(server.address("resp")).expect("it listens");
        let check = "*3\r\n$8\r\nSG.CHECK\r\n$14\r\nno-such\u{1b}policy\r\n$5\r\nalice\r\nQUIT\r\n";
        client.write_all(check.as_bytes()).expect("it reads");
        client.read_to_end(&mut Vec::new()).expect("it answers");
    }
    let url = format!("http://{}", server.address("rls"));
    let mut client = RateLimitServiceClient::connect(url).await.expect("it listens");
    for _ in 0..3 {
        let descriptors = vec![RateLimitDescriptor::default()];
        let domain = "no-such\u{1b}domain".to_owned();
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        client.should_rate_limit(request).await.expect("it passes");
    }
    for line in [
        "WARN resp: request for unknown policy `no-such\\u{1b}policy`, not decided (1 such requests since the last line)",
        "WARN rls: unknown domain `no-such\\u{1b}domain`, nothing is limited (1 such requests since the last line); \
         expected a domain of `rls.descriptors` or `rls.envoy_config`, the name of a policy, or `sluicegate`",
    ] {
        let told = server.told();
        assert_eq!(told.matches(line).count(), 1, "{line}: {told}");
    }
}

#[test]
fn what_ends_a_server_is_said_in_the_same_form() {
    let output = program()
        .args(["serve", "--policies", "/nonexistent"])
        .env("SLUICEGATE__LOG__FORMAT", "json")
        .output()
        .expect("the program is built");
    assert!(!output.status.success());
    let line: Value = serde_json::from_slice(&output.stderr).expect("one object");
    assert_eq!(line["level"], "ERROR");
    let message = line["message"].as_str().expect("a text");
    assert!(message.starts_with("cannot read /nonexistent"), "{message}");
}
