//! The rls wire for gateways: the real program, and clients that are compiled from Envoy's own
//! protocol.

mod hostile;
mod imports;
mod json;
mod live;
mod services;

use std::net::SocketAddr;
use std::path::Path;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use prost::bytes::{Buf, BufMut};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use crate::program::{EXAMPLES, Process, program};

/// The program, with the rls wire.
struct Server {
    process: Process,
    http: SocketAddr,
    rls: SocketAddr,
    admin: SocketAddr,
    /// The directory with its configuration, if the server owns one.
    directory: Option<TempDir>,
}

impl Server {
    /// Starts a server with these options.
    fn start(options: &[&str]) -> Self {
        let mut program = program();
        program
            .args(["serve", "--listen", "127.0.0.1:0", "--rls", "127.0.0.1:0"])
            .args(options)
            .env("SLUICEGATE__RESP__LISTEN", "off")
            .env("SLUICEGATE__ADMIN__LISTEN", "127.0.0.1:0");
        let process = Process::start(&mut program, 3);
        let of = |scheme| process.address(scheme);
        let (http, rls, admin) = (of("http"), of("rls"), of("admin"));
        Self { process, http, rls, admin, directory: None }
    }

    /// Starts a server with this configuration of `envoyproxy/ratelimit`.
    fn serving(config: &str) -> Self {
        let directory = configuration(&[("c.yaml", config)]);
        let mut server = Self::start(&["--envoy-config", path(directory.path())]);
        server.directory = Some(directory);
        server
    }

    /// Starts a server with the policies of the examples.
    fn with_examples() -> Self {
        let policies = EXAMPLES;
        Self::start(&["--policies", policies])
    }

    /// Opens a connection of its own.
    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.rls));
        endpoint.expect("it is a URL").connect().await.expect("it listens")
    }

    async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }
}

/// A directory of these files.
fn configuration(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("there is room for files");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("it can be written");
    }
    directory
}

fn path(path: &Path) -> &str {
    path.to_str().expect("directories of tests have plain names")
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let entries = entries.iter().map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn request(domain: &str, entries: &[(&str, &str)]) -> RateLimitRequest {
    let descriptors = vec![descriptor(entries)];
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

async fn ask(
    client: &mut RateLimitServiceClient<Channel>,
    request: RateLimitRequest,
) -> RateLimitResponse {
    client.should_rate_limit(request).await.expect("it is answered").into_inner()
}

const YEARLY: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 500 } }
";

#[tokio::test]
async fn a_limit_is_exact_over_connections_and_streams() {
    let server = Server::serving(YEARLY);
    let mut asking = JoinSet::new();
    for _ in 0..10 {
        let client = server.client().await;
        for _ in 0..10 {
            let mut client = client.clone();
            asking.spawn(async move {
                let mut passed = 0;
                for _ in 0..10 {
                    let response = ask(&mut client, request("shop", &[("user", "ann")])).await;
                    passed += usize::from(response.overall_code() == Code::Ok);
                }
                passed
            });
        }
    }
    assert_eq!(asking.join_all().await.into_iter().sum::<usize>(), 500);
    let other = ask(&mut server.client().await, request("shop", &[("user", "bob")])).await;
    assert_eq!(other.statuses[0].limit_remaining, 499);
}

#[tokio::test]
async fn policies_are_reached_by_name_without_a_tree() {
    let server = Server::with_examples();
    let mut client = server.client().await;
    let alice = || request("sluicegate", &[("policy", "login"), ("key", "alice")]);
    for remaining in (0..5).rev() {
        let response = ask(&mut client, alice()).await;
        let status = &response.statuses[0];
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, remaining));
    }
    let refused = ask(&mut client, alice()).await;
    assert_eq!(refused.overall_code(), Code::OverLimit);
    let [retry] = &refused.response_headers_to_add[..] else { panic!("one field: {refused:?}") };
    let seconds: u64 = retry.value.parse().expect("it is a number");
    assert!(retry.key == "retry-after" && (500..=600).contains(&seconds), "{retry:?}");
    let as_domain = ask(&mut client, request("login", &[("user", "alice")])).await;
    assert_eq!(as_domain.statuses[0].limit_remaining, 4);
    let unknown = client.should_rate_limit(request("sluicegate", &[("policy", "nope")])).await;
    let status = unknown.expect_err("there is no such policy");
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::NotFound, "policy: unknown policy `nope`")
    );
}

/// A codec that sends bytes unchanged instead of a message.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

#[tokio::test]
async fn what_is_not_a_message_is_an_invalid_argument() {
    let server = Server::with_examples();
    let mut client = tonic::client::Grpc::new(server.channel().await);
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    // A field that does not end, a text that is not UTF-8, an unknown type.
    for bytes in [&[0x0a, 0x7f][..], &[0x0a, 0x01, 0xff], &[0x0f], &[0xff; 11]] {
        client.ready().await.expect("it is connected");
        let asked = tonic::Request::new(bytes.to_vec());
        let answered = client.unary(asked, PathAndQuery::from_static(path), Raw).await;
        let status = answered.expect_err("it is not a message");
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{bytes:?}: {status}");
    }
    // The connection continues.
    let message = request("login", &[("user", "alice")]);
    assert_eq!(ask(&mut server.client().await, message).await.overall_code(), Code::Ok);
}

#[tokio::test]
async fn what_a_message_cannot_mean_is_an_invalid_argument() {
    let server = Server::with_examples();
    let mut client = server.client().await;
    let status = client.should_rate_limit(RateLimitRequest::default()).await;
    let status = status.expect_err("it has no domain");
    assert_eq!(
        (status.code(), status.message()),
        (tonic::Code::InvalidArgument, "domain: is missing")
    );
}
