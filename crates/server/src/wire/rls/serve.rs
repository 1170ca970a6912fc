//! The IO of the rls wire: HTTP/2 connections, and the services on them.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
use futures_util::future::{Either, join, poll_immediate, ready};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::message::{ConnectionBudget, Message, MessageBudget};
use super::proto::{DESCRIPTORS, RateLimitServiceServer};
use super::service::RlsHandler;
use super::whole::Whole;
use crate::protocol::Wire;
use crate::wire::ServerContext;
use crate::wire::accept::{self, CONNECTIONS_MAX, ConnectionSlot, Listener, TrackedBody};
use crate::wire::foreign::ForeignClients;

/// Largest message, bytes: a hundred descriptors of two entries of 300 bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of requests of a connection at a time; the next waits for one of them to be answered.
pub(super) const STREAMS_MAX: u32 = 128;

/// Largest list of header fields, bytes, as for other wires. It also bounds the number of frames
/// that a client may use for one list.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Maximum number of header fields of a request; gateways send some ten. Each takes more memory here
/// than bytes on the network, where one byte can repeat it.
const FIELDS_MAX: usize = 64;

/// Maximum number of streams that a client opened and reset again before they were looked at. With
/// more of them the connection ends: such a client wants to make work.
const RESETS_PENDING_MAX: usize = 20;

/// Maximum number of streams that were reset here because of what the client sent. With more of
/// them the connection ends.
const RESETS_LOCAL_MAX: usize = 128;

/// Bytes that a client may send ahead on one stream: the largest message.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Bytes that a client may send ahead on all streams of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// Maximum number of bytes of answers that wait to be written on one stream; an answer is some hundred.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// Interval between pings of a client, and the longest wait for a reply.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest time until the first request of a connection: a client connects to send one.
const FIRST_REQUEST_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest time of a request until it is answered, held in a queue or not. Its message comes with
/// its head, a store has its own deadline, which is shorter, and gateways wait for less.
pub(super) const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Age at which connections end, give or take a tenth: then their clients connect anew, and find
/// the servers that exist by then.
const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// Time for requests in flight on a connection that ends.
const GRACE: Duration = Duration::from_secs(10);

/// Answers requests until `stop`, then lets those in flight end; from `leaving` on, it reports that it does
/// not serve any more. Returns the number of connections that were cut off because they did not end.
pub(crate) async fn serve(listener: Listener, context: &ServerContext) -> usize {
    let ServerContext { engine, authenticator, limits, workers, leaving, stop, .. } = context;
    let listener_auth = authenticator.listener_auth(Wire::Rls, listener.address().ok().as_ref());
    let connections = Arc::clone(engine.telemetry().connections(Wire::Rls));
    let health = HealthReporter::new();
    for service in HEALTHY {
        health.set_service_status(service, ServingStatus::Serving).await;
    }
    let services = Services::new(RlsHandler::new(Arc::clone(limits), listener_auth), &health);
    let stopping = stop.clone();
    let told_to_stop = async {
        leaving.cancelled().await;
        for service in HEALTHY {
            health.set_service_status(service, ServingStatus::NotServing).await;
        }
        stop.cancelled().await;
        let mut health = health;
        for service in HEALTHY {
            // Watchers have had the last status, and this ends the watch.
            health.clear_service_status(service).await;
        }
    };
    let foreign = Arc::new(ForeignClients::new(listener.address().ok().as_ref()));
    let serving = accept::serve(listener, CONNECTIONS_MAX, workers, stop, move |stream, _| {
        let (carrier, slot) = stream.into_parts();
        let (services, foreign) = (services.clone(), Arc::clone(&foreign));
        connections.during(connection(services, carrier, slot, foreign, stopping.clone()))
    });
    join(serving, told_to_stop).await.0
}

/// The advice in the log about a client of another protocol.
const FOREIGN_ADVICE: &str =
    "this address speaks gRPC (HTTP/2); checks over HTTP belong to an address of `http.listen`";

/// Services with a health status; the empty name is the whole server's, and the last one the name
/// that `envoyproxy/ratelimit` uses.
const HEALTHY: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"];

/// Answers the requests of one connection.
async fn connection(
    services: Services,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    slot: Arc<ConnectionSlot>,
    foreign: Arc<ForeignClients>,
    stop: CancellationToken,
) {
    let has_request = AtomicBool::new(false);
    let share = Arc::new(ConnectionBudget::new(Arc::clone(&services.account)));
    let service = service_fn(|request| {
        if !has_request.load(Ordering::Relaxed) {
            has_request.store(true, Ordering::Relaxed);
        }
        let (head, body) = Request::into_parts(request);
        if head.headers.len() > FIELDS_MAX {
            let problem = format!("more than {FIELDS_MAX} header fields");
            return Either::Left(ready(Ok(Status::resource_exhausted(problem).into_http())));
        }
        if let Err(problem) = authority(&head) {
            return Either::Left(ready(Ok(malformed(problem))));
        }
        let body = TrackedBody::new(body, Arc::clone(&slot));
        let message = Message::new(body, &head.headers, Arc::clone(&share));
        Either::Right(services.call(Request::from_parts(head, message)))
    });
    let mut connection = pin!(builder().serve_connection(TokioIo::new(Whole(stream)), service));
    let first_request = async {
        sleep(FIRST_REQUEST_WAIT_MAX).await;
        if has_request.load(Ordering::Relaxed) {
            sleep(age()).await;
        }
    };
    // An error is the client's: it did not send HTTP/2, or it went away.
    let grace = tokio::select! {
        served = connection.as_mut() => {
            if served.is_err_and(|error| is_foreign(&error)) && !has_request.load(Ordering::Relaxed) {
                foreign.log("no HTTP/2", FOREIGN_ADVICE);
            }
            return;
        }
        () = stop.cancelled() => GRACE,
        // Without a request, nothing is in flight.
        () = first_request => if has_request.load(Ordering::Relaxed) { GRACE } else { Duration::ZERO },
    };
    connection.as_mut().graceful_shutdown();
    timeout(grace, connection).await.ok();
}

/// Returns whether a client sent another protocol from the first byte.
fn is_foreign(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    cause.is_some_and(|cause| cause.contains("protocol error"))
}

/// Checks that the request names its host once (RFC 9113, section 8.3.1). Any name will do: gateways send
/// that of their cluster, and no page in a browser can use HTTP/2 without TLS.
fn authority(head: &Parts) -> Result<(), &'static str> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (head.uri.authority(), hosts.next(), hosts.next()) {
        (Some(_), None, _) | (None, Some(_), None) => Ok(()),
        (Some(authority), Some(host), None)
            if authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) =>
        {
            Ok(())
        }
        (None, None, _) => Err(":authority: is missing"),
        (Some(_), Some(_), None) => Err("host: differs from `:authority`"),
        (_, Some(_), Some(_)) => Err("host: is given twice, expected one"),
    }
}

/// The answer to a request that no gateway sends, in the terms of HTTP and of gRPC.
fn malformed(problem: &'static str) -> Response<Body> {
    let mut response = Status::invalid_argument(problem).into_http();
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// The age at which this connection ends: not all that were opened together end together.
fn age() -> Duration {
    AGE_MAX.mul_f64(0.9 + 0.2 * fastrand::f64())
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_LOCAL_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_WAIT_MAX);
    builder
}

/// The services of a connection.
#[derive(Clone)]
struct Services {
    limits: RateLimitServiceServer<RlsHandler>,
    /// The memory of messages that are waited for.
    account: Arc<MessageBudget>,
    /// The other services, by the name that a path begins with.
    others: Arc<[(String, Other)]>,
}

/// A service that is used now and then.
type Other =
    BoxCloneSyncService<Request<Message<TrackedBody<Incoming>>>, Response<Body>, Infallible>;

impl Services {
    fn new(limits: RlsHandler, health: &HealthReporter) -> Self {
        let limits =
            RateLimitServiceServer::new(limits).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let health = HealthServer::new(HealthService::from_health_reporter(health.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let made = "the protocols were compiled with this program";
        let v1 = reflection().build_v1().expect(made).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let v1alpha =
            reflection().build_v1alpha().expect(made).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self {
            limits,
            account: Arc::default(),
            others: Arc::new([other(health), other(v1), other(v1alpha)]),
        }
    }

    /// Answers one request.
    fn call(
        &self,
        request: Request<Message<TrackedBody<Incoming>>>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + 'static {
        let path = request.uri().path();
        let is = |name: &str| {
            path.strip_prefix('/')
                .and_then(|path| path.strip_prefix(name))
                .is_some_and(|method| method.starts_with('/'))
        };
        let other = self.others.iter().find(|(name, _)| is(name));
        let answering = match other {
            Some((_, other)) => Either::Left(other.clone().oneshot(request)),
            // It answers unknown paths itself.
            None => Either::Right(self.limits.clone().call(request)),
        };
        in_time(answering)
    }
}

/// The answer of `answering`, or an error if it takes too long. Most requests are there whole when
/// their head is, and are answered at once: they need no timer.
async fn in_time(
    answering: impl Future<Output = Result<Response<Body>, Infallible>>,
) -> Result<Response<Body>, Infallible> {
    let mut answering = pin!(answering);
    if let Some(answer) = poll_immediate(answering.as_mut()).await {
        return answer;
    }
    timeout(REQUEST_WAIT_MAX, answering).await.unwrap_or_else(|_| {
        let seconds = REQUEST_WAIT_MAX.as_secs();
        Ok(Status::deadline_exceeded(format!("not received within {seconds} s")).into_http())
    })
}

fn other<T>(service: T) -> (String, Other)
where
    T: Service<
            Request<Message<TrackedBody<Incoming>>>,
            Response = Response<Body>,
            Error = Infallible,
        > + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    T::Future: Send + 'static,
{
    (T::NAME.to_owned(), BoxCloneSyncService::new(service))
}

#[cfg(test)]
mod tests {
    use sluicegate_policy::{DescriptorTree, PolicySet};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;
    use tonic::transport::Endpoint;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    use super::*;
    use crate::authenticator::tests::open_listener;
    use crate::engine::ServerEngine;
    use crate::wire::headers::BudgetHeaders;
    use crate::wire::rls::RateLimits;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// An empty frame of settings.
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

    /// A client, and the server that it is connected to, which the token stops.
    fn connect() -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(MESSAGE_BYTES_MAX);
        let stop = CancellationToken::new();
        let engine = ServerEngine::in_memory(PolicySet::default());
        let limits = RateLimits::new(engine, DescriptorTree::default(), BudgetHeaders::default());
        let handler = RlsHandler::new(Arc::new(limits), open_listener(Wire::Rls));
        let services = Services::new(handler, &HealthReporter::new());
        let serving = tokio::spawn(connection(
            services,
            server,
            Arc::default(),
            Arc::default(),
            stop.clone(),
        ));
        (client, stop, serving)
    }

    /// A client of the protocol that has sent one request.
    async fn asked(client: DuplexStream) -> HealthClient<tonic::transport::Channel> {
        let mut client = Some(TokioIo::new(client));
        let connector = tower::service_fn(move |_| {
            let client = client.take();
            async move { client.ok_or_else(|| std::io::Error::other("it connects once")) }
        });
        let endpoint = Endpoint::from_static("http://test");
        let channel = endpoint.connect_with_connector(connector).await.expect("it connects");
        let mut client = HealthClient::new(channel);
        let health = client.check(HealthCheckRequest::default()).await;
        health.expect("it is healthy");
        client
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asks_nothing_ends() {
        for said in [Vec::new(), PREFACE.to_vec(), [PREFACE, SETTINGS].concat()] {
            let (mut client, _, serving) = connect();
            let begin = Instant::now();
            client.write_all(&said).await.unwrap();
            serving.await.unwrap();
            let took = begin.elapsed();
            assert_eq!(took.as_secs(), FIRST_REQUEST_WAIT_MAX.as_secs(), "{said:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_in_is_answered_with_that() {
        let (mut client, _, _serving) = connect();
        let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        // POST, http, `:authority: h`, and the path.
        let mut head = vec![0x83, 0x86, 0x01, 1, b'h', 0x04, u8::try_from(path.len()).unwrap()];
        head.extend(path);
        let length = u8::try_from(head.len()).unwrap();
        // A head that ends, on stream 1, whose body does not come.
        let frame = [&[0, 0, length, 1, 4, 0, 0, 0, 1], &head[..]].concat();
        let begin = Instant::now();
        client.write_all(&[PREFACE, SETTINGS, &frame].concat()).await.unwrap();
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            client.read_exact(&mut payload).await.unwrap();
            if head[3] == 1 {
                break;
            }
        }
        assert_eq!(begin.elapsed().as_secs(), REQUEST_WAIT_MAX.as_secs());
    }

    #[test]
    fn a_request_says_once_whom_it_is_for() {
        let checked = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            authority(&request.body(()).unwrap().into_parts().0)
        };
        for (uri, hosts, is_ok) in [
            ("http://cluster/p", &[][..], true),
            ("http://cluster:1/p", &["Cluster:1"], true),
            ("/p", &["cluster"], true),
            ("/p", &[], false),
            ("/p", &["cluster", "cluster"], false),
            ("http://cluster/p", &["other"], false),
            ("http://cluster/p", &["cluster", "cluster"], false),
        ] {
            assert_eq!(checked(uri, hosts).is_ok(), is_ok, "{uri} {hosts:?}");
        }
        assert_eq!(malformed("x").status(), StatusCode::BAD_REQUEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_asked_is_kept_and_ends_of_old_age() {
        let (client, _, serving) = connect();
        let begin = Instant::now();
        let _client = asked(client).await;
        serving.await.unwrap();
        let (least, most) = (AGE_MAX.mul_f64(0.9), AGE_MAX.mul_f64(1.1));
        let took = begin.elapsed();
        assert!(least <= took && took <= most + FIRST_REQUEST_WAIT_MAX + GRACE, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_its_next_request_ends_when_told_to_stop() {
        let (client, stop, serving) = connect();
        let _client = asked(client).await;
        let begin = Instant::now();
        stop.cancel();
        serving.await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
