//! A server that decides nothing: tonic on a runtime of one thread, with one reply for all.

use std::net::SocketAddr;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::Duration;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, async_trait};

/// The argument that makes this program the server.
pub(crate) const CHILD: &str = "ceiling";

struct Fixed;

#[async_trait]
impl RateLimitService for Fixed {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let limit =
            RateLimit { requests_per_unit: u32::MAX, unit: Unit::Year.into(), name: String::new() };
        let status = DescriptorStatus {
            code: Code::Ok.into(),
            current_limit: Some(limit),
            limit_remaining: u32::MAX - 1,
            duration_until_reset: Some(Duration { seconds: 30_000_000, nanos: 500_000_000 }),
            quota: None,
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status],
            ..RateLimitResponse::default()
        }))
    }
}

/// Serves on a free port, which it prints as Sluicegate does.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("listening on rls://{}", listener.local_addr()?);
        tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .add_service(RateLimitServiceServer::new(Fixed))
            .serve_with_incoming(TcpListenerStream::new(listener))
            .await?;
        Ok(())
    })
}
