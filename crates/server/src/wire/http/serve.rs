//! The IO of the HTTP wire.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body as HttpBody, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, Request as HttpRequest, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{get, post};
use hyper::body::Body as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::codec::{Body, Operation, encode};
use super::guard::Guard;
use super::problem::Problem;
use crate::gate::Gate;
use crate::wire::accept::{self, CONNECTIONS_MAX, Listener};
use crate::wire::{House, Wire, rls};

/// Largest body: a key of 1 KiB with every byte escaped fits ten times over.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Largest head of a request, and what is buffered of a connection: four times what clients send
/// that carry cookies and tokens.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// How long the head of a request may take, from the end of the request before: so long an idle
/// connection is kept, which is longer than most clients keep theirs.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a body may take once its head is there: clients have it ready.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Answers requests, also those by the descriptors of gateways, until `stop`, then lets those in
/// flight end. Returns how many connections were cut off because they did not.
pub(crate) async fn serve(listener: Listener, house: &House) -> usize {
    let House { gate, limits, workers, stop, .. } = house;
    let router = router(Arc::clone(gate)).merge(rls::routes(Arc::clone(limits)));
    let stopping = stop.clone();
    accept::serve(listener, CONNECTIONS_MAX, (workers, stop), move |stream, _| {
        connection(router.clone(), stream, stopping.clone())
    })
    .await
}

/// Answers the requests of one connection, one after the other.
pub(crate) async fn connection(
    router: Router,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let service = Guard(TowerToHyperService::new(router));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // An error is the client's: what it sent is no HTTP, or it went away. It has been answered, or
    // nobody is there.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.ok();
}

fn router(gate: Arc<Gate>) -> Router {
    let decide = |operation| {
        post(move |State(gate): State<Arc<Gate>>, request: HttpRequest| async move {
            decide(&gate, operation, request).await.unwrap_or_else(Problem::into_response)
        })
    };
    Router::new()
        .route("/v1/check", decide(Operation::Check))
        .route("/v1/peek", decide(Operation::Peek))
        .route("/v1/refund", decide(Operation::Refund))
        .route("/v1/reset", decide(Operation::Reset))
        .route("/livez", get(async || "ok\n"))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "there is no such path").into_response()
        })
        .method_not_allowed_fallback(async || {
            let detail = "this path does not know this method";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).into_response()
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(gate)
}

async fn decide(
    gate: &Gate,
    operation: Operation,
    request: HttpRequest,
) -> Result<Response<HttpBody>, Problem> {
    require_json(request.headers())?;
    let bytes = read_body(request).await?;
    let body = Body::decode(&bytes)?;
    let passage = gate.pass(Wire::Http, None, &body.request(operation)?).await?;
    Ok(Response::builder()
        .header(header::CONTENT_TYPE, "application/json")
        .body(HttpBody::from(encode(&passage)))
        .expect("a constant header"))
}

async fn read_body(request: HttpRequest) -> Result<Bytes, Problem> {
    // Who says beforehand that it is too long need not send it.
    if request.body().size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    let Ok(body) = timeout(BODY_WAIT_MAX, Bytes::from_request(request, &())).await else {
        let detail = format!("body: is not there after {} s", BODY_WAIT_MAX.as_secs());
        return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail));
    };
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_long(),
        status => Problem::new(status, rejection.body_text()),
    })
}

fn too_long() -> Problem {
    let detail = format!("body: more than {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

/// A page in a browser can send other types to a loopback server unasked; JSON it cannot.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = given.and_then(|value| value.split(';').next()).map(str::trim);
    if media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let detail = "content-type: expected `application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

#[cfg(test)]
mod tests {
    use sluicegate_policy::PolicySet;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    const LIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n";

    /// A client, and what it talks to, told to stop by the token.
    fn connect() -> (DuplexStream, CancellationToken, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(BODY_BYTES_MAX);
        let stop = CancellationToken::new();
        let router = router(Gate::in_memory(PolicySet::default()));
        let serving = tokio::spawn(connection(router, server, stop.clone()));
        (client, stop, serving)
    }

    /// What the server says to `request` until it closes the connection, and the seconds it took.
    async fn answer(request: &[u8]) -> (String, u64) {
        let (mut client, _, _) = connect();
        let begin = Instant::now();
        client.write_all(request).await.expect("the server reads");
        let mut said = String::new();
        client.read_to_string(&mut said).await.expect("the server says text");
        (said, begin.elapsed().as_secs())
    }

    /// What the server says to [`LIVE`] on a connection that goes on.
    async fn live(client: &mut DuplexStream) {
        client.write_all(LIVE).await.expect("the server reads");
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\nok\n") {
            said.push(client.read_u8().await.expect("the server answers"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_end_is_waited_for_so_long_and_no_longer() {
        for head in [&b""[..], b"POST /v1/check HTTP/1.1\r\nhost: t"] {
            assert_eq!(answer(head).await, (String::new(), HEAD_WAIT_MAX.as_secs()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_kept_so_long_and_no_longer() {
        let (said, seconds) = answer(LIVE).await;
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        assert_eq!(seconds, HEAD_WAIT_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_gets_a_problem_and_the_connection_ends() {
        let head = "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n";
        for body in ["content-length: 9\r\n\r\n{", "transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"] {
            let (said, seconds) = answer(format!("{head}{body}").as_bytes()).await;
            assert!(said.starts_with("HTTP/1.1 408 Request Timeout"), "{said}");
            assert!(said.contains(r#""detail":"body: is not there after 10 s""#), "{said}");
            assert_eq!(seconds, BODY_WAIT_MAX.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_is_too_long_is_refused_before_it_ends() {
        let head = format!("GET /livez HTTP/1.1\r\nx: {}", "x".repeat(HEAD_BYTES_MAX));
        let (said, seconds) = answer(head.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
        assert_eq!(seconds, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_its_next_request_ends_when_told_to_stop() {
        for asked_before in [true, false] {
            let (mut client, stop, serving) = connect();
            if asked_before {
                live(&mut client).await;
            }
            tokio::task::yield_now().await;
            let begin = Instant::now();
            stop.cancel();
            serving.await.unwrap();
            assert_eq!(begin.elapsed(), Duration::ZERO, "{asked_before}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_flight_is_answered_after_the_server_is_told_to_stop() {
        let (mut client, stop, serving) = connect();
        let (begin, rest) = LIVE.split_at(9);
        client.write_all(begin).await.unwrap();
        tokio::task::yield_now().await;
        stop.cancel();
        tokio::task::yield_now().await;
        client.write_all(rest).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert!(
            said.starts_with("HTTP/1.1 200 OK") && said.contains("connection: close"),
            "{said}"
        );
        serving.await.unwrap();
    }
}
