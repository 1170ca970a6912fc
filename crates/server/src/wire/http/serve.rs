//! The IO of the HTTP wire.
//!
//! ```text
//! POST /v1/check ─────────────▶ read ─▶ codec ─▶ ServerEngine ─▶ codec
//! everything else ─▶ Router ─▶ the same, or batches, settlements, explanations
//! ```
//!
//! A check is by far the most frequent request, so it is found by its path and not by the router.

mod body;
mod many;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body as AnyBody;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use axum::routing::{get, post};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use sluicegate::DecideError;
use sluicegate_net::headers::{JSON, bearer, is_json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::auth;
use super::codec::{Operation, OperationRequest, Problem, encode, encode_explanation, refusal};
use super::deny::deny_status;
use super::host::Hosts;
use super::openapi;
use super::request_guard::RequestGuard;
use super::response::{FullResponse, PROBLEM, problem, refuse, respond};
use super::unnamed::{self, new_id};
use crate::authenticator::{Caller, CallerError, ListenerAuth};
use crate::engine::ServerEngine;
use crate::protocol::{Peer, Wire};
use crate::wire::ServerContext;
use crate::wire::accept::{
    self, CONNECTIONS_MAX, ConnectionSlot, Listener, PeerClosed, TrackedBody, WatchedStream,
};
use crate::wire::foreign::ForeignClients;
use crate::wire::headers::BudgetHeaders;
use crate::wire::health;
use crate::wire::http::TrustedPeers;
use body::read;

/// Largest head of a request, and the most that is buffered of a connection, bytes: four times what
/// clients send that carry cookies and tokens.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Longest time until the head of a request is there, from the end of the request before: so long
/// an idle connection is kept, which is longer than most clients keep theirs.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// The advice in the log about a client that sends HTTP/2.
const HTTP2_ADVICE: &str =
    "this address speaks HTTP/1.1; gRPC of gateways belongs to an address of `rls.listen`";

/// The state that every request needs.
#[derive(Clone, Debug)]
struct HttpHandler {
    engine: Arc<ServerEngine>,
    headers: BudgetHeaders,
    listener_auth: ListenerAuth,
}

/// The service of a listener: checks are decided before the router.
struct HttpService {
    handler: HttpHandler,
    router: Router,
    hosts: Hosts,
    foreign: ForeignClients,
}

/// Answers requests, also those that `more` has routes for, until `stop`, then lets those in flight
/// end. Returns the number of connections that were cut off because they did not.
pub(crate) async fn serve(
    listener: Listener,
    context: &ServerContext,
    more: impl FnOnce(ListenerAuth) -> Router,
) -> usize {
    let ServerContext { engine, authenticator, trusted_peers, workers, stop, http_headers, .. } =
        context;
    let address = listener.address().ok();
    let listener_auth = authenticator.listener_auth(Wire::Http, address.as_ref());
    let hosts = Hosts::new(address.as_ref(), Arc::clone(&context.allowed_hosts));
    let handler = HttpHandler { engine: Arc::clone(engine), headers: *http_headers, listener_auth };
    let more = more(handler.listener_auth.clone());
    let health = health::routes(context.leaving.clone());
    let router = router(&handler, health, Arc::clone(trusted_peers), more);
    let foreign = ForeignClients::new(address.as_ref());
    let service = Arc::new(HttpService { handler, router, hosts, foreign });
    let connections = Arc::clone(engine.telemetry().connections(Wire::Http));
    let stopping = stop.clone();
    accept::serve(listener, CONNECTIONS_MAX, workers, stop, move |stream, peer| {
        let slot = Arc::clone(stream.slot());
        connections.during(decisions(Arc::clone(&service), stream, peer, slot, stopping.clone()))
    })
    .await
}

/// Answers the requests of one connection; checks bypass the router.
async fn decisions(
    service: Arc<HttpService>,
    stream: impl AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + 'static,
    peer: Peer,
    slot: Arc<ConnectionSlot>,
    stop: CancellationToken,
) {
    let (hosts, server) = (service.hosts.clone(), Arc::clone(&service));
    let service = service_fn(move |request: Request<Incoming>| {
        let request = request.map(|body| TrackedBody::new(body, Arc::clone(&slot)));
        answer(Arc::clone(&service), peer, request)
    });
    let refuse = |of: &Problem| problem(of).map(Either::Left);
    converse(RequestGuard { service, hosts, refuse }, stream, stop, &server.foreign).await;
}

/// Answers the requests of one connection, one after the other; a client of another protocol is logged by `foreign`.
pub(crate) async fn connection(
    router: Router,
    hosts: Hosts,
    stream: impl AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + 'static,
    stop: CancellationToken,
    foreign: Arc<ForeignClients>,
) {
    let refuse = |of: &Problem| problem(of).map(AnyBody::new);
    let service = TowerToHyperService::new(router);
    converse(RequestGuard { service, hosts, refuse }, stream, stop, &foreign).await;
}

async fn converse<S, B>(
    service: RequestGuard<S, B>,
    stream: impl AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + 'static,
    stop: CancellationToken,
    foreign: &ForeignClients,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(WatchedStream::new(stream)), service);
    let mut connection = pin!(connection);
    // An error is the client's: it did not send HTTP/1.1, or it went away. It has been answered, or is gone.
    tokio::select! {
        biased;
        served = connection.as_mut() => {
            if served.is_err_and(|error| is_http2(&error)) {
                foreign.log("HTTP/2", HTTP2_ADVICE);
            }
            return;
        }
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.ok();
}

/// Returns whether a client sent HTTP/2 from the first byte, which gets no answer.
fn is_http2(error: &hyper::Error) -> bool {
    error.is_parse() && error.to_string().contains("HTTP2 preface")
}

async fn answer(
    service: Arc<HttpService>,
    peer: Peer,
    request: Request<TrackedBody<Incoming>>,
) -> Result<Response<Either<Full<Bytes>, AnyBody>>, Infallible> {
    if request.method() == Method::POST && request.uri().path() == Operation::Check.path() {
        return Ok(decide(&service.handler, Operation::Check, request).await.map(Either::Left));
    }
    // On the heap: a check should not carry the space for other requests.
    let request = auth::knowing(peer, request.map(AnyBody::new));
    let routed = Box::pin(service.router.clone().oneshot(request));
    routed.await.map(|response| response.map(Either::Right))
}

/// All routes of this wire, and those of `more`.
fn router(
    handler: &HttpHandler,
    health: Router<HttpHandler>,
    trusted: Arc<TrustedPeers>,
    more: Router,
) -> Router {
    decision_routes(health, handler.clone())
        .merge(auth::routes(&handler.engine, &handler.listener_auth, trusted, handler.headers))
        .merge(more)
}

fn decision_routes(health: Router<HttpHandler>, handler: HttpHandler) -> Router {
    let mut router = health;
    for operation in Operation::ALL {
        let route =
            post(move |State(handler): State<HttpHandler>, request: Request<AnyBody>| async move {
                match operation {
                    Operation::Batch => many::batch(&handler, request).await,
                    Operation::Settle => many::settle(&handler, request).await,
                    Operation::Explain => answered(explain(&handler, request).await),
                    _ => decide(&handler, operation, request).await,
                }
                .map(AnyBody::new)
            });
        router = router.route(operation.path(), route);
    }
    router
        .route(openapi::PATH, get(async || ([(header::CONTENT_TYPE, JSON)], openapi::text())))
        .fallback(async || {
            refuse(StatusCode::NOT_FOUND, "path not found; the paths are in /v1/openapi.json")
        })
        .method_not_allowed_fallback(async || {
            let detail = "method not allowed; the `allow` header names those that are";
            refuse(StatusCode::METHOD_NOT_ALLOWED, detail)
        })
        .with_state(handler)
}

/// The paths of decisions.
pub(crate) fn decision_paths() -> impl Iterator<Item = &'static str> {
    let operations = Operation::ALL.into_iter().map(Operation::path);
    operations.chain([auth::AUTH, auth::AUTH_POLICY])
}

/// Answers a request about one budget.
async fn decide<B>(handler: &HttpHandler, operation: Operation, request: Request<B>) -> FullResponse
where
    B: Body<Data = Bytes, Error: std::fmt::Display>,
{
    answered(try_decide(handler, operation, request).await)
}

async fn try_decide<B>(
    handler: &HttpHandler,
    operation: Operation,
    request: Request<B>,
) -> Result<FullResponse, Problem>
where
    B: Body<Data = Bytes, Error: std::fmt::Display>,
{
    let caller = handler.caller(operation, request.headers())?;
    require_json(request.headers())?;
    let parent = handler.engine.parent(request.headers());
    let denies = denies(operation, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    let ask = OperationRequest::decode(operation, &bytes, new_id)?;
    let mut request = ask.request();
    caller.ask(&mut request).map_err(|refused| handler.refuse(refused))?;
    let turn = handler.engine.turn(Wire::Http);
    let admission = match ask.is_named_here {
        true => unnamed::acquire(&handler.engine, &request, parent).await,
        false => parent.over(turn.decide(&request)).await,
    };
    let admission = admission.map_err(|error| handler.undecided(error, request.app))?;
    let mut answer = match denies {
        Some(status) if !admission.way.passes() => {
            let (status, body) = refusal(status, &admission, ask.id.as_deref());
            respond(status, PROBLEM, body)
        }
        _ => respond(StatusCode::OK, JSON, encode(&admission, ask.id.as_deref())),
    };
    if operation.tells() {
        handler.headers.add_to(answer.headers_mut(), &admission.answer);
    }
    Ok(answer)
}

async fn explain(
    handler: &HttpHandler,
    request: Request<AnyBody>,
) -> Result<FullResponse, Problem> {
    let caller = handler.caller(Operation::Explain, request.headers())?;
    require_json(request.headers())?;
    denies(Operation::Explain, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    let ask = OperationRequest::decode(Operation::Explain, &bytes, new_id)?;
    let mut request = ask.request();
    caller.ask(&mut request).map_err(|refused| handler.refuse(refused))?;
    let explanation = handler.engine.turn(Wire::Http).explain(&request, ask.at).await;
    let explanation = explanation.map_err(|error| handler.undecided(error, request.app))?;
    Ok(respond(StatusCode::OK, JSON, encode_explanation(&request, explanation, ask.at)))
}

impl HttpHandler {
    /// Returns the caller of `operation`, if it is permitted. The body is not read before that.
    fn caller(&self, operation: Operation, headers: &HeaderMap) -> Result<Caller, Problem> {
        let caller = self.listener_auth.authenticate(bearer(headers), || self.engine.core().now());
        let may = caller.and_then(|caller| {
            caller.permits(operation.verb())?;
            caller.may(operation.scope())?;
            Ok(caller)
        });
        may.map_err(|refused| match bearer(headers) {
            Some(b"") if refused == CallerError::Unknown => self
                .refuse(refused)
                .instead("authorization: no token: write `Authorization: Bearer TOKEN`, once"),
            _ => self.refuse(refused),
        })
    }

    /// The problem of a request of `app` that was not decided. If the policy is unknown, it names the one that
    /// was most likely meant, of those that `app` may use.
    fn undecided(&self, error: DecideError, app: Option<&str>) -> Problem {
        let near = match &error {
            DecideError::UnknownPolicy(name) => {
                self.engine.near_policy(name, |policy| policy.admits(app))
            }
            _ => None,
        };
        let problem = Problem::from(error);
        match near {
            Some(near) => problem.and(&format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    /// Counts the refusal of a caller, and returns its problem.
    fn refuse(&self, refused: CallerError) -> Problem {
        self.listener_auth.count_refused(refused).into()
    }
}

/// The status of a refusal, if the caller asks for one: `?deny=429`.
fn denies(operation: Operation, query: Option<&str>) -> Result<Option<StatusCode>, Problem> {
    let query = query.filter(|query| !query.is_empty());
    let Some(query) = query else { return Ok(None) };
    if !operation.may_deny() {
        return Err(Problem::bad_request("query: unknown parameter, expected none"));
    }
    let Some(value) = query.strip_prefix("deny=") else {
        return Err(Problem::bad_request("query: unknown parameter, expected `deny=STATUS`"));
    };
    let status = deny_status(value);
    status.map(Some).map_err(|problem| Problem::bad_request(format!("query: {problem}")))
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    if is_json(headers) {
        return Ok(());
    }
    let detail = "content-type: expected `application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

fn answered(answer: Result<FullResponse, Problem>) -> FullResponse {
    answer.unwrap_or_else(|failed| problem(&failed))
}
