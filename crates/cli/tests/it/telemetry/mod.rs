//! Telemetry for operators: the real program, with every wire, and the tools that operators use.

mod clients;
mod events;
mod listener;
mod logs;
mod metrics;
mod traces;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use sluicegate_testkit::Error;
use tempfile::TempDir;

use crate::program::{Process, program};

/// Longest time a test waits for a program, which answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Budgets that do not refill while a test runs.
const POLICIES: &str = "
policies:
  - { name: login, rules: [ { name: tries, fixed_window: { limit: 2, window: 1h, align: first } } ] }
  - { name: shade, rules: [ { fixed_window: { limit: 1, window: 1h, align: first } } ], overflow: shadow }
";

/// Sends `request` unchanged to `address`, and returns all bytes until the connection ends.
fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("the server says text");
    said
}

/// A server with [`POLICIES`] and every wire.
struct Server {
    process: Process,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[], Stdio::inherit())
    }

    /// Starts a server with more options, whose standard error goes to `told`.
    fn start_with(options: &[&str], told: Stdio) -> Self {
        Self::serving(POLICIES, options, told)
    }

    /// Like [`start_with`](Self::start_with), with other policies.
    fn serving(document: &str, options: &[&str], told: Stdio) -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        let policies = folder.path().join("policies.yaml");
        std::fs::write(&policies, document).expect("it can be written");
        let wires = ["HTTP", "RESP", "RLS", "ADMIN"];
        let mut program = program();
        program
            .args(["serve", "--policies"])
            .arg(&policies)
            .args(options)
            .envs(wires.map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "127.0.0.1:0")))
            .stderr(told);
        Self { process: Process::start(&mut program, wires.len()), folder }
    }

    fn address(&self, wire: &str) -> SocketAddr {
        self.process.address(wire)
    }

    /// Sends `request` unchanged, and returns all bytes until the connection ends.
    fn raw(&self, wire: &str, request: &str) -> String {
        raw(self.address(wire), request)
    }

    /// Head and body of the admin address's answer for `path`.
    fn see(&self, path: &str, headers: &str) -> (String, String) {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n");
        let said = self.raw("admin", &request);
        let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
        (head.to_owned(), body.to_owned())
    }

    /// A check over HTTP.
    fn check(&self, policy: &str, key: &str, headers: &str) {
        let body = serde_json::json!({"policy": policy, "key": key}).to_string();
        let length = body.len();
        let said = self.raw(
            "http",
            &format!(
                "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        );
        assert!(said.starts_with("HTTP/1.1 "), "{said}");
    }

    /// A check by Envoy's protocol, with the gateway's `traceparent`.
    async fn rate_limit(&self, policy: &str, key: &str, trace: Option<&str>) {
        let url = format!("http://{}", self.address("rls"));
        let client = RateLimitServiceClient::connect(url).await;
        let mut client = client.expect("the server listens");
        let entries = [("policy", policy), ("key", key)];
        let entries = entries.map(|(key, value)| Entry { key: key.into(), value: value.into() });
        let entries = entries.into();
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let domain = "sluicegate".to_owned();
        let mut request =
            tonic::Request::new(RateLimitRequest { domain, descriptors, hits_addend: 0 });
        if let Some(trace) = trace {
            request.metadata_mut().insert("traceparent", trace.parse().expect("it is ASCII"));
        }
        client.should_rate_limit(request).await.ok();
    }
}

/// The program `name`, without arguments.
fn tool(name: &str) -> Result<Command, Error> {
    match Command::new(name).arg("--version").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::Missing(format!("`{name}` is not installed; `make deps` installs it")))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Command::new(name)),
    }
}
