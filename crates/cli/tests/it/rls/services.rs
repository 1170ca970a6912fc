//! Other services of the wire: health, reflection, and both while the server stops.

use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use super::Server;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

fn health_of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test]
async fn the_server_and_its_service_are_healthy_and_others_are_not_known() {
    let server = Server::with_examples();
    let mut client = HealthClient::new(server.channel().await);
    // The last one is the service name of envoyproxy/ratelimit.
    for service in ["", SERVICE, "ratelimit"] {
        let health = client.check(health_of(service)).await.expect("it is known").into_inner();
        assert_eq!(health.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = client.check(health_of("nope")).await.expect_err("it is not known");
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn who_watches_is_told_that_the_server_goes_away_and_it_does() {
    let mut server = Server::with_examples();
    let mut client = HealthClient::new(server.channel().await);
    let mut watch = client.watch(health_of(SERVICE)).await.expect("it can be watched").into_inner();
    let first = watch.next().await.expect("there is a first").expect("it is a status");
    assert_eq!(first.status(), ServingStatus::Serving);
    server.process.signal("TERM");
    let last = watch.next().await.expect("there is a last").expect("it is a status");
    assert_eq!(last.status(), ServingStatus::NotServing);
    assert!(watch.next().await.is_none(), "the watch ends");
    let ended =
        tokio::task::spawn_blocking(move || server.process.wait().map(|status| (status, server)));
    let (status, _server) = ended.await.expect("it does not panic").expect("it ends");
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn who_asks_for_its_health_hears_first_that_it_will_stop() {
    let config = tempfile::NamedTempFile::new().expect("there is room for a file");
    std::fs::write(config.path(), "[server]\ndrain_delay = '60s'").expect("it can be written");
    let server = Server::start(&["--config", super::path(config.path())]);
    let mut client = HealthClient::new(server.channel().await);
    let mut watch = client.watch(health_of(SERVICE)).await.expect("it can be watched").into_inner();
    let first = watch.next().await.expect("there is a first").expect("it is a status");
    assert_eq!(first.status(), ServingStatus::Serving);
    server.process.signal("TERM");
    let second = watch.next().await.expect("there is a second").expect("it is a status");
    assert_eq!(second.status(), ServingStatus::NotServing);
    for service in ["", SERVICE, "ratelimit"] {
        let health = client.check(health_of(service)).await.expect("it is known").into_inner();
        assert_eq!(health.status(), ServingStatus::NotServing, "{service}");
    }
    assert_eq!(super::json::send(&server, "GET /healthcheck", "").0, 503);
    let stopping = (503, "shutting down\n".to_owned());
    assert_eq!(super::json::send(&server, "GET /readyz", ""), stopping);
    // It still answers, also on new connections.
    let asked = super::request("elsewhere", &[("a", "b")]);
    super::ask(&mut server.client().await, asked).await;
}

async fn reflected(server: &Server, asked: MessageRequest) -> ServerReflectionResponse {
    let mut client = ServerReflectionClient::new(server.channel().await);
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let answers = client.server_reflection_info(tokio_stream::once(request)).await;
    let mut answers = answers.expect("it is answered").into_inner();
    answers.next().await.expect("there is an answer").expect("it is one")
}

#[tokio::test]
async fn reflection_lists_the_services_and_tells_their_protocol() {
    let server = Server::with_examples();
    let listed = reflected(&server, MessageRequest::ListServices(String::new())).await;
    let Some(MessageResponse::ListServicesResponse(services)) = listed.message_response else {
        panic!("a list: {listed:?}")
    };
    let mut names: Vec<_> = services.service.into_iter().map(|service| service.name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection"
        ]
    );
    let symbol = MessageRequest::FileContainingSymbol(format!("{SERVICE}.ShouldRateLimit"));
    let found = reflected(&server, symbol).await;
    let Some(MessageResponse::FileDescriptorResponse(files)) = found.message_response else {
        panic!("a file: {found:?}")
    };
    let file = String::from_utf8_lossy(&files.file_descriptor_proto[0]);
    assert!(file.contains("envoy/service/ratelimit/v3/rls.proto"), "{file}");
}

#[tokio::test]
async fn older_clients_can_reflect_too() {
    let server = Server::with_examples();
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel().await);
    let asked = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request =
        v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let answers = client.server_reflection_info(tokio_stream::once(request)).await;
    let mut answers = answers.expect("it is answered").into_inner();
    let listed = answers.next().await.expect("there is an answer").expect("it is one");
    let services = match listed.message_response {
        Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list)) => {
            list.service
        }
        other => panic!("a list: {other:?}"),
    };
    assert!(services.iter().any(|service| service.name == SERVICE), "{services:?}");
}
