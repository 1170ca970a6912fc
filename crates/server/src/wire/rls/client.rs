//! The client of the service: sends requests to a server as a gateway does.

use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Result, anyhow};
use axum::http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sluicegate_policy::descriptor::RESERVED_DOMAIN;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Code as Grpc;
use tonic::body::Body;
use tonic::metadata::{Ascii, MetadataValue};

use super::proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use super::whole::Whole;

/// A connection; clones share it.
#[derive(Clone, Debug)]
pub struct RlsClient {
    service: RateLimitServiceClient<RequestSender>,
    bearer: Option<MetadataValue<Ascii>>,
}

/// The answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RlsReply {
    /// The request passes.
    Ok,
    /// The request is over the limit.
    OverLimit,
    /// The request was not decided, for this reason.
    Error(String),
}

/// The requests of a connection, as tonic sends them.
#[derive(Clone, Debug)]
struct RequestSender(SendRequest<Body>);

impl RlsClient {
    /// Creates a client on `stream`, to a server with the name `authority`. Its connection runs on
    /// the runtime that this is called in, and ends with the last clone.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        authority: &str,
    ) -> Result<Self> {
        let stream = TokioIo::new(Whole(stream));
        let (sender, connection) = handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        let origin = format!("http://{authority}").parse()?;
        let service = RateLimitServiceClient::with_origin(RequestSender(sender), origin);
        Ok(Self { service, bearer: None })
    }

    /// Sends `bearer` as `authorization` with each request.
    ///
    /// # Errors
    /// If it has characters that cannot be sent.
    pub fn with_bearer(self, bearer: &HeaderValue) -> Result<Self> {
        let bearer = MetadataValue::try_from(bearer.as_bytes())?;
        Ok(Self { bearer: Some(bearer), ..self })
    }

    /// Checks `hits` permits of a key of a policy.
    ///
    /// # Errors
    /// If the connection cannot be used any more.
    pub async fn ask(
        &mut self,
        policy: &str,
        key: &str,
        app: Option<&str>,
        hits: u32,
    ) -> Result<RlsReply> {
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let mut entries = vec![entry("policy", policy), entry("key", key)];
        entries.extend(app.map(|app| entry("app", app)));
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let domain = RESERVED_DOMAIN.to_owned();
        let message = RateLimitRequest { domain, descriptors, hits_addend: hits };
        let mut request = tonic::Request::new(message);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        match self.service.should_rate_limit(request).await {
            Ok(reply) => Ok(match reply.get_ref().overall_code() {
                Code::Ok => RlsReply::Ok,
                Code::OverLimit => RlsReply::OverLimit,
                Code::Unknown => RlsReply::Error("the server returned no decision".to_owned()),
            }),
            Err(status) if matches!(status.code(), Grpc::Unknown | Grpc::Cancelled) => {
                Err(anyhow!("{}", status.message()))
            }
            Err(status) => Ok(RlsReply::Error(status.message().to_owned())),
        }
    }
}

impl tower::Service<Request<Body>> for RequestSender {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
