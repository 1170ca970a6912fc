//! Malicious clients, with one server each, which continues to answer honest clients, takes little memory, and does not
//! panic.

mod bodies;
mod held;
mod keys;
mod many;
mod smuggling;
mod streams;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;

use crate::program::PATIENCE;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// Most KiB by which a server under attack may grow: 10,000 connections of 12 KiB, whose tasks are larger without
/// optimisation.
const GROWTH_KIB_MAX: u64 = 128 * 1024;

/// A server under attack. At the end, it must be well.
struct Attacked {
    server: crate::server::Server,
    /// The authority of its certificate for gateways, if it has one.
    ca: Option<PathBuf>,
    /// Its memory before the attack.
    kib: u64,
}

impl Attacked {
    fn start() -> Self {
        Self::of(crate::server::Server::start(""), None)
    }

    fn of(server: crate::server::Server, ca: Option<PathBuf>) -> Self {
        let attacked = Self { kib: 0, server, ca };
        // The first requests allocate the memory that it always needs.
        attacked.answers();
        Self { kib: memory_kib(attacked.id()), ..attacked }
    }

    fn connect(&self, scheme: &str) -> TcpStream {
        let stream = TcpStream::connect(self.address(scheme)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream
    }

    /// The answer to `bytes`, after which nothing is sent; requests of HTTP must say that they close the connection.
    fn answer(&self, scheme: &str, bytes: &[u8]) -> String {
        let mut stream = self.connect(scheme);
        // A server that refuses may close before it has read everything.
        stream.write_all(bytes).ok();
        if scheme == "resp" {
            stream.shutdown(Shutdown::Write).ok();
        }
        String::from_utf8_lossy(&rest(&mut stream)).into_owned()
    }

    /// The permits that `key` has left, for an honest client.
    fn remaining(&self, key: &str) -> u64 {
        let said = self
            .answer("http", &post("/v1/peek", &format!(r#"{{"policy":"login","key":"{key}"}}"#)));
        let rest = said.split_once(r#""remaining":"#).unwrap_or_else(|| panic!("{said}")).1;
        let digits = rest.split_once(',').expect("more fields follow").0;
        digits.parse().expect("a number")
    }

    /// Checks that a new honest client is answered.
    fn answers(&self) {
        assert_eq!(self.remaining("nobody"), 5);
        assert_eq!(self.answer("resp", b"PING\r\n"), "+PONG\r\n");
        let entries = r#"[{"entries":[{"key":"policy","value":"login"}]}]"#;
        let json = format!(r#"{{"domain":"sluicegate","hitsAddend":1,"descriptors":{entries}}}"#);
        let said = self.answer("http", &post("/json", &json));
        assert!(said.contains("\"overallCode\""), "{said}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("there are threads").block_on(self.answers_gateways());
    }

    /// Checks that a new gateway is answered, by Envoy's own protocol.
    async fn answers_gateways(&self) {
        let (scheme, url) = match &self.ca {
            None => ("rls", "http"),
            Some(_) => ("grpcs", "https"),
        };
        let url = format!("{url}://localhost:{}", self.address(scheme).port());
        let mut endpoint = Endpoint::from_shared(url).expect("it is a URL").timeout(PATIENCE);
        if let Some(ca) = &self.ca {
            let ca = Certificate::from_pem(fs::read(ca).expect("it is there"));
            let tls = ClientTlsConfig::new().ca_certificate(ca);
            endpoint = endpoint.tls_config(tls).expect("it is a certificate");
        }
        let channel = endpoint.connect_timeout(PATIENCE).connect().await.expect("it listens");
        let entry = Entry { key: "policy".to_owned(), value: "login".to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let domain = "sluicegate".to_owned();
        let request = RateLimitRequest { domain, descriptors: vec![descriptor], hits_addend: 0 };
        let answer = RateLimitServiceClient::new(channel).should_rate_limit(request).await;
        let code = answer.expect("it is answered").into_inner().overall_code();
        assert_ne!(code, Code::Unknown);
    }

    /// Growth of its memory, KiB.
    fn growth_kib(&self) -> u64 {
        memory_kib(self.id()).saturating_sub(self.kib)
    }

    /// Checks that the server answers, has not grown, and has warned only of other protocols.
    fn is_well(&self) {
        self.answers();
        let growth = self.growth_kib();
        assert!(growth <= GROWTH_KIB_MAX, "it has grown by {growth} KiB");
        let said = self.warnings();
        assert!(said.is_empty() || said.contains(": a client speaks "), "{said}");
    }
}

impl Deref for Attacked {
    type Target = crate::server::Server;

    fn deref(&self) -> &crate::server::Server {
        &self.server
    }
}

/// The resident memory of a process, KiB.
fn memory_kib(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// All bytes until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it does not end"),
        // The connection may be reset before all bytes were read.
        _ => said,
    }
}

/// A request with a body.
fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    format!("{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}
